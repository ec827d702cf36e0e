//! Tables (`meta.k8s.io/v1 Table`) and partial objects for `kubectl get`. A kind, its objects and the
//! present time become cells, without I/O. The HTTP shell calls it when a client asks for `as=Table`
//! or `as=PartialObjectMetadata`.

mod columns;
mod descriptions;
mod duration;
mod network;
mod pod;
mod workload;

pub use columns::{age_column, columns};
pub use duration::human_duration;

use crate::jsonpath::JsonPath;
use crate::kind::{Cell, Column, Kind};
use crate::meta;
use duration::since;
use jiff::Timestamp;
use serde_json::{Value, json};

/// How much of each object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

impl IncludeObject {
    /// From the query parameter `includeObject`. Absent: `Metadata`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(format!("unrecognized includeObject value: {other:?}")),
        }
    }
}

/// The `columnDefinitions` and the `rows` of a table of these objects.
pub fn table(
    kind: &Kind,
    objects: &[&Value],
    include: IncludeObject,
    now: Timestamp,
) -> (Value, Vec<Value>) {
    let all = with_name(&kind.columns);
    let definitions = all.iter().map(definition).collect();
    let makers: Vec<_> = all.iter().map(maker).collect();
    let row = |object: &&Value| {
        let cells: Vec<Value> = makers.iter().map(|maker| maker.cell(object, now)).collect();
        let beside = match include {
            IncludeObject::Metadata => partial(object),
            IncludeObject::Object => (*object).clone(),
            IncludeObject::None => Value::Null,
        };
        let mut row = json!({"cells": cells, "object": beside});
        if let Some(condition) = pod::row_condition(kind, object) {
            row["conditions"] = json!([condition]);
        }
        row
    };
    (definitions, objects.iter().map(row).collect())
}

/// The object as `PartialObjectMetadata`.
pub fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// All columns. Name is the first, unless the kind lists it elsewhere.
fn with_name(columns: &[Column]) -> Vec<Column> {
    let mut all = Vec::with_capacity(columns.len() + 1);
    if !columns.iter().any(|column| column.format == "name") {
        all.push(columns::name_column());
    }
    all.extend_from_slice(columns);
    all
}

fn definition(column: &Column) -> Value {
    let description = match &column.cell {
        Cell::Path(path) if column.description.is_empty() => {
            format!("Custom resource definition column (in JSONPath format): {path}")
        }
        _ => column.description.clone(),
    };
    json!({
        "name": column.name, "type": column.type_, "format": column.format,
        "description": description, "priority": column.priority,
    })
}

/// A column prepared for many rows.
enum Maker<'a> {
    /// None: the path is invalid, so its cells are empty.
    Path(Option<JsonPath>, &'a str),
    Function(fn(&Value, Timestamp) -> Value),
}

fn maker(column: &Column) -> Maker<'_> {
    match &column.cell {
        Cell::Path(path) => Maker::Path(JsonPath::parse(path).ok(), &column.type_),
        Cell::Function(function) => Maker::Function(*function),
    }
}

impl Maker<'_> {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self {
            Maker::Function(function) => function(object, now),
            Maker::Path(path, type_) => {
                let found = path.as_ref().and_then(|path| path.find(object).into_iter().next());
                found.map_or(Value::Null, |value| custom(type_, value, now))
            }
        }
    }
}

/// The cell of a custom kind. It is empty if the value does not have the column's type.
fn custom(type_: &str, value: &Value, now: Timestamp) -> Value {
    match (type_, value) {
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::Null) => json!("<no value>"),
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            #[allow(clippy::cast_possible_truncation)]
            (None, Some(float)) => json!(float as i64),
            _ => Value::Null,
        },
        ("number", Value::Number(_)) => value.clone(),
        ("date", Value::String(_)) => json!(since(value, now)),
        _ => Value::Null,
    }
}

/// The age of the object.
fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(&object["metadata"]["creationTimestamp"], now))
}

/// The name of the object.
fn name(object: &Value, _now: Timestamp) -> Value {
    json!(meta::name(object))
}

/// The creation time of the object, for kinds without columns of their own.
fn created_at(object: &Value, _now: Timestamp) -> Value {
    json!(object["metadata"]["creationTimestamp"].as_str().unwrap_or("0001-01-01T00:00:00Z"))
}

/// A text. Empty if it is absent.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A list. Empty if it is absent.
fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A number, or 0.
fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The text, or `absent` if it is empty.
fn or<'a>(text: &'a str, absent: &'a str) -> &'a str {
    if text.is_empty() { absent } else { text }
}

/// At most three items, and the number of the others.
fn first_three(items: &[String], absent: &str) -> String {
    match items.len() {
        0 => absent.to_owned(),
        count @ 1..=3 => items[..count].join(","),
        count => format!("{} + {} more...", items[..3].join(","), count - 3),
    }
}

#[cfg(test)]
mod tests;

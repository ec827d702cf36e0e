//! JSON type mismatches of built-in kinds, for which kube-apiserver fails already while decoding, in
//! the words of Go's JSON decoder. Custom objects are judged by [`Schema::validate`] instead.

use super::{Node, Schema, Type, child, indexed};
use serde_json::Value;
use std::fmt;

/// A value whose JSON type does not fit its field.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeError {
    /// Path with indexes, such as `spec.ports[0].port`.
    pub path: String,
    /// Go's name of the field: its struct and the path without indexes, such as
    /// `ServicePort.spec.ports.port`.
    pub field: String,
    /// What was found: `string`, `number`, `number 1.5`, `bool`, `array` or `object`.
    pub found: String,
    /// Go's type of the field, such as `int32`.
    pub wanted: String,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, found, wanted, .. } = self;
        write!(f, "json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
    }
}

impl Schema {
    /// Values of the wrong JSON type; `kind` is the kind of the object. Display of each is what the
    /// decoder of kube-apiserver says; it stops at the first.
    pub fn type_errors(&self, object: &Value, kind: &str) -> Vec<TypeError> {
        mismatches(self, object, kind)
    }
}

pub(super) fn mismatches(schema: &Schema, object: &Value, kind: &str) -> Vec<TypeError> {
    let mut errors = Vec::new();
    visit(schema, object, &Place { path: "", names: "", owner: kind }, &mut errors);
    errors
}

struct Place<'a> {
    path: &'a str,
    names: &'a str,
    owner: &'a str,
}

fn visit(schema: &Schema, value: &Value, place: &Place<'_>, errors: &mut Vec<TypeError>) {
    let node = schema.node();
    if let Some(found) = mismatch(node, value) {
        errors.push(TypeError {
            path: place.path.to_owned(),
            field: format!("{}.{}", place.owner, place.names),
            found,
            wanted: go_type(schema),
        });
        return;
    }
    match value {
        Value::Object(map) => {
            let own = node.definition.as_deref().and_then(|d| d.rsplit('.').next());
            let owner = own.filter(|_| !node.properties.is_empty()).unwrap_or(place.owner);
            for (name, value) in map {
                let Some(member) = schema.member(name) else { continue };
                let path = child(place.path, name);
                let names = if node.properties.contains_key(name) {
                    child(place.names, name)
                } else {
                    place.names.to_owned()
                };
                visit(&member, value, &Place { path: &path, names: &names, owner }, errors);
            }
        }
        Value::Array(list) => {
            let Some(items) = schema.items() else { return };
            for (i, value) in list.iter().enumerate() {
                let path = indexed(place.path, i);
                let place = Place { path: &path, names: place.names, owner: place.owner };
                visit(&items, value, &place, errors);
            }
        }
        _ => {}
    }
}

fn mismatch(node: &Node, value: &Value) -> Option<String> {
    let fits = match (node.type_, value) {
        (_, Value::Null) => true,
        (None, Value::String(_) | Value::Number(_)) => true,
        (None, _) => !node.int_or_string,
        (Some(Type::Object), v) => v.is_object(),
        (Some(Type::Array), v) => v.is_array(),
        (Some(Type::String), v) => v.is_string(),
        (Some(Type::Boolean), v) => v.is_boolean(),
        (Some(Type::Number), v) => v.is_number(),
        (Some(Type::Integer), Value::Number(n)) => {
            let small = n.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            if n.is_i64() && (small || node.format != "int32") {
                return None;
            }
            return Some(format!("number {n}"));
        }
        (Some(Type::Integer), _) => false,
    };
    let found = match value {
        _ if fits => return None,
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    };
    Some(found.to_owned())
}

fn go_type(schema: &Schema) -> String {
    let node = schema.node();
    match (node.type_, node.format.as_str()) {
        (Some(Type::String), "byte") => "[]uint8".to_owned(),
        (Some(Type::String), _) => "string".to_owned(),
        (Some(Type::Boolean), _) => "bool".to_owned(),
        (Some(Type::Integer), "int32") => "int32".to_owned(),
        (Some(Type::Integer), _) => "int64".to_owned(),
        (Some(Type::Number), _) => "float64".to_owned(),
        (Some(Type::Array), _) => {
            let item = schema.items().map(|items| go_type(&items));
            format!("[]{}", item.unwrap_or_else(|| "interface {}".into()))
        }
        (Some(Type::Object), _) => match (&node.definition, node.additional) {
            (Some(name), _) => {
                let mut parts = name.rsplit('.');
                let (type_, package) = (parts.next(), parts.next());
                format!("{}.{}", package.unwrap_or_default(), type_.unwrap_or_default())
            }
            (None, Some(at)) => format!("map[string]{}", go_type(&schema.to(at))),
            (None, None) => "map[string]interface {}".to_owned(),
        },
        (None, _) => "intstr.IntOrString".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::compile;
    use serde_json::json;

    #[test]
    fn mismatches_read_as_gos_decoder_words_them() {
        use k8s_openapi::api::core::v1::Service;
        let root = schemars::schema_for!(Service).to_value();
        let schema = compile(&root, &|name| root["$defs"].get(name).cloned()).unwrap();
        let said = |object| -> Vec<String> {
            schema.type_errors(&object, "Service").iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            said(json!({"spec": {"ports": [{"port": "80"}], "selector": {"a": 1}}})),
            [
                "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type \
                 int32",
                "json: cannot unmarshal number into Go struct field ServiceSpec.spec.selector of type \
                 string",
            ]
        );
        assert_eq!(
            said(json!({"spec": {"ports": "x", "publishNotReadyAddresses": "yes"}})),
            [
                "json: cannot unmarshal string into Go struct field ServiceSpec.spec.ports of type \
                 []v1.ServicePort",
                "json: cannot unmarshal string into Go struct field \
                 ServiceSpec.spec.publishNotReadyAddresses of type bool",
            ]
        );
        assert_eq!(
            said(json!({"metadata": {"labels": "x"}, "spec": {"ports": [{"port": 1.5}]}})),
            [
                "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type \
                 map[string]string",
                "json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.port of \
                 type int32",
            ]
        );
        assert_eq!(
            said(json!({"spec": {"ports": [{"targetPort": "a"}, {"targetPort": 1}]}})),
            [""; 0]
        );
    }
}

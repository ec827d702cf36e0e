//! The data that templates get, in one form for both engines: kube2lb's schema and additional values. An object of
//! kube2lb prints as its label, and its methods are fields. Pure; the subject makes it.

use bowline_core::exposed::view::{Cluster, Endpoint, Entry, Expression, PortSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Nothing.
    Null,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// Text.
    Text(Arc<str>),
    /// A text whose Go type has a `String` method.
    Address(Arc<str>),
    /// A list.
    List(Vec<Data>),
    /// Fields by name. With a field [`STRING`] it prints as that.
    Fields(BTreeMap<Arc<str>, Data>),
}

/// The field that an object prints as: kube2lb's `String` method.
pub const STRING: &str = "String";

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Fields by name.
pub fn fields<const N: usize>(fields: [(&str, Data); N]) -> Data {
    Data::Fields(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

/// The data of a cluster.
pub fn cluster(cluster: &Cluster) -> Data {
    fields([
        ("Services", Data::List(cluster.services.iter().map(service).collect())),
        ("Ports", Data::List(cluster.ports.iter().map(port).collect())),
        ("Expressions", Data::List(cluster.expressions.iter().map(expression).collect())),
        ("Nodes", Data::List(cluster.nodes.iter().cloned().map(Data::Text).collect())),
        ("Domain", Data::Text(cluster.domain.clone())),
    ])
}

/// kube2lb's `ServiceInformation`, and the source ranges.
pub fn service(entry: &Entry) -> Data {
    let texts = |texts: Vec<String>| Data::List(texts.iter().map(|t| t.as_str().into()).collect());
    fields([
        ("Name", Data::Text(entry.name().clone())),
        ("Namespace", Data::Text(entry.namespace().clone())),
        ("Port", port(&entry.port)),
        ("Endpoints", Data::List(entry.endpoints.iter().map(endpoint).collect())),
        ("NodePort", Data::Number(entry.node_port.into())),
        ("External", texts(entry.external.iter().map(ToString::to_string).collect())),
        ("Timeout", Data::Number(entry.timeout_ms.into())),
        ("SourceRanges", texts(entry.source_ranges.iter().map(ToString::to_string).collect())),
        (STRING, entry.to_string().as_str().into()),
    ])
}

/// A name that is a regular expression, and the label of its entry. Only the label, because there may be many.
fn expression(expression: &Expression) -> Data {
    fields([
        ("Service", expression.entry().as_str().into()),
        ("Port", port(&expression.port)),
        ("Name", server_name(&expression.name)),
    ])
}

fn port(port: &PortSpec) -> Data {
    fields([
        ("IP", Data::Address(port.ip.to_string().into())),
        ("Port", Data::Number(port.port.into())),
        ("Mode", Data::Text(port.mode.clone())),
        ("Protocol", port.protocol().into()),
        (STRING, port.to_string().as_str().into()),
    ])
}

fn endpoint(endpoint: &Endpoint) -> Data {
    fields([
        ("Name", Data::Text(endpoint.name.clone())),
        ("IP", endpoint.ip.to_string().as_str().into()),
        ("Port", Data::Number(endpoint.port.into())),
        (STRING, endpoint.to_string().as_str().into()),
    ])
}

/// A name of a server. It prints as the name and has kube2lb's methods.
pub fn server_name(name: &str) -> Data {
    let regexp = name.strip_prefix('~');
    fields([
        ("IsRegexp", Data::Flag(regexp.is_some())),
        ("Regexp", regexp.unwrap_or(name).into()),
        (STRING, name.into()),
    ])
}

/// JSON as data. Numbers that are not whole become text.
pub fn json(value: &serde_json::Value) -> Data {
    use serde_json::Value;
    match value {
        Value::Null => Data::Null,
        Value::Bool(flag) => Data::Flag(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Data::Number(number),
            None => number.to_string().as_str().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => Data::List(values.iter().map(json).collect()),
        Value::Object(fields) => {
            Data::Fields(fields.iter().map(|(name, v)| (name.as_str().into(), json(v))).collect())
        }
    }
}

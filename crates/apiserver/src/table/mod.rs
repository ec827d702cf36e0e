//! stub
use crate::kind::*; use serde_json::{Value, json};
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject { /// x
 Metadata, /// x
 Object, /// x
 None }
/// x
pub fn table(_k: &Kind, _o: &[&Value], _i: IncludeObject, _n: jiff::Timestamp) -> (Value, Vec<Value>) { (json!([]), vec![]) }
/// x
pub fn partial(o: &Value) -> Value { o.clone() }
/// x
pub fn columns(_g: &str, _k: &str) -> Vec<Column> { vec![] }

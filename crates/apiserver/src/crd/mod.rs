//! stub
use serde_json::Value; use crate::kind::Kind; use crate::error::FieldError;
/// x
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameClaim;
/// x
pub fn status(_c: &Value, _t: &dyn Fn(&NameClaim) -> Option<String>, _n: jiff::Timestamp) -> Value { Value::Null }
/// x
pub fn accepted_names(_c: &Value, _s: &Value) -> Vec<NameClaim> { vec![] }
/// x
pub fn established(_s: &Value) -> bool { true }
/// x
pub fn kinds(_c: &Value) -> Result<Vec<Kind>, Vec<FieldError>> { Ok(vec![]) }
/// x
pub fn openapi(_c: &Value, _v: &str) -> (String, Value) { (String::new(), Value::Null) }
/// x
pub fn dns_label(_: &str) -> Vec<String> { vec![] }

//! The interface to the `cel` interpreter: takes expressions, returns values and typed errors. Only
//! this module uses the interpreter's types; the walk over an object is in [`super::cel`].

use super::{Node, Schema, Type};
use super::{cel_check, cel_cost};
use base64::Engine;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel, parser::Parser};
use serde_json::Value;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

thread_local! {
    /// CEL's own functions and those of Kubernetes. Such a context is costly to create.
    pub(super) static FUNCTIONS: Context<'static> = {
        let mut context = Context::default().with_all();
        cel_cost::add_functions(&mut context);
        context
    };
}

/// Parses an expression, with optional syntax.
pub(super) fn parse(text: &str) -> Result<IdedExpr, String> {
    let mut expression = catch_unwind(|| Parser::new().enable_optional_syntax(true).parse(text))
        .map_err(|_| "the expression cannot be parsed".to_owned())?
        .map_err(|errors| errors.to_string())?;
    cel_check::index_optionals(&mut expression);
    Ok(expression)
}

/// Why an expression has no result.
pub(super) enum Failure {
    /// The operands' types do not fit.
    Overload,
    /// Any other error.
    Other(String),
}

/// Runs an expression. If the interpreter panics, only the rule fails; the server goes on.
pub(super) fn evaluate(program: &IdedExpr, scope: &Context<'_>) -> Result<Cel, Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| Cel::resolve(program, scope)))
        .map_err(|_| Failure::Other("internal error".into()))?;
    result.map_err(|error| match error {
        ExecutionError::NoSuchKey(key) => Failure::Other(format!("no such key: {key}")),
        ExecutionError::IndexOutOfBounds(Cel::Int(i)) => {
            Failure::Other(format!("index out of bounds: {i}"))
        }
        ExecutionError::DivisionByZero(_) => Failure::Other("division by zero".into()),
        ExecutionError::RemainderByZero(_) => Failure::Other("modulus by zero".into()),
        ExecutionError::Overflow(..) => Failure::Other("integer overflow".into()),
        ExecutionError::FunctionError { message, .. } => Failure::Other(message),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedIndex(..) => Failure::Overload,
        other => Failure::Other(other.to_string()),
    })
}

/// A value for CEL: with the schema's types, escaped field names, and only what the schema declares.
pub(super) fn to_cel(schema: &Schema, value: &Value, resource: bool) -> Cel {
    let node = schema.node();
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (node.type_, n.as_i64()) {
            (Some(Type::Number), _) | (_, None) => match n.as_f64() {
                Some(whole) if node.type_ == Some(Type::Integer) => Cel::Int(whole as i64),
                float => Cel::Float(float.unwrap_or(f64::NAN)),
            },
            (_, Some(i)) => Cel::Int(i),
        },
        Value::String(text) => string(node, text),
        Value::Array(list) => {
            let items = schema.items();
            let convert = |value: &Value| match &items {
                Some(items) => to_cel(items, value, items.node().embedded),
                None => plain(value),
            };
            Cel::List(Arc::new(list.iter().map(convert).collect()))
        }
        Value::Object(map) if node.properties.is_empty() && !resource => match node.additional {
            Some(at) => {
                let values = schema.to(at);
                let embedded = values.node().embedded;
                cel_map(map.iter().map(|(k, v)| (k.clone(), to_cel(&values, v, embedded))))
            }
            None => plain(value),
        },
        Value::Object(map) => {
            let declared = map.iter().filter_map(|(name, value)| {
                let &at = node.properties.get(name)?;
                let is_meta =
                    resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
                let part = schema.to(at);
                let embedded = part.node().embedded;
                let key = cel_check::escape(name).filter(|_| !is_meta)?;
                Some((key, to_cel(&part, value, embedded)))
            });
            let meta =
                map.iter().filter(|_| resource).filter_map(|(name, value)| match name.as_str() {
                    "apiVersion" | "kind" => Some((name.clone(), plain(value))),
                    "metadata" => {
                        let names = ["name", "generateName"].into_iter();
                        let seen = names.filter_map(|n| Some((n.to_owned(), plain(value.get(n)?))));
                        Some((name.clone(), cel_map(seen)))
                    }
                    _ => None,
                });
            cel_map(declared.chain(meta))
        }
    }
}

fn cel_map(entries: impl Iterator<Item = (String, Cel)>) -> Cel {
    let map = entries.map(|(k, v)| (Key::String(Arc::new(k)), v)).collect::<HashMap<_, _>>();
    Cel::Map(Map { map: Arc::new(map) })
}

/// A value without a schema; rules can only compare it.
fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => {
            n.as_i64().map_or_else(|| Cel::Float(n.as_f64().unwrap_or(f64::NAN)), Cel::Int)
        }
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(plain).collect())),
        Value::Object(map) => cel_map(map.iter().map(|(k, v)| (k.clone(), plain(v)))),
    }
}

fn string(node: &Node, text: &str) -> Cel {
    static TIMESTAMP: LazyLock<Option<IdedExpr>> = LazyLock::new(|| parse("timestamp(text)").ok());
    static DURATION: LazyLock<Option<IdedExpr>> = LazyLock::new(|| parse("duration(text)").ok());
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if node.int_or_string {
        return plain();
    }
    // Made by CEL's own functions, because the types of these values cannot be constructed here.
    let convert = |program: &Option<IdedExpr>, text: String| {
        let program = program.as_ref()?;
        FUNCTIONS.with(|functions| {
            let mut scope = functions.new_inner_scope();
            scope.add_variable_from_value("text", Cel::String(Arc::new(text)));
            evaluate(program, &scope).ok()
        })
    };
    match node.format.as_str() {
        "date-time" => convert(&TIMESTAMP, text.to_owned()).unwrap_or_else(plain),
        "date" => convert(&TIMESTAMP, format!("{text}T00:00:00Z")).unwrap_or_else(plain),
        "duration" => convert(&DURATION, text.to_owned()).unwrap_or_else(plain),
        "byte" => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) => Cel::Bytes(Arc::new(bytes)),
            Err(_) => plain(),
        },
        _ => plain(),
    }
}

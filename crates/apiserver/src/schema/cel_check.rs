//! Static checks of a CEL expression: unknown names, functions and fields, operands of types that
//! do not fit, results that are not boolean. kube-cel finds these only during evaluation, where
//! `has(self.typo)` would pass silently. kube-apiserver refuses them when the
//! CustomResourceDefinition is written, and so does this module. Only [`super::CelRules`] calls it.

use super::cel_walk::children;
use super::{NodeId, Schema, Type, go};
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators as op};

/// The functions of CEL and of its Kubernetes libraries that kube-cel implements.
const FUNCTIONS: &str = "
    add asApproximateFloat asInteger base64.decode base64.encode bytes charAt cidr compareTo
    contains containsCIDR containsIP distinct double duration endsWith family find findAll
    first flatten format format.byte format.date format.datetime format.dns1035Label
    format.dns1035LabelPrefix format.dns1123Label format.dns1123LabelPrefix
    format.dns1123Subdomain format.dns1123SubdomainPrefix format.labelValue format.named
    format.qualifiedName format.uri format.uuid getDate getDayOfMonth getDayOfWeek
    getDayOfYear getEscapedPath getFullYear getHost getHostname getHours getMilliseconds
    getMinutes getMonth getPort getQuery getScheme getSeconds hasValue indexOf int ip
    ip.isCanonical isCIDR isGlobalUnicast isGreaterThan isIP isInteger isLessThan
    isLinkLocalMulticast isLinkLocalUnicast isLoopback isQuantity isSemver isSorted isURL
    isUnspecified join jsonpatch.escapeKey last lastIndexOf lists.range lowerAscii major
    masked matches math.abs math.bitAnd math.bitNot math.bitOr math.bitShiftLeft
    math.bitShiftRight math.bitXor math.ceil math.floor math.greatest math.isFinite
    math.isInf math.isNaN math.least math.round math.sign math.sqrt math.trunc max min minor
    optional.none optional.of optional.ofNonZeroValue or orValue patch prefixLength quantity
    replace reverse semver sets.contains sets.equivalent sets.intersects sign size slice
    sort split startsWith string strings.quote sub substring sum timestamp trim uint
    upperAscii url validate value
";

/// Turns `a.?b` into `a[?'b']`: the interpreter fails on the first form if `b` is absent.
pub(super) fn index_optionals(expression: &mut IdedExpr) {
    if let Expr::Call(call) = &mut expression.expr
        && call.func_name == op::OPT_SELECT
    {
        call.func_name = op::OPT_INDEX.to_owned();
    }
    children(expression, index_optionals);
}

/// The inferred type of an expression.
#[derive(Clone, Debug, PartialEq)]
enum Ty {
    /// Unknown before evaluation.
    Dyn,
    Bool,
    Int,
    Double,
    Uint,
    Str,
    Bytes,
    Null,
    /// An object, map or list of the schema. The flag: whether it is a resource with metadata.
    Node(NodeId, bool),
    /// `metadata`, whose name fields only are visible.
    Meta,
    List,
    Optional(Box<Ty>),
}

fn is_function(name: &str) -> bool {
    FUNCTIONS.split_whitespace().any(|function| function == name)
}

/// What a checked expression uses.
#[derive(Default)]
pub(super) struct Findings {
    /// Whether it uses `oldSelf`.
    pub(super) uses_old: bool,
}

/// The required type of a result.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Wanted {
    /// Boolean, for a rule.
    Bool,
    /// String, for a message.
    Text,
}

/// Checks an expression for the value at `schema`.
pub(super) fn check(
    expression: &IdedExpr,
    schema: &Schema,
    resource: bool,
    optional_old: bool,
    wanted: Wanted,
) -> Result<Findings, String> {
    let mut scope =
        Scope { schema, resource, optional_old, vars: Vec::new(), found: Findings::default() };
    let type_ = scope.infer(expression).map_err(|why| match wanted {
        Wanted::Bool => format!("compilation failed: ERROR: {why}"),
        Wanted::Text => format!("messageExpression compilation failed: ERROR: {why}"),
    })?;
    match (wanted, type_) {
        (_, Ty::Dyn) | (Wanted::Bool, Ty::Bool) | (Wanted::Text, Ty::Str) => Ok(scope.found),
        (Wanted::Bool, _) => Err("cel expression must evaluate to a bool".into()),
        (Wanted::Text, _) => Err("messageExpression must evaluate to a string".into()),
    }
}

struct Scope<'a> {
    schema: &'a Schema,
    resource: bool,
    optional_old: bool,
    vars: Vec<(String, Ty)>,
    found: Findings,
}

impl Scope<'_> {
    fn infer(&mut self, expression: &IdedExpr) -> Result<Ty, String> {
        match &expression.expr {
            Expr::Unspecified => Ok(Ty::Dyn),
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::Str,
                LiteralValue::UInt(_) => Ty::Uint,
            }),
            Expr::Ident(name) => self.ident(name),
            Expr::List(list) => {
                list.elements.iter().try_for_each(|e| self.infer(e).map(drop))?;
                Ok(Ty::List)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key)?;
                        self.infer(&entry.value)?;
                    }
                }
                Ok(Ty::Dyn)
            }
            Expr::Struct(made) => {
                Err(format!("undeclared reference to '{}' (in container '')", made.type_name))
            }
            Expr::Select(select) => {
                let operand = self.infer(&select.operand)?;
                let type_ = self.field(&operand, &select.field)?;
                Ok(if select.test { Ty::Bool } else { type_ })
            }
            Expr::Comprehension(c) => {
                let range = self.infer(&c.iter_range)?;
                let item = self.item(&range);
                let accumulator = self.infer(&c.accu_init)?;
                let depth = self.vars.len();
                if let Some(second) = &c.iter_var2 {
                    self.vars.push((second.clone(), Ty::Dyn));
                }
                self.vars.push((c.iter_var.clone(), item));
                let accumulated = if accumulator == Ty::List { Ty::Dyn } else { accumulator };
                self.vars.push((c.accu_var.clone(), accumulated));
                self.infer(&c.loop_cond)?;
                self.infer(&c.loop_step)?;
                let result = self.infer(&c.result);
                self.vars.truncate(depth);
                result
            }
            Expr::Call(call) => self.call(&call.func_name, call.target.as_deref(), &call.args),
        }
    }

    fn ident(&mut self, name: &str) -> Result<Ty, String> {
        if let Some((_, type_)) = self.vars.iter().rev().find(|(var, _)| var == name) {
            return Ok(type_.clone());
        }
        let own = self.node(self.schema.id(), self.resource);
        match name {
            "self" => Ok(own),
            "oldSelf" => {
                self.found.uses_old = true;
                Ok(if self.optional_old { Ty::Optional(Box::new(own)) } else { own })
            }
            _ => Err(format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn node(&self, at: NodeId, resource: bool) -> Ty {
        let node = &self.schema.nodes()[at as usize];
        match node.type_ {
            None => Ty::Dyn,
            Some(Type::Boolean) => Ty::Bool,
            Some(Type::Integer) => Ty::Int,
            Some(Type::Number) => Ty::Double,
            Some(Type::String) => match node.format.as_str() {
                "date-time" | "date" | "duration" => Ty::Dyn,
                "byte" => Ty::Bytes,
                _ => Ty::Str,
            },
            Some(Type::Object | Type::Array) => Ty::Node(at, resource || node.embedded),
        }
    }

    fn field(&self, operand: &Ty, name: &str) -> Result<Ty, String> {
        match operand {
            Ty::Dyn => Ok(Ty::Dyn),
            Ty::Optional(_) => Err(format!(
                "this server does not implement '.{name}' on an optional value, write '.?{name}'"
            )),
            Ty::Meta if matches!(name, "name" | "generateName") => Ok(Ty::Str),
            Ty::Node(at, resource) => {
                let node = &self.schema.nodes()[*at as usize];
                match (*resource, name) {
                    (true, "apiVersion" | "kind") => return Ok(Ty::Str),
                    (true, "metadata") => return Ok(Ty::Meta),
                    _ => {}
                }
                if node.type_ == Some(Type::Array) {
                    return Err("type 'list' does not support field selection".into());
                }
                let declared =
                    node.properties.iter().find(|(key, _)| escape(key).as_deref() == Some(name));
                match (declared, node.additional.filter(|_| node.properties.is_empty())) {
                    (Some((_, &at)), _) | (None, Some(at)) => Ok(self.node(at, false)),
                    (None, None) => Err(format!("undefined field '{name}'")),
                }
            }
            Ty::Meta => Err(format!("undefined field '{name}'")),
            other => Err(format!("type '{}' does not support field selection", word(other))),
        }
    }

    /// As [`Scope::field`], for a name in brackets. A map accepts any name.
    fn key(&self, operand: &Ty, name: &str) -> Result<Ty, String> {
        match operand {
            Ty::Optional(inner) => self.key(inner, name).map(|t| Ty::Optional(Box::new(t))),
            Ty::Node(at, _) if self.schema.nodes()[*at as usize].properties.is_empty() => {
                Ok(self.index(operand))
            }
            other => self.field(other, name),
        }
    }

    fn item(&self, range: &Ty) -> Ty {
        let Ty::Node(at, _) = range else { return Ty::Dyn };
        let node = &self.schema.nodes()[*at as usize];
        match (node.type_, node.items) {
            (Some(Type::Array), Some(items)) => self.node(items, false),
            (Some(Type::Object), _) => Ty::Str,
            _ => Ty::Dyn,
        }
    }

    fn index(&self, operand: &Ty) -> Ty {
        match operand {
            Ty::Node(at, _) => {
                let node = &self.schema.nodes()[*at as usize];
                node.items.or(node.additional).map_or(Ty::Dyn, |at| self.node(at, false))
            }
            Ty::Optional(inner) => Ty::Optional(Box::new(self.index(inner))),
            _ => Ty::Dyn,
        }
    }

    fn call(
        &mut self,
        name: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
    ) -> Result<Ty, String> {
        if name == op::OPT_INDEX
            && let [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(field)), .. }] =
                args
        {
            let operand = self.infer(operand)?;
            let type_ = self.key(&operand, field.inner())?;
            return Ok(match type_ {
                Ty::Optional(_) => type_,
                other => Ty::Optional(Box::new(other)),
            });
        }
        let qualified = target.and_then(|target| match &target.expr {
            Expr::Ident(prefix) => Some(format!("{prefix}.{name}")),
            _ => None,
        });
        let full = qualified.filter(|full| is_function(full));
        let receiver = match target {
            Some(target) if full.is_none() => Some(self.infer(target)?),
            _ => None,
        };
        let types = args.iter().map(|arg| self.infer(arg)).collect::<Result<Vec<_>, _>>()?;
        if let Some(type_) = operator(name, &types)? {
            return Ok(match type_ {
                Ty::List => self.index(&types[0]),
                other => other,
            });
        }
        let known = full.as_deref().unwrap_or(name);
        if !is_function(known) {
            return Err(format!("undeclared reference to '{known}' (in container '')"));
        }
        if matches!(known, "matches" | "find" | "findAll")
            && let Some(IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }) =
                args.last()
            && let Err(why) = go::pattern(text.inner())
        {
            return Err(format!("invalid {known} argument: {why}"));
        }
        Ok(result_of(known, receiver.as_ref(), &types))
    }
}

/// The type of an operator's result. [`Ty::List`] means an indexed element.
fn operator(name: &str, types: &[Ty]) -> Result<Option<Ty>, String> {
    let clash = |name: &str| {
        let words: Vec<_> = types.iter().map(word).collect();
        format!("found no matching overload for '{name}' applied to '({})'", words.join(", "))
    };
    let boolean = |type_: &Ty| match type_ {
        Ty::Bool | Ty::Dyn => Ok(()),
        other => Err(format!("expected type 'bool' but found '{}'", word(other))),
    };
    Ok(Some(match (name, types) {
        (op::CONDITIONAL, [condition, a, b]) => {
            boolean(condition)?;
            if a == b { a.clone() } else { Ty::Dyn }
        }
        (op::LOGICAL_AND | op::LOGICAL_OR, _) => {
            types.iter().try_for_each(boolean)?;
            Ty::Bool
        }
        (op::LOGICAL_NOT | op::NOT_STRICTLY_FALSE, _) => {
            types.iter().try_for_each(boolean)?;
            Ty::Bool
        }
        (op::EQUALS | op::NOT_EQUALS, [a, b]) => {
            if scalar(a) && scalar(b) && a != b {
                return Err(clash(name));
            }
            Ty::Bool
        }
        (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [a, b]) => {
            let numbers = numeric(a) && numeric(b);
            if scalar(a) && scalar(b) && a != b && !numbers {
                return Err(clash(name));
            }
            Ty::Bool
        }
        (op::IN, _) => Ty::Bool,
        (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [a, b]) => {
            if scalar(a) && scalar(b) && (a != b || *a == Ty::Bool) {
                return Err(clash(name));
            }
            if scalar(a) && a == b { a.clone() } else { Ty::Dyn }
        }
        (op::NEGATE, [a]) => a.clone(),
        (op::INDEX | op::OPT_INDEX, [_, _]) => Ty::List,
        _ => return Ok(None),
    }))
}

fn scalar(type_: &Ty) -> bool {
    numeric(type_) || matches!(type_, Ty::Bool | Ty::Str | Ty::Bytes)
}

fn numeric(type_: &Ty) -> bool {
    matches!(type_, Ty::Int | Ty::Double | Ty::Uint)
}

fn result_of(function: &str, receiver: Option<&Ty>, types: &[Ty]) -> Ty {
    match function {
        "orValue" => match receiver {
            Some(Ty::Optional(inner)) => match types {
                [other] if **inner == *other => other.clone(),
                _ => Ty::Dyn,
            },
            _ => Ty::Dyn,
        },
        "value" => match receiver {
            Some(Ty::Optional(inner)) => (**inner).clone(),
            _ => Ty::Dyn,
        },
        "contains" | "containsCIDR" | "containsIP" | "endsWith" | "hasValue" | "ip.isCanonical"
        | "isCIDR" | "isGreaterThan" | "isIP" | "isInteger" | "isLessThan" | "isQuantity"
        | "isSemver" | "isSorted" | "isURL" | "matches" | "sets.contains" | "sets.equivalent"
        | "sets.intersects" | "startsWith" | "isGlobalUnicast" | "isLoopback" | "isUnspecified" => {
            Ty::Bool
        }
        "size" | "int" | "compareTo" | "family" | "prefixLength" | "getFullYear" | "getHours" => {
            Ty::Int
        }
        "double" | "asApproximateFloat" => Ty::Double,
        "string" | "charAt" | "join" | "format" | "lowerAscii" | "upperAscii" | "replace"
        | "trim" | "substring" | "strings.quote" | "getHost" | "getHostname" | "getPort"
        | "getScheme" => Ty::Str,
        _ => Ty::Dyn,
    }
}

fn word(type_: &Ty) -> &'static str {
    match type_ {
        Ty::Dyn => "dyn",
        Ty::Bool => "bool",
        Ty::Int => "int",
        Ty::Double => "double",
        Ty::Uint => "uint",
        Ty::Str => "string",
        Ty::Bytes => "bytes",
        Ty::Null => "null",
        Ty::Node(..) | Ty::Meta => "object",
        Ty::List => "list",
        Ty::Optional(_) => "optional",
    }
}

/// A field's name in CEL. None: CEL cannot name the field.
pub(super) fn escape(name: &str) -> Option<String> {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c)) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::KubeCelExt;
    use kube_cel::cel::{Context, ExecutionError, Value, parser::Parser};

    #[test]
    fn every_function_that_is_let_through_is_there_to_be_called() {
        let context = Context::default().with_all();
        for name in FUNCTIONS.split_whitespace() {
            let expression = Parser::new().parse(&format!("{name}()")).unwrap();
            let result = Value::resolve(&expression, &context);
            assert!(
                !matches!(&result, Err(ExecutionError::UndeclaredReference(_))),
                "{name}: {result:?}"
            );
        }
    }

    #[test]
    fn names_are_escaped_as_kubernetes_escapes_them() {
        for (name, escaped) in [
            ("foo_bar", Some("foo_bar")),
            ("a__b", Some("a__underscores__b")),
            ("x-prop", Some("x__dash__prop")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("namespace", Some("__namespace__")),
            ("1a", None),
            ("sp ace", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}

//! `x-kubernetes-validations`: CEL rules, compiled once for each schema and run on every write of an object that has
//! passed the schema's own validation. It does no I/O.
//!
//! The expressions run with kube-cel's functions in the `cel` interpreter. The walk over the object is here, because
//! kube-cel's walk matches old and new list items by index instead of by key, escapes field names differently than
//! Kubernetes, and gives `oldSelf` no optional type.
//!
//! It differs from kube-apiserver as follows. Cost is limited while rules run ([`super::cel_cost`]) and never estimated
//! beforehand. Lists of type set or map compare in order. Of types, only what [`super::cel_check`] infers is checked
//! beforehand. `sortBy`, `cel.bind`, `optMap`, `type` and comprehensions with two variables are refused when the
//! CustomResourceDefinition is written.

use super::cel_check::{self, Wanted};
use super::cel_cost::{Budget, Exceeded, meter};
use super::cel_run::{FUNCTIONS, Failure, evaluate, parse, to_cel};
use super::paths::field_path;
use super::validate::counterpart;
use super::{ListType, Node, NodeId, Schema, Type, child, compile_crd, go, indexed, keyed};
use crate::error::{FieldError, FieldErrorKind};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, IdedExpr, Value as Cel};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// The longest message that an expression may make.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// The compiled rules of one schema. Cheap to clone.
#[derive(Clone)]
pub struct CelRules {
    schema: Schema,
    rules: Arc<HashMap<NodeId, Vec<Rule>>>,
    /// Nodes with rules at or below them.
    paths: Arc<HashSet<NodeId>>,
}

struct Rule {
    program: IdedExpr,
    uses_old: bool,
    optional_old: bool,
    message_program: Option<IdedExpr>,
    /// The rule as written, trimmed.
    text: String,
    message: String,
    reason: String,
    /// `fieldPath` in the form of field paths.
    field: String,
}

impl CelRules {
    /// Compiles all rules of the `openAPIV3Schema` of a CustomResourceDefinition.
    pub fn compile(schema: &Value) -> Result<CelRules, Vec<FieldError>> {
        Self::compile_at(schema, &compile_crd(schema)?, "spec.validation.openAPIV3Schema")
    }

    /// As [`CelRules::compile`], for a schema at `path` that is already compiled.
    pub fn compile_at(
        schema: &Value,
        compiled: &Schema,
        path: &str,
    ) -> Result<CelRules, Vec<FieldError>> {
        let mut found = Compiler {
            schema: compiled,
            rules: HashMap::new(),
            paths: HashSet::new(),
            errors: Vec::new(),
        };
        found.visit(schema, compiled.id(), path, true, None);
        if !found.errors.is_empty() {
            return Err(found.errors);
        }
        let rules = CelRules {
            schema: compiled.clone(),
            rules: Arc::new(found.rules),
            paths: Arc::new(found.paths),
        };
        let errors = rules.defaults(compiled.id(), path);
        if errors.is_empty() { Ok(rules) } else { Err(errors) }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The errors that the rules report for `object`. Rules with `oldSelf` run only if there is an old value. On
    /// update, a broken rule is ignored if its value has not changed.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let history = History { current: old, parent: None, root: true };
        let budget = Budget::new(Instant::now());
        self.visit(self.schema.id(), "", object, old, &history, &budget, &mut errors);
        errors
    }

    /// The errors of defaults that break the rules of their own node.
    fn defaults(&self, at: NodeId, path: &str) -> Vec<FieldError> {
        let node = &self.schema.nodes()[at as usize];
        let mut errors = Vec::new();
        if let Some(default) = node.default.as_ref().filter(|_| self.paths.contains(&at)) {
            let none = History { current: None, parent: None, root: false };
            let field = child(path, "default");
            let budget = Budget::new(Instant::now());
            self.visit(at, &field, default, Some(default), &none, &budget, &mut errors);
        }
        if let Some(items) = node.items {
            errors.extend(self.defaults(items, &child(path, "items")));
        }
        for (name, &at) in &node.properties {
            errors.extend(self.defaults(at, &keyed(&child(path, "properties"), name)));
        }
        errors
    }

    #[allow(clippy::too_many_arguments)]
    fn visit(
        &self,
        at: NodeId,
        path: &str,
        value: &Value,
        old: Option<&Value>,
        history: &History<'_>,
        budget: &Budget,
        errors: &mut Vec<FieldError>,
    ) {
        if value.is_null() || !self.paths.contains(&at) || budget.exhausted() {
            return;
        }
        let node = &self.schema.nodes()[at as usize];
        if let Some(rules) = self.rules.get(&at) {
            let unchanged = history.unchanged(value);
            let old = old.filter(|old| !old.is_null());
            let run = Run { rules: self, node, at, path, value, old, budget };
            FUNCTIONS.with(|functions| run.all(rules, functions, unchanged, errors));
        }
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    let old = old.and_then(|old| old.get(name));
                    let history = history.member(name);
                    if let Some(&at) = node.properties.get(name) {
                        self.visit(at, &child(path, name), value, old, &history, budget, errors);
                    } else if let Some(at) = node.additional {
                        self.visit(at, &keyed(path, name), value, old, &history, budget, errors);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                for (i, value) in list.iter().enumerate() {
                    let old = old.and_then(|old| counterpart(node, old, value));
                    let history = history.item(node, value);
                    self.visit(items, &indexed(path, i), value, old, &history, budget, errors);
                }
            }
            _ => {}
        }
    }
}

/// The old value of a node, by which the walk knows whether the node changed.
struct History<'a> {
    /// The old value of this node, if it can be found.
    current: Option<&'a Value>,
    /// Whether the nearest ancestor with an old value is unchanged.
    parent: Option<bool>,
    root: bool,
}

impl<'a> History<'a> {
    fn unchanged(&self, value: &Value) -> bool {
        match self.current {
            Some(old) => old == value,
            None => self.parent.unwrap_or(false),
        }
    }

    fn member(&self, name: &str) -> History<'a> {
        let Some(old) = self.current else {
            return History { current: None, parent: self.parent, root: false };
        };
        if self.root && matches!(name, "apiVersion" | "kind") {
            return History { current: None, parent: None, root: false };
        }
        History { current: old.get(name), parent: Some(false), root: false }
    }

    fn item(&self, node: &Node, value: &Value) -> History<'a> {
        let Some(old) = self.current else {
            return History { current: None, parent: self.parent, root: false };
        };
        // Items of a list without keys have no old value of their own. The list is checked at its own node, so here an
        // equal item anywhere in the old list is enough.
        let whole = !matches!(node.list_type, Some(ListType::Map(_)))
            && old.as_array().is_some_and(|list| list.contains(value));
        History { current: counterpart(node, old, value), parent: Some(whole), root: false }
    }
}

struct Run<'a> {
    rules: &'a CelRules,
    node: &'a Node,
    at: NodeId,
    path: &'a str,
    value: &'a Value,
    old: Option<&'a Value>,
    budget: &'a Budget,
}

impl Run<'_> {
    fn all(
        &self,
        rules: &[Rule],
        functions: &Context<'_>,
        unchanged: bool,
        errors: &mut Vec<FieldError>,
    ) {
        let resource = self.node.resource_root || self.node.embedded;
        let convert = |value: &Value| to_cel(&self.rules.schema.to(self.at), value, resource);
        let mut scope = functions.new_inner_scope();
        scope.add_variable_from_value("self", convert(self.value));
        let old = self.old.filter(|_| rules.iter().any(|rule| rule.uses_old)).map(convert);
        for rule in rules {
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let mut scope = scope.new_inner_scope();
            match (&old, rule.optional_old) {
                (Some(old), true) => {
                    let some = OptionalValue::of(old.clone());
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(some)));
                }
                (None, true) => {
                    let none = OptionalValue::none();
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(none)));
                }
                (Some(old), false) => scope.add_variable_from_value("oldSelf", old.clone()),
                (None, false) => {}
            }
            let result = match self.budget.run(|| evaluate(&rule.program, &scope)) {
                Ok(result) => result,
                Err(exceeded) => {
                    errors.push(self.failed(match exceeded {
                        Exceeded::Rule => format!(
                            "'operation cancelled: actual cost limit exceeded': no further validation \
                             rules will be run due to call cost exceeds limit for rule: {}",
                            rule.shown()
                        ),
                        Exceeded::Object => "validation failed due to running out of cost budget, no \
                                             further validation rules will be run"
                            .to_owned(),
                    }));
                    return;
                }
            };
            match result {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) if unchanged && !rule.uses_old => {}
                Ok(Cel::Bool(false)) => errors.push(self.broken(rule, &scope)),
                Ok(_) => {
                    let detail = format!("rule did not evaluate to a bool: {}", rule.shown());
                    errors.push(self.failed(detail));
                }
                Err(Failure::Overload) => errors.push(self.failed(format!(
                    "'no such overload': call arguments did not match a supported operator, function \
                     or macro signature for rule: {}",
                    rule.shown()
                ))),
                Err(Failure::Other(why)) => {
                    errors.push(self.failed(format!("{why} evaluating rule: {}", rule.shown())));
                }
            }
        }
    }

    fn failed(&self, detail: String) -> FieldError {
        let type_ = self.node.type_.map_or("", Type::name);
        FieldError {
            kind: FieldErrorKind::Invalid,
            field: self.field(""),
            value: Some(go::quote_text(type_)),
            detail,
        }
    }

    fn field(&self, below: &str) -> String {
        match (self.path, below) {
            ("", "") => "<nil>".to_owned(),
            (path, "") => path.to_owned(),
            (path, below) if below.starts_with('[') => format!("{path}{below}"),
            (path, below) => child(path, below),
        }
    }

    fn broken(&self, rule: &Rule, scope: &Context<'_>) -> FieldError {
        // A message expression that costs too much is not evaluated; the next rule finds the budget spent.
        let make = |program| self.budget.run(|| evaluate(program, scope)).ok()?.ok();
        let made = rule.message_program.as_ref().and_then(make);
        let made = made.and_then(|value| match value {
            Cel::String(text) => Some(text.trim().to_owned()),
            _ => None,
        });
        let usable =
            |text: &String| !text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n');
        let detail = made.filter(usable).unwrap_or_else(|| match rule.message.as_str() {
            "" => format!("failed rule: {}", rule.text),
            message => message.to_owned(),
        });
        let whole = matches!(self.node.type_, Some(Type::Object | Type::Array));
        let value = (!whole).then(|| go::quote(self.value));
        let field = self.field(&rule.field);
        let (kind, value, detail) = match rule.reason.as_str() {
            "FieldValueForbidden" => (FieldErrorKind::Forbidden, None, detail),
            "FieldValueRequired" => (FieldErrorKind::Required, None, detail),
            "FieldValueDuplicate" => (FieldErrorKind::Duplicate, value, String::new()),
            _ => (FieldErrorKind::Invalid, value, detail),
        };
        FieldError { kind, field, value, detail }
    }
}

impl Rule {
    fn shown(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

struct Compiler<'a> {
    schema: &'a Schema,
    rules: HashMap<NodeId, Vec<Rule>>,
    paths: HashSet<NodeId>,
    errors: Vec<FieldError>,
}

impl Compiler<'_> {
    /// Compiles the rules at and below `at`. `loose` is the list whose items have no old values. Returns whether there
    /// are rules.
    fn visit(
        &mut self,
        schema: &Value,
        at: NodeId,
        path: &str,
        resource: bool,
        loose: Option<&str>,
    ) -> bool {
        let node = &self.schema.nodes()[at as usize];
        let resource = resource || node.embedded;
        let mut any = false;
        for (name, &at) in &node.properties {
            let part = &schema["properties"][name];
            let path = keyed(&child(path, "properties"), name);
            any |= self.visit(part, at, &path, false, loose);
        }
        if let Some(at) = node.additional {
            let part = &schema["additionalProperties"];
            any |= self.visit(part, at, &child(path, "additionalProperties"), false, loose);
        }
        if let Some(at) = node.items {
            let correlated = matches!(node.list_type, Some(ListType::Map(_)));
            let loose = if correlated { loose } else { loose.or(Some(path)) };
            any |= self.visit(&schema["items"], at, &child(path, "items"), false, loose);
        }
        if let Some(list) = schema.get("x-kubernetes-validations").and_then(Value::as_array)
            && !list.is_empty()
        {
            any = true;
            let rules = self.compile(list, at, path, resource, loose);
            self.rules.insert(at, rules);
        }
        if any {
            self.paths.insert(at);
        }
        any
    }

    fn compile(
        &mut self,
        list: &[Value],
        at: NodeId,
        path: &str,
        resource: bool,
        loose: Option<&str>,
    ) -> Vec<Rule> {
        let schema = self.schema.to(at);
        let place =
            |i: usize, key: &str| child(&indexed(&child(path, "x-kubernetes-validations"), i), key);
        let before = self.errors.len();
        let mut fields = Vec::new();
        for (i, rule) in list.iter().enumerate() {
            let text = rule["fieldPath"].as_str().unwrap_or_default();
            match field_path(text, &schema, true) {
                Ok((field, _)) => fields.push(field),
                Err(_) => self.errors.push(invalid(
                    place(i, "fieldPath"),
                    go::quote_text(text),
                    "must be a valid path".into(),
                )),
            }
        }
        if self.errors.len() > before {
            return Vec::new();
        }
        let mut rules = Vec::new();
        for ((i, raw), field) in list.iter().enumerate().zip(fields) {
            match rule(raw, &schema, resource, field) {
                Ok(rule) => {
                    if let (true, Some(list)) = (rule.uses_old, loose) {
                        let detail = format!(
                            "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                             {list}"
                        );
                        let value = go::quote(&raw["rule"]);
                        self.errors.push(invalid(place(i, "rule"), value, detail));
                    }
                    if !rule.uses_old
                        && let Some(optional) = raw.get("optionalOldSelf")
                    {
                        let detail = "may not be set if oldSelf is not used in rule".to_owned();
                        let value = go::quote(optional);
                        self.errors.push(invalid(place(i, "optionalOldSelf"), value, detail));
                    }
                    rules.push(rule);
                }
                Err((key, why)) => self.errors.push(invalid(place(i, key), shown(raw), why)),
            }
        }
        rules
    }
}

fn rule(
    raw: &Value,
    schema: &Schema,
    resource: bool,
    field: String,
) -> Result<Rule, (&'static str, String)> {
    let text = |key: &str| raw[key].as_str().unwrap_or_default().trim().to_owned();
    let optional_old = raw["optionalOldSelf"] == Value::Bool(true);
    let mut program = parse(raw["rule"].as_str().unwrap_or_default())
        .map_err(|why| ("rule", format!("compilation failed: {why}")))?;
    let found = cel_check::check(&program, schema, resource, optional_old, Wanted::Bool)
        .map_err(|why| ("rule", why))?;
    meter(&mut program);
    let message_program = match raw["messageExpression"].as_str() {
        None | Some("") => None,
        Some(expression) => {
            let mut program = parse(expression).map_err(|why| {
                ("messageExpression", format!("messageExpression compilation failed: {why}"))
            })?;
            cel_check::check(&program, schema, resource, optional_old, Wanted::Text)
                .map_err(|why| ("messageExpression", why))?;
            meter(&mut program);
            Some(program)
        }
    };
    Ok(Rule {
        program,
        uses_old: found.uses_old,
        optional_old,
        message_program,
        text: text("rule"),
        message: text("message"),
        reason: text("reason"),
        field,
    })
}

fn invalid(field: String, value: String, detail: String) -> FieldError {
    FieldError { kind: FieldErrorKind::Invalid, field, value: Some(value), detail }
}

/// A rule as kube-apiserver's messages show it.
fn shown(raw: &Value) -> String {
    let text = |key: &str| go::json(&raw[key].as_str().unwrap_or_default().into());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\
         \"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        raw["reason"],
        text("fieldPath"),
        raw["optionalOldSelf"]
    )
}

#[cfg(test)]
#[path = "cel_tests.rs"]
mod tests;

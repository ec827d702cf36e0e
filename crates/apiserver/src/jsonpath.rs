//! The part of Kubernetes' JSON paths that printer columns, selectable fields and the scale
//! subresource use: members, indexes, `[*]` and filters. Other syntax is refused by name, not
//! ignored. CustomResourceDefinitions and tables use it; it does no I/O.

use serde_json::Value;
use std::cmp::Ordering;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(String),
    /// A negative index counts from the end.
    Index(i64),
    All,
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// None: tests whether the left side exists.
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// `@.type`
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`, with or without braces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = text.trim();
        let path = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or(path);
        let path = path.strip_prefix('$').unwrap_or(path);
        let mut parser = Parser { rest: path, in_filter: false };
        let steps = parser.steps().map_err(|why| format!("invalid JSON path {text:?}: {why}"))?;
        match parser.rest {
            "" if !steps.is_empty() => Ok(Self { steps }),
            "" => Err(format!("invalid JSON path {text:?}: it names nothing")),
            rest => Err(format!("invalid JSON path {text:?}: unexpected {rest:?}")),
        }
    }

    /// The values at the path, in order. A missing member on the way gives none.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }

    /// The members of the path, if it consists of members only (`.spec.replicas`).
    pub fn members(&self) -> Option<Vec<&str>> {
        let mut members = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let Step::Member(name) = step else { return None };
            members.push(name.as_str());
        }
        Some(members)
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Member(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Step::Index(at), Value::Array(list)) => {
                let at = if *at < 0 { *at + to_i64(list.len()) } else { *at };
                usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
            }
            (Step::All, Value::Array(list)) => list.iter().collect(),
            (Step::All, Value::Object(map)) => map.values().collect(),
            (Step::Filter(filter), Value::Array(list)) => {
                list.iter().filter(|item| filter.holds(item)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let left = self.left.value(item);
        let Some((comparison, right)) = &self.comparison else { return left.is_some() };
        let (Some(left), Some(right)) = (left, right.value(item)) else { return false };
        match comparison {
            Comparison::Equal => equal(left, right),
            Comparison::NotEqual => !equal(left, right),
            Comparison::Less => order(left, right) == Some(Ordering::Less),
            Comparison::Greater => order(left, right) == Some(Ordering::Greater),
            Comparison::LessOrEqual => order(left, right).is_some_and(Ordering::is_le),
            Comparison::GreaterOrEqual => order(left, right).is_some_and(Ordering::is_ge),
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Operand::Literal(value) => Some(value),
            Operand::Path(path) => path.find(item).into_iter().next(),
        }
    }
}

fn equal(left: &Value, right: &Value) -> bool {
    left == right || order(left, right) == Some(Ordering::Equal)
}

/// Numbers compare by size, texts by bytes. Other values do not compare.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// The unread text.
struct Parser<'a> {
    rest: &'a str,
    in_filter: bool,
}

impl Parser<'_> {
    /// Steps, up to the first character that does not begin a step.
    fn steps(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            if self.rest.starts_with("..") {
                return Err("recursive descent (..) is not supported".to_owned());
            }
            if self.take(".") {
                // `.[0]` is the same as `[0]`.
                if !self.rest.starts_with('[') {
                    steps.push(self.member()?);
                }
            } else if self.take("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(steps);
            }
        }
    }

    /// A bare name. `\` escapes the next character.
    fn member(&mut self) -> Result<Step, String> {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => match chars.next() {
                    Some((_, c)) => name.push(c),
                    None => return Err("it ends with a backslash".to_owned()),
                },
                Some((at, c)) if " .,[]$@{}()<>=!'\"".contains(c) => break at,
                Some((_, c)) => name.push(c),
                None => break self.rest.len(),
            }
        };
        self.rest = &self.rest[end..];
        match name.as_str() {
            "" => Err("a name is missing after '.'".to_owned()),
            "*" => Ok(Step::All),
            _ => Ok(Step::Member(name)),
        }
    }

    /// The content of brackets, and the closing bracket.
    fn bracket(&mut self) -> Result<Step, String> {
        self.space();
        let step = if self.take("?(") {
            // Otherwise a long path could recurse deeply.
            if self.in_filter {
                return Err("filters inside filters are not supported".to_owned());
            }
            self.in_filter = true;
            let filter = self.filter()?;
            self.in_filter = false;
            self.space();
            self.expect(")")?;
            Step::Filter(filter)
        } else if self.rest.starts_with(['\'', '"']) {
            Step::Member(self.quoted()?)
        } else if self.take("*") {
            Step::All
        } else {
            let end = self.rest.find([']', ',', ':']).ok_or("']' is missing")?;
            let number = self.rest[..end].trim();
            if self.rest[end..].starts_with(':') {
                return Err("slices ([a:b]) are not supported".to_owned());
            }
            let index = number.parse().map_err(|_| format!("{number:?} is not an index"))?;
            self.rest = &self.rest[end..];
            Step::Index(index)
        };
        self.space();
        if self.rest.starts_with(',') {
            return Err("unions ([a,b]) are not supported".to_owned());
        }
        self.expect("]")?;
        Ok(step)
    }

    fn filter(&mut self) -> Result<Filter, String> {
        let left = self.operand()?;
        self.space();
        for (text, comparison) in [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ] {
            if self.take(text) {
                return Ok(Filter { left, comparison: Some((comparison, self.operand()?)) });
            }
        }
        if matches!(left, Operand::Literal(_)) {
            return Err("a filter must compare or name a path".to_owned());
        }
        Ok(Filter { left, comparison: None })
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.space();
        if self.take("@") {
            return Ok(Operand::Path(JsonPath { steps: self.steps()? }));
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(Operand::Literal(Value::String(self.quoted()?)));
        }
        let end = self.rest.find([' ', ')', ']', '=', '!', '<', '>']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let value = serde_json::from_str::<Value>(word)
            .ok()
            .filter(|value| value.is_number() || value.is_boolean())
            .ok_or_else(|| {
                format!("{word:?} in a filter is neither a path, a text nor a number")
            })?;
        self.rest = rest;
        Ok(Operand::Literal(value))
    }

    /// A text in single or double quotes. `\` escapes the next character.
    fn quoted(&mut self) -> Result<String, String> {
        let mut chars = self.rest.char_indices();
        let quote = chars.next().map(|(_, quote)| quote);
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                c if Some(c) == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err("a closing quote is missing".to_owned())
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.take(text) { Ok(()) } else { Err(format!("'{text}' is missing")) }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": {"labels": {"a.b/c": "x", "d-e": "y"}, "name": "n"},
            "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 443, "tls": true}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1},
                {"type": "Other", "status": "False", "n": 2},
            ]},
            "null": null,
        })
    }

    #[test]
    fn paths_lead_to_values() {
        for (path, expected) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            ("$.spec.replicas", json!([3])),
            ("['spec']['replicas']", json!([3])),
            (".metadata.labels['a.b/c']", json!(["x"])),
            (".metadata.labels[\"a.b/c\"]", json!(["x"])),
            (r".metadata.labels.a\.b/c", json!(["x"])),
            (r".metadata.labels['a\.b/c']", json!(["x"])),
            (".metadata.labels.d-e", json!(["y"])),
            (".spec.ports[0].port", json!([80])),
            (".spec.ports[-1].port", json!([443])),
            (".spec.ports[ 1 ].port", json!([443])),
            (".spec.ports[*].port", json!([80, 443])),
            (".spec.ports.*.port", json!([80, 443])),
            (".metadata.labels.*", json!(["x", "y"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type != 'Ready')].status", json!(["False"])),
            (".status.conditions[?(@.n>=2)].type", json!(["Other"])),
            (".status.conditions[?(@.n<1.5)].type", json!(["Ready"])),
            (".status.conditions[?('Ready'==@.type)].n", json!([1])),
            (".spec.ports[?(@.tls)].port", json!([443])),
            (".spec.ports[?(@.tls==true)].port", json!([443])),
            (".spec.ports[?(@.gone==1)].port", json!([])),
            (".null", json!([null])),
            (".gone.too", json!([])),
            (".spec.ports.port", json!([])),
            (".spec[0]", json!([])),
            (".spec.ports[7]", json!([])),
            (".spec.ports[-7]", json!([])),
        ] {
            let object = object();
            let parsed = JsonPath::parse(path).unwrap();
            assert_eq!(json!(parsed.find(&object)), expected, "{path}");
        }
    }

    #[test]
    fn plain_paths_name_their_members() {
        let members = |path| JsonPath::parse(path).unwrap().members().map(|m| m.join("/"));
        assert_eq!(members(".spec.replicas"), Some("spec/replicas".to_owned()));
        assert_eq!(members(".spec['a.b']"), Some("spec/a.b".to_owned()));
        assert_eq!(members(".spec[0]"), None);
    }

    #[test]
    fn what_is_not_implemented_is_refused_by_name() {
        for (path, why) in [
            ("", "it names nothing"),
            ("spec", "unexpected \"spec\""),
            (".", "a name is missing after '.'"),
            (".spec.", "a name is missing after '.'"),
            ("..name", "recursive descent (..) is not supported"),
            (".spec..name", "recursive descent (..) is not supported"),
            (".spec[0,1]", "unions ([a,b]) are not supported"),
            (".spec['a','b']", "unions ([a,b]) are not supported"),
            (".spec[0:2]", "slices ([a:b]) are not supported"),
            (".spec[]", "\"\" is not an index"),
            (".spec[x]", "\"x\" is not an index"),
            (".spec[0", "']' is missing"),
            (".spec['a", "a closing quote is missing"),
            (".spec[?(@.a==b)]", "\"b\" in a filter is neither a path, a text nor a number"),
            (".spec[?(1)]", "a filter must compare or name a path"),
            (".spec[?(@.a==1]", "')' is missing"),
            (".spec[?(@[')'][?(@.b)])]", "filters inside filters are not supported"),
            (".spec[?(@.a[?(@.b)])]", "filters inside filters are not supported"),
            (r".spec\", "it ends with a backslash"),
            (".a b", "unexpected \" b\""),
        ] {
            let error = JsonPath::parse(path).unwrap_err();
            assert_eq!(error, format!("invalid JSON path {path:?}: {why}"));
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(
            any in any::<String>(),
            near in r#"(\.|\[|\]|\?\(|\)|@|spec|ports|[0-9*'"\\=<:,é -]){0,20}"#,
        ) {
            for text in [any, near] {
                if let Ok(path) = JsonPath::parse(&text) {
                    let _ = path.find(&object());
                }
            }
        }
    }
}

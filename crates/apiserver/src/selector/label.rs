//! Label selectors, from a query string or from a `metav1.LabelSelector`. It does no I/O.

use super::lexer::{Lexer, Token};
use crate::names::{is_label_value, is_qualified_name};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// Required labels of an object. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    nothing: bool,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// The operator.
    pub operator: Operator,
    /// Sorted, without duplicates. One value for comparisons, none for existence.
    pub values: Vec<String>,
}

/// How a label relates to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equals,
    /// `==`, the same as `=`
    DoubleEquals,
    /// `!=`, also true if the label is absent
    NotEquals,
    /// `in (…)`
    In,
    /// `notin (…)`, also true if the label is absent
    NotIn,
    /// the key alone
    Exists,
    /// `!key`
    DoesNotExist,
    /// `>`, as integers
    GreaterThan,
    /// `<`, as integers
    LessThan,
}

impl LabelSelector {
    /// Reads a selector from a query string.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lexer = Lexer::new(text);
        let mut requirements = Vec::new();
        loop {
            match lexer.peek() {
                Token::Word(_) | Token::Not => {}
                Token::End if requirements.is_empty() => break,
                other if requirements.is_empty() => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: identifier after ','",
                        other.text()
                    ));
                }
            }
            let requirement = requirement(&mut lexer)
                .map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match lexer.next() {
                Token::End => break,
                Token::Comma => {}
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
        Ok(Self::of(requirements))
    }

    /// Reads an object's selector (`matchLabels`, `matchExpressions`). Null selects nothing; an
    /// empty one selects everything.
    pub fn from_label_selector(selector: &Value) -> Result<Self, String> {
        if selector.is_null() {
            return Ok(Self { requirements: Vec::new(), nothing: true });
        }
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(LabelRequirement::new(key, Operator::Equals, values)?);
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let key = expression["key"].as_str().unwrap_or_default();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(LabelRequirement::new(key, operator, values)?);
        }
        Ok(Self::of(requirements))
    }

    fn of(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// The conditions, sorted by key. All must hold.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether it selects an object with these labels.
    pub fn matches<'a>(&self, labels: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(labels(&r.key)))
    }

    /// Whether it selects this object.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.matches(|key| labels?.get(key)?.as_str())
    }

    /// Whether it selects the object with this JSON. It reads the bytes only up to the labels. Bytes
    /// that are not JSON have no labels.
    pub fn matches_bytes(&self, object: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut labels = Vec::new();
        let mut json = serde_json::Deserializer::from_slice(object);
        // The search stops with an error on purpose when it has found the labels.
        let _ = Seek { path: &["metadata", "labels"], labels: &mut labels }.deserialize(&mut json);
        self.matches(|key| {
            labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_ref())
        })
    }
}

impl LabelRequirement {
    /// A condition, or why it is invalid.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let wrong = is_qualified_name(key);
        if !wrong.is_empty() {
            errors.push(format!("key: Invalid value: {key:?}: {}", wrong.join("; ")));
        }
        let count = values.len();
        let set =
            format!("[{}]", values.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(","));
        let mut set_error = |why: &str| errors.push(format!("values: Invalid value: {set}: {why}"));
        match operator {
            Operator::In | Operator::NotIn if count == 0 => {
                set_error("for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if count != 1 => {
                set_error("exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if count != 0 => {
                set_error("values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan if count != 1 => {
                set_error("for 'Gt', 'Lt' operators, exactly one value is required");
            }
            _ => {}
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (at, value) in values.iter().enumerate().filter(|(_, v)| integer(v).is_none()) {
                errors.push(format!(
                    "values[{at}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value \
                     must be an integer"
                ));
            }
        }
        for (at, value) in values.iter().enumerate() {
            let wrong = is_label_value(value);
            if !wrong.is_empty() {
                errors.push(format!(
                    "values[{at}][{key}]: Invalid value: {value:?}: {}",
                    wrong.join("; ")
                ));
            }
        }
        match errors.len() {
            0 => {
                let values = values.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
                Ok(Self { key: key.to_owned(), operator, values })
            }
            1 => Err(errors.remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }

    /// Whether the condition holds for the label's value, or for its absence.
    pub fn matches(&self, label: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => label.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let limit = self.values.first().and_then(|value| integer(value));
                match (label.and_then(integer), limit) {
                    (Some(value), Some(limit)) if self.operator == Operator::LessThan => {
                        value < limit
                    }
                    (Some(value), Some(limit)) => value > limit,
                    _ => false,
                }
            }
        }
    }
}

/// An integer as Go's ParseInt reads it: an optional sign, no spaces.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// One requirement, up to the comma or the end.
fn requirement(lexer: &mut Lexer<'_>) -> Result<LabelRequirement, String> {
    let mut token = lexer.next();
    let absent = token == Token::Not;
    if absent {
        token = lexer.next();
    }
    let Token::Word(key) = token else {
        return Err(format!("found '{}', expected: identifier", token.text()));
    };
    let wrong = is_qualified_name(key);
    if !wrong.is_empty() {
        return Err(format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; ")));
    }
    if absent {
        return LabelRequirement::new(key, Operator::DoesNotExist, Vec::new());
    }
    if matches!(lexer.peek(), Token::End | Token::Comma) {
        return LabelRequirement::new(key, Operator::Exists, Vec::new());
    }
    let operator = match lexer.next() {
        Token::Word("in") => Operator::In,
        Token::Word("notin") => Operator::NotIn,
        Token::Equals => Operator::Equals,
        Token::DoubleEquals => Operator::DoubleEquals,
        Token::NotEquals => Operator::NotEquals,
        Token::Greater => Operator::GreaterThan,
        Token::Less => Operator::LessThan,
        other => {
            return Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.text()
            ));
        }
    };
    let values = match operator {
        Operator::In | Operator::NotIn => value_set(lexer)?,
        _ => vec![exact_value(lexer)?],
    };
    LabelRequirement::new(key, operator, values)
}

/// `(a,b)`. An empty place is an empty value.
fn value_set(lexer: &mut Lexer<'_>) -> Result<Vec<String>, String> {
    let token = lexer.next();
    if token != Token::Open {
        return Err(format!("found '{}' expected: '('", token.text()));
    }
    let first = lexer.peek();
    match first {
        Token::Close => {
            lexer.next();
            return Ok(vec![String::new()]);
        }
        Token::Word(_) | Token::Comma => {}
        other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
    }
    let mut values = BTreeSet::new();
    loop {
        match lexer.next() {
            Token::Word(value) => {
                values.insert(value.to_owned());
                match lexer.peek() {
                    Token::Comma => {}
                    Token::Close => break,
                    other => {
                        return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                    }
                }
            }
            Token::Comma => {
                let next = lexer.peek();
                if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                    values.insert(String::new());
                }
                if next == Token::Close {
                    break;
                }
            }
            other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
        }
    }
    lexer.next();
    Ok(values.into_iter().collect())
}

/// The value after `=`, `==` or `!=`. Nothing means the empty value.
fn exact_value(lexer: &mut Lexer<'_>) -> Result<String, String> {
    match lexer.peek() {
        Token::End | Token::Comma => Ok(String::new()),
        Token::Word(value) => {
            lexer.next();
            Ok(value.to_owned())
        }
        other => Err(format!("found '{}', expected: identifier", other.text())),
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

type Labels<'de> = Vec<(Cow<'de, str>, Cow<'de, str>)>;

/// Follows a path of members, collects the strings of the object at its end, and stops.
struct Seek<'s, 'de> {
    path: &'s [&'s str],
    labels: &'s mut Labels<'de>,
}

impl<'de> DeserializeSeed<'de> for Seek<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((member, path)) = self.path.split_first() else {
            while let Some((Text(key), Text(value))) = map.next_entry()? {
                self.labels.push((key, value));
            }
            return Ok(());
        };
        while let Some(Text(key)) = map.next_key()? {
            if key == *member {
                map.next_value_seed(Seek { path, labels: self.labels })?;
                return Err(A::Error::custom("found"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// A string that borrows from the input if possible.
struct Text<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;

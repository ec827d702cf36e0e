//! Field selectors: a field at a JSON path equals a value, or does not. It does no I/O.

use serde_json::Value;
use std::fmt;

/// Required values of an object's fields. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One condition on one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldRequirement {
    /// The path, such as `metadata.name`.
    pub field: String,
    /// Whether the field must equal the value. False: it must differ.
    pub equal: bool,
    /// The value as text. Empty also means an absent field.
    pub value: String,
}

impl FieldSelector {
    /// Reads a selector from a query string.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = split(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let unreadable = || format!("invalid selector: '{text}'; can't understand '{term}'");
            let (field, equal, value) = split_term(term).ok_or_else(unreadable)?;
            let value = unescape(value)?;
            requirements.push(FieldRequirement { field: field.to_owned(), equal, value });
        }
        // Errors name the first term as written. The parsed requirements are sorted, so that two
        // spellings of one selector are equal.
        requirements.sort_by_cached_key(ToString::to_string);
        Ok(Self { requirements })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions. All must hold.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that a field must have, if exactly one is required.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }

    /// Refuses fields other than `metadata.name`, `metadata.namespace` and those allowed.
    pub fn check(&self, allowed: &[&str]) -> Result<(), String> {
        match self.unknown(allowed) {
            None => Ok(()),
            Some(field) => Err(format!("field label not supported: {field}")),
        }
    }

    /// As [`Self::check`] with no other fields, in kube-apiserver's words for built-in kinds without
    /// selectable fields.
    pub fn check_metadata_only(&self) -> Result<(), String> {
        match self.unknown(&[]) {
            None => Ok(()),
            Some(field) => Err(format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \
                 \"metadata.namespace\""
            )),
        }
    }

    fn unknown(&self, allowed: &[&str]) -> Option<&str> {
        let known = |field: &str| {
            field == "metadata.name" || field == "metadata.namespace" || allowed.contains(&field)
        };
        self.requirements.iter().map(|r| r.field.as_str()).find(|field| !known(field))
    }

    /// Whether it selects this object.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_with(object, |_| None)
    }

    /// Whether it selects this object. `special` gives the values of fields that are not at their
    /// paths.
    pub fn matches_with(&self, object: &Value, special: impl Fn(&str) -> Option<String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let field = &requirement.field;
            let value = special(field).unwrap_or_else(|| value_of(object, field));
            (value == requirement.value) == requirement.equal
        })
    }
}

/// The text of the scalar at a path. Empty: there is none.
fn value_of(object: &Value, path: &str) -> String {
    match path.split('.').try_fold(object, |value, member| value.get(member)) {
        Some(Value::String(text)) => text.clone(),
        Some(scalar @ (Value::Bool(_) | Value::Number(_))) => scalar.to_string(),
        _ => String::new(),
    }
}

/// The terms between unescaped commas.
fn split(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The field, whether it must be equal, and the escaped value. The first operator counts.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let (field, rest) = (&term[..at], &term[at + 1..]);
    Some(match field.strip_suffix('!') {
        Some(field) => (field, false, rest),
        None => (field, true, rest.strip_prefix('=').unwrap_or(rest)),
    })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => value.push(c),
        }
    }
    Ok(value)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        write!(f, "{}{}{value}", self.field, if self.equal { "=" } else { "!=" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn one(field: &str, equal: bool, value: &str) -> FieldRequirement {
        FieldRequirement { field: field.into(), equal, value: value.into() }
    }

    #[test]
    fn the_three_operators_and_the_escapes_are_read() {
        for (text, expected) in [
            ("", vec![]),
            (",", vec![]),
            ("a=b", vec![one("a", true, "b")]),
            ("a==b", vec![one("a", true, "b")]),
            ("a!=b", vec![one("a", false, "b")]),
            ("b=1,a=", vec![one("a", true, ""), one("b", true, "1")]),
            (r"a=b\,c\=d\\e", vec![one("a", true, r"b,c=d\e")]),
            ("=x", vec![one("", true, "x")]),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().requirements(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_quoted() {
        for (text, expected) in [
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn only_the_fields_of_the_kind_may_be_named() {
        let selector =
            FieldSelector::parse("metadata.name=a,metadata.namespace=b,spec.x=1").unwrap();
        assert_eq!(selector.check(&["spec.x"]), Ok(()));
        assert_eq!(selector.check(&[]), Err("field label not supported: spec.x".to_owned()));
        assert_eq!(
            selector.check_metadata_only(),
            Err("\"spec.x\" is not a known field selector: only \"metadata.name\", \
                 \"metadata.namespace\""
                .to_owned())
        );
        assert_eq!(selector.exact("metadata.name"), Some("a"));
    }

    #[test]
    fn scalars_compare_as_text_and_what_is_absent_is_empty() {
        let object =
            json!({"metadata": {"name": "n"}, "spec": {"on": true, "count": 3, "map": {}}});
        for (text, expected) in [
            ("metadata.name=n", true),
            ("metadata.name!=n", false),
            ("spec.on=true,spec.count=3", true),
            ("spec.gone=,spec.map=,a.b.c=", true),
            ("spec.gone!=", false),
            ("spec.gone!=x", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn two_spellings_of_one_selector_are_equal() {
        let parse = |text| FieldSelector::parse(text).unwrap();
        assert_eq!(parse(r"a=\=,a==x"), parse(r"a=x,a==\="));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = FieldSelector::parse(&text);
        }

        #[test]
        fn what_was_read_reads_the_same_again(text in r"([a-c.!]{1,3}(=|==|!=)([xy]|\\[,=\\]){0,3},?){0,4}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
            }
        }

        #[test]
        fn any_value_can_be_asked_for(value in any::<String>()) {
            let requirement = one("spec.x", true, &value);
            let selector = FieldSelector::parse(&requirement.to_string()).unwrap();
            let object = json!({"spec": {"x": value}});
            prop_assert!(selector.matches(&object));
        }
    }
}

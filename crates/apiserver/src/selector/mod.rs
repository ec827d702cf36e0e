//! Label and field selectors: parsed once from the query string, then asked of many objects. They hold
//! no object and know no kind; which fields a kind offers is told to them. Called by list, watch and
//! deletecollection, and by the small controllers.

mod field;
mod label;
mod lexer;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelRequirement, LabelSelector, Operator};

const KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
                         and end with an alphanumeric character";

/// What is wrong with a label key; nothing if it is one.
fn check_key(key: &str) -> Vec<String> {
    let rule = format!(
        "{NAME_RULE} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY_FORMAT}')"
    );
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes".to_owned());
                }
                if !is_subdomain(prefix) {
                    errors.push(format!(
                        "prefix part a lowercase RFC 1123 subdomain must consist of lower case \
                         alphanumeric characters, '-' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '{SUBDOMAIN_FORMAT}')"
                    ));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        errors.push(format!("name part {rule}"));
    }
    errors
}

/// What is wrong with a label value; nothing if it is one.
fn check_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
             '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is '({KEY_FORMAT})?')"
        ));
    }
    errors
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
    })
}

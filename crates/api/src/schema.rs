//! Schemas of strings that several kinds use: DNS names, addresses, free text. Each is bounded in
//! length, because Kubernetes refuses rules over text without a bound. Called by the derives only.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A DNS subdomain in lower case.
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
/// A DNS label in lower case.
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
/// The name of a network interface, as the kernel takes it.
const INTERFACE: &str = "[A-Za-z0-9_][A-Za-z0-9_.@-]*";

/// The rule that a text matches a regular expression as a whole.
pub(crate) fn matches(pattern: &str) -> String {
    format!("self.matches('^({})$')", pattern.replace('\\', r"\\"))
}

/// A text that a user writes, and what is said when it does not match: words with an example, where a `pattern` would answer
/// with itself.
pub(crate) fn written(bounds: (u32, u32), pattern: &str, message: &str) -> Schema {
    let (shortest, longest) = bounds;
    let mut schema = json_schema!({ "type": "string", "maxLength": longest });
    if shortest > 0 {
        schema.insert("minLength".to_owned(), shortest.into());
    }
    rule(&mut schema, &matches(pattern), message);
    schema
}

/// Adds a rule to a schema.
pub(crate) fn rule(schema: &mut Schema, rule: &str, message: &str) {
    let all = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut);
    let new = json!({ "rule": rule, "message": message });
    match all {
        Some(all) => all.push(new),
        None => {
            schema.insert("x-kubernetes-validations".to_owned(), Value::Array(vec![new]));
        }
    }
}

const NAME_IN_WORDS: &str = "must be a name such as edge: lower-case letters, digits, '-' and '.', with a letter or digit at \
                             both ends and beside each '.'";

/// The name of a namespaced or cluster-scoped object that a user writes: a DNS subdomain.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    written((1, 253), SUBDOMAIN, NAME_IN_WORDS)
}

/// The same, or nothing.
pub(crate) fn object_name_or_empty(_: &mut SchemaGenerator) -> Schema {
    let message = format!("{NAME_IN_WORDS}; or empty");
    written((0, 253), &format!("({SUBDOMAIN})?"), &message)
}

/// The name of a namespace or of a Service that a user writes: a DNS label.
pub(crate) fn label_name(_: &mut SchemaGenerator) -> Schema {
    let message = "must be a name such as shop: lower-case letters, digits and '-', with a letter or digit at both ends";
    written((1, 63), LABEL, message)
}

/// A DNS domain that a user writes.
pub(crate) fn domain(_: &mut SchemaGenerator) -> Schema {
    let message = "must be a domain such as example.com: in lower case, without a dot at either end and without '*'; names \
                   below it are included";
    written((1, 253), SUBDOMAIN, message)
}

/// The name of an object that Bowline records. No user writes it, so its refusal needs no words.
pub(crate) fn recorded_name(_: &mut SchemaGenerator) -> Schema {
    recorded(253, SUBDOMAIN)
}

/// The name of a namespace or of a Service that Bowline records.
pub(crate) fn recorded_label(_: &mut SchemaGenerator) -> Schema {
    recorded(63, LABEL)
}

fn recorded(longest: u32, pattern: &str) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": longest,
        "pattern": format!("^{pattern}$"),
    })
}

/// A uid as API servers write it.
pub(crate) fn uid(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 128 })
}

/// Text for people.
pub(crate) fn message(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 32768 })
}

/// A machine-readable word, as in a condition.
pub(crate) fn reason(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[A-Za-z]([A-Za-z0-9_]*[A-Za-z0-9_])?$" })
}

/// One IPv4 or IPv6 address.
pub(crate) fn ip(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 45,
        "x-kubernetes-validations": [
            { "rule": "isIP(self)", "message": "must be an IPv4 or IPv6 address, such as 203.0.113.10" },
        ],
    })
}

/// At most sixteen different addresses.
pub(crate) fn ips(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": ip(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// At most one address of each family.
pub(crate) fn ip_per_family(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 2,
        "items": ip(generator),
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [
            {
                "rule": "self.filter(a, isIP(a) && ip(a).family() == 4).size() <= 1 && self.filter(a, isIP(a) && ip(a).family() == 6).size() <= 1",
                "message": "may hold at most one IPv4 and one IPv6 address",
            },
        ],
    })
}

/// The name of a network interface.
pub(crate) fn interface(_: &mut SchemaGenerator) -> Schema {
    let message = "must be the name of a network interface such as eth0: letters, digits, '_', '.', '@' and '-'";
    written((1, 15), INTERFACE, message)
}

/// A list of object names that a user writes, each once.
pub(crate) fn object_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": object_name(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// A list of object names that Bowline records, each once.
pub(crate) fn recorded_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": recorded_name(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// A point in time.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 64 })
}

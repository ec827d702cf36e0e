//! Schemas of strings that several kinds use: DNS names, addresses, free text. Each is bounded in
//! length, because Kubernetes refuses rules over text without a bound. Called by the derives only.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The name of a namespaced or cluster-scoped object: a DNS subdomain.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    })
}

/// The same, or nothing.
pub(crate) fn object_name_or_empty(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 253,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
    })
}

/// The name of a namespace or of a Service: a DNS label.
pub(crate) fn label_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
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

/// The name of a network interface, as the kernel takes it.
pub(crate) fn interface(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 15,
        "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$",
    })
}

/// A list of object names, each once.
pub(crate) fn object_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": object_name(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// A point in time.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 64 })
}

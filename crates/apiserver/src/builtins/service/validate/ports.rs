//! The validation of a Service's ports, alone and together. It does no I/O.

use super::super::super::fields::{Findings, PROTOCOLS, int, list, text};
use super::super::kind;
use crate::error::{FieldError, FieldErrorKind};
use crate::names;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn service_port<'a>(
    port: &'a Value,
    at: &str,
    name_required: bool,
    port_names: &mut BTreeSet<&'a str>,
    found: &mut Findings,
) {
    let name = text(port, "name");
    let field = format!("{at}.name");
    if name.is_empty() {
        if name_required {
            found.required(field, "");
        }
    } else {
        found.each(&field, name, names::is_dns1123_label(name));
        if !port_names.insert(name) {
            found.duplicate(field, name);
        }
    }
    let number = int(port, "port");
    found.each(&format!("{at}.port"), number, names::is_port_number(number));
    found.one_of(&format!("{at}.protocol"), text(port, "protocol"), PROTOCOLS);
    check_port(&port["targetPort"], &format!("{at}.targetPort"), found);
    if let Some(protocol) = port["appProtocol"].as_str() {
        found.each(&format!("{at}.appProtocol"), protocol, names::is_qualified_name(protocol));
    }
}

/// Validates a port given by number or name.
pub(in crate::builtins) fn check_port(port: &Value, field: &str, found: &mut Findings) {
    match port {
        Value::String(name) => found.each(field, name.as_str(), names::is_port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            found.each(field, number, names::is_port_number(number));
        }
    }
}

pub(super) fn port_numbers(object: &Value, found: &mut Findings) {
    let ports = list(&object["spec"], "ports");
    if kind(object) == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, port)| int(port, "nodePort") != 0) {
            found.forbidden(
                format!("spec.ports[{i}].nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate().filter(|(_, port)| int(port, "nodePort") != 0) {
        if !seen.insert((text(port, "protocol"), int(port, "nodePort"))) {
            found.duplicate(format!("spec.ports[{i}].nodePort"), int(port, "nodePort"));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (protocol, number) = (text(port, "protocol"), int(port, "port"));
        if !seen.insert((protocol, number)) {
            // kube-apiserver shows its internal form of a port here.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{number},\
                 \"TargetPort\":0,\"NodePort\":0}}"
            );
            found.push(FieldError {
                kind: FieldErrorKind::Duplicate,
                field: format!("spec.ports[{i}]"),
                value: Some(shown),
                detail: String::new(),
            });
        }
    }
}

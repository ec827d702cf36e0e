//! The rules of Ingress and IngressClass: defaults and validation. They are exactly those of
//! kube-apiserver, because Ingresses become load-balancer configuration. The write path calls them;
//! they do no I/O.

use super::default_class;
use super::fields::{
    Findings, child, default, has, int, items, list, member, omit_empty, set, text, texts,
};
use super::ip;
use super::service::{check_hostname, known_ips};
use crate::error::FieldError;
use crate::kind::Rules;
use crate::names;
use serde_json::{Value, json};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// The rules of Ingresses.
pub struct IngressRules;

impl Rules for IngressRules {
    fn default(&self, object: &mut Value) {
        let Some(spec) = child(object, "spec") else { return };
        for rule in items(spec, "rules") {
            omit_empty(rule, &["host"]);
            if let Some(http) = member(rule, "http") {
                items(http, "paths").for_each(|path| omit_empty(path, &["path"]));
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        set(object, "status", json!({"loadBalancer": {}}));
    }

    fn complete_create(&self, object: &mut Value, list: &dyn Fn(&str) -> Vec<Value>) {
        default_class::give(object, list);
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        spec(object, old, &mut found);
        let annotation = object["metadata"]["annotations"][CLASS_ANNOTATION].as_str();
        if let (Some(annotation), Some(class), None) =
            (annotation, object["spec"]["ingressClassName"].as_str(), old)
            && annotation != class
        {
            found.invalid(
                format!("annotations.{CLASS_ANNOTATION}"),
                annotation,
                "must match `ingressClassName` when both are specified",
            );
        }
        found.done()
    }

    fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut found = Findings::default();
        let known = known_ips(old);
        for (i, entry) in list(&object["status"]["loadBalancer"], "ingress").iter().enumerate() {
            let at = format!("status.loadBalancer.ingress[{i}]");
            let ip = text(entry, "ip");
            if !ip.is_empty() {
                found.extend(ip::check(&format!("{at}.ip"), ip, &known));
            }
            check_hostname(text(entry, "hostname"), &format!("{at}.hostname"), &mut found);
        }
        found.done()
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = has(&object["metadata"]["annotations"], CLASS_ANNOTATION);
        if old.is_none() && annotated && !has(&object["spec"], "ingressClassName") {
            return vec![format!(
                "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            )];
        }
        Vec::new()
    }
}

fn spec(object: &Value, old: Option<&Value>, found: &mut Findings) {
    let spec = &object["spec"];
    let rules = list(spec, "rules");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        found.invalid(
            "spec",
            spec["rules"].clone(),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if has(spec, "defaultBackend") {
        backend(&spec["defaultBackend"], "spec.defaultBackend", found);
    }
    let old_wildcards_were_unchecked = old.is_some_and(has_unchecked_wildcard);
    for (i, rule) in rules.iter().enumerate() {
        let at = format!("spec.rules[{i}]");
        let host = text(rule, "host");
        let wildcard = host.contains('*');
        check_host(host, &format!("{at}.host"), found);
        if has(rule, "http") && !(wildcard && old_wildcards_were_unchecked) {
            http(&rule["http"], &format!("{at}.http"), found);
        }
    }
    let old_secret_was_bad = old.is_some_and(|old| {
        let tls = list(&old["spec"], "tls").iter();
        tls.map(|entry| text(entry, "secretName")).any(|name| !check_secret(name).is_empty())
    });
    for (i, entry) in list(spec, "tls").iter().enumerate() {
        let at = format!("spec.tls[{i}]");
        for (j, host) in texts(entry, "hosts").into_iter().enumerate() {
            let wrong = if host.contains('*') {
                names::is_wildcard_dns1123_subdomain(host)
            } else {
                names::is_dns1123_subdomain(host)
            };
            found.each(&format!("{at}.hosts[{j}]"), host, wrong);
        }
        if !old_secret_was_bad {
            let name = text(entry, "secretName");
            found.each(&format!("{at}.secretName"), name, check_secret(name));
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        found.each("spec.ingressClassName", class, names::is_dns1123_subdomain(class));
    }
}

/// Whether an old Ingress has a rule with a wildcard host that would be refused now.
fn has_unchecked_wildcard(old: &Value) -> bool {
    let mut found = Findings::default();
    for rule in list(&old["spec"], "rules") {
        if text(rule, "host").contains('*') && has(rule, "http") {
            http(&rule["http"], "", &mut found);
        }
    }
    !found.none()
}

fn check_secret(name: &str) -> Vec<String> {
    if name.is_empty() { Vec::new() } else { names::is_dns1123_subdomain(name) }
}

fn check_host(host: &str, field: &str, found: &mut Findings) {
    if host.is_empty() {
        return;
    }
    if ip::parse(host).is_some() {
        found.invalid(field, host, "must be a DNS name, not an IP address");
    }
    let wrong = if host.contains('*') {
        names::is_wildcard_dns1123_subdomain(host)
    } else {
        names::is_dns1123_subdomain(host)
    };
    found.each(field, host, wrong);
}

fn http(value: &Value, at: &str, found: &mut Findings) {
    let paths = list(value, "paths");
    if paths.is_empty() {
        found.required(format!("{at}.paths"), "");
    }
    for (i, path) in paths.iter().enumerate() {
        http_path(path, &format!("{at}.paths[{i}]"), found);
    }
}

fn http_path(value: &Value, at: &str, found: &mut Findings) {
    let path = text(value, "path");
    let field = format!("{at}.path");
    let absolute = path.starts_with('/');
    match value["pathType"].as_str() {
        None => {
            found.required(format!("{at}.pathType"), "pathType must be specified");
            return;
        }
        Some("Exact" | "Prefix") => {
            if !absolute {
                found.invalid(field.as_str(), path, "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|bad| path.contains(**bad))
            {
                found.invalid(field.as_str(), path, format!("must not contain '{bad}'"));
            }
            for bad in ["/..", "/."].iter().filter(|bad| path.ends_with(**bad)) {
                found.invalid(field.as_str(), path, format!("cannot end with '{bad}'"));
            }
        }
        Some("ImplementationSpecific") => {
            if !path.is_empty() && !absolute {
                found.invalid(field, path, "must be an absolute path");
            }
        }
        Some(other) => found.push(FieldError::not_supported(
            format!("{at}.pathType"),
            &json!(other),
            &["Exact", "ImplementationSpecific", "Prefix"],
        )),
    }
    backend(&value["backend"], &format!("{at}.backend"), found);
}

fn backend(value: &Value, at: &str, found: &mut Findings) {
    match (has(value, "resource"), has(value, "service")) {
        (true, true) => found.invalid(at, "", "cannot set both resource and service backends"),
        (false, false) => found.invalid(at, "", "resource or service backend is required"),
        (true, false) => reference(&value["resource"], &format!("{at}.resource"), found),
        (false, true) => {
            let service = &value["service"];
            let name = text(service, "name");
            let field = format!("{at}.service.name");
            if name.is_empty() {
                found.required(field, "");
            } else {
                found.each(&field, name, names::is_dns1123_label(name));
            }
            let (name, number) = (text(&service["port"], "name"), int(&service["port"], "number"));
            match (name.is_empty(), number == 0) {
                (false, false) => {
                    found.invalid(at, "", "cannot set both port name & port number");
                }
                (false, true) => {
                    let field = format!("{at}.service.port.name");
                    found.each(&field, name, names::is_port_name(name));
                }
                (true, false) => {
                    let field = format!("{at}.service.port.number");
                    found.each(&field, number, names::is_port_number(number));
                }
                (true, true) => found.required(at, "port name or number is required"),
            }
        }
    }
}

/// Validates a reference by group, kind and name.
fn reference(value: &Value, at: &str, found: &mut Findings) {
    if let Some(group) = value["apiGroup"].as_str() {
        found.each(&format!("{at}.apiGroup"), group, names::is_dns1123_subdomain(group));
    }
    for field in ["kind", "name"] {
        let name = text(value, field);
        let field = format!("{at}.{field}");
        if name.is_empty() {
            found.required(field, "");
        } else {
            found.each(&field, name, names::is_path_segment(name));
        }
    }
}

/// The rules of IngressClasses.
pub struct IngressClassRules;

impl Rules for IngressClassRules {
    fn default(&self, object: &mut Value) {
        if let Some(parameters) = child(object, "spec").and_then(|spec| member(spec, "parameters"))
        {
            default(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let spec = &object["spec"];
        let controller = text(spec, "controller");
        if let Some(old) = old {
            let before = text(&old["spec"], "controller");
            found.immutable("spec.controller", &json!(controller), &json!(before));
        }
        if controller.len() > 250 {
            found.push(FieldError::too_long("spec.controller", 250));
        }
        domain_prefixed_path("spec.controller", controller, &mut found);
        if has(spec, "parameters") {
            parameters(&spec["parameters"], &mut found);
        }
        found.done()
    }
}

fn parameters(value: &Value, found: &mut Findings) {
    let at = "spec.parameters";
    reference(value, at, found);
    let namespace = value["namespace"].as_str();
    let field = format!("{at}.namespace");
    match (value["scope"].as_str(), namespace) {
        (None, _) => found.required(format!("{at}.scope"), ""),
        (Some("Namespace"), None) => {
            found.required(field, "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(name)) => found.each(&field, name, names::is_dns1123_label(name)),
        (Some("Cluster"), Some(_)) => {
            found.forbidden(field, "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => found.push(FieldError::not_supported(
            format!("{at}.scope"),
            &json!(other),
            &["Cluster", "Namespace"],
        )),
    }
}

fn domain_prefixed_path(field: &str, value: &str, found: &mut Findings) {
    if value.is_empty() {
        found.required(field, "");
        return;
    }
    let (host, path) = match value.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => {
            let words = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            found.invalid(field, value, words);
            return;
        }
    };
    found.each(field, host, names::is_dns1123_subdomain(host));
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !path.bytes().all(allowed) {
        let words = names::mismatch("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]);
        found.invalid(field, path, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn service() -> Value {
        json!({"service": {"name": "web", "port": {"number": 80}}})
    }

    fn with_path(path: Value) -> Value {
        json!({"spec": {"rules": [{"host": "a.example", "http": {"paths": [path]}}]}})
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        let at = "spec.rules[0].http.paths[0]";
        let cases: Vec<(Value, Vec<String>)> = vec![
            (json!({"path": "/", "pathType": "Prefix"}), vec![]),
            (json!({"path": "/a%20b", "pathType": "Exact"}), vec![]),
            (json!({"pathType": "ImplementationSpecific"}), vec![]),
            (
                json!({"path": "/"}),
                vec![format!("{at}.pathType: Required value: pathType must be specified")],
            ),
            (
                json!({"path": "/", "pathType": "Regex"}),
                vec![format!(
                    "{at}.pathType: Unsupported value: \"Regex\": supported values: \"Exact\", \
                           \"ImplementationSpecific\", \"Prefix\""
                )],
            ),
            (
                json!({"pathType": "Prefix"}),
                vec![format!("{at}.path: Invalid value: \"\": must be an absolute path")],
            ),
            (
                json!({"path": "a", "pathType": "ImplementationSpecific"}),
                vec![format!("{at}.path: Invalid value: \"a\": must be an absolute path")],
            ),
            (
                json!({"path": "//", "pathType": "Exact"}),
                vec![format!("{at}.path: Invalid value: \"//\": must not contain '//'")],
            ),
            (
                json!({"path": "/a/./b", "pathType": "Exact"}),
                vec![format!("{at}.path: Invalid value: \"/a/./b\": must not contain '/./'")],
            ),
            (
                json!({"path": "/a/../b", "pathType": "Exact"}),
                vec![format!("{at}.path: Invalid value: \"/a/../b\": must not contain '/../'")],
            ),
            (
                json!({"path": "/a%2Fb", "pathType": "Prefix"}),
                vec![format!("{at}.path: Invalid value: \"/a%2Fb\": must not contain '%2F'")],
            ),
            (
                json!({"path": "/..", "pathType": "Prefix"}),
                vec![format!("{at}.path: Invalid value: \"/..\": cannot end with '/..'")],
            ),
        ];
        for (mut path, expected) in cases {
            path["backend"] = service();
            assert_eq!(
                said(IngressRules.validate(&with_path(path.clone()), None)),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn hosts_are_dns_names() {
        for (host, count) in [
            ("", 0),
            ("a.example", 0),
            ("*.example", 0),
            ("localhost", 0),
            ("1.2.3.4", 1),
            ("*", 1),
            ("a.*.b", 1),
            ("A.example", 1),
            ("a_b", 1),
            ("a.example:80", 1),
            ("::1", 2),
            ("~^a.*", 1),
            ("a b", 1),
        ] {
            let object = json!({"spec": {"rules": [{"host": host}]}});
            assert_eq!(IngressRules.validate(&object, None).len(), count, "{host}");
        }
    }

    #[test]
    fn a_backend_is_one_service_port_or_one_resource() {
        let at = "spec.defaultBackend";
        for (backend, expected) in [
            (service(), vec![]),
            (json!({"service": {"name": "web", "port": {"name": "http"}}}), vec![]),
            (json!({"resource": {"apiGroup": "a.b", "kind": "Bucket", "name": "x"}}), vec![]),
            (
                json!({}),
                vec![format!("{at}: Invalid value: \"\": resource or service backend is required")],
            ),
            (
                json!({"service": {"name": "web"}}),
                vec![format!("{at}: Required value: port name or number is required")],
            ),
            (
                json!({"service": {"name": "web", "port": {"name": "http", "number": 80}}}),
                vec![format!("{at}: Invalid value: \"\": cannot set both port name & port number")],
            ),
            (
                json!({"service": {"port": {"number": 70000}}}),
                vec![
                    format!("{at}.service.name: Required value"),
                    format!(
                        "{at}.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive"
                    ),
                ],
            ),
            (
                json!({"service": {"name": "web"}, "resource": {}}),
                vec![format!(
                    "{at}: Invalid value: \"\": cannot set both resource and service backends"
                )],
            ),
            (
                json!({"resource": {}}),
                vec![
                    format!("{at}.resource.kind: Required value"),
                    format!("{at}.resource.name: Required value"),
                ],
            ),
        ] {
            let object = json!({"spec": {"defaultBackend": backend}});
            assert_eq!(said(IngressRules.validate(&object, None)), expected, "{object}");
        }
        assert_eq!(
            said(IngressRules.validate(&json!({"spec": {}}), None)),
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        );
        assert_eq!(
            said(IngressRules.validate(&json!({"spec": {"rules": [{"http": {}}]}}), None)),
            ["spec.rules[0].http.paths: Required value"]
        );
    }

    #[test]
    fn the_old_class_annotation_may_not_contradict_the_field() {
        let ingress = |annotation: &str, class: Value| {
            json!({"metadata": {"annotations": {CLASS_ANNOTATION: annotation}},
                   "spec": {"ingressClassName": class, "defaultBackend": service()}})
        };
        assert_eq!(
            said(IngressRules.validate(&ingress("a", json!("a")), None)),
            Vec::<String>::new()
        );
        let both = ingress("a", json!("b"));
        assert_eq!(
            said(IngressRules.validate(&both, None)),
            [
                "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both \
              are specified"
            ]
        );
        assert_eq!(said(IngressRules.validate(&both, Some(&both))), Vec::<String>::new());
        assert_eq!(IngressRules.warnings(&ingress("a", json!(null)), None).len(), 1);
        assert_eq!(IngressRules.validate(&ingress("a", json!("Not DNS")), Some(&both)).len(), 1);
    }

    #[test]
    fn tls_names_hosts_and_a_secret() {
        let tls = |entry: Value| {
            let object = json!({"spec": {"defaultBackend": service(), "tls": [entry]}});
            IngressRules.validate(&object, None).len()
        };
        assert_eq!(tls(json!({"hosts": ["a.example", "*.a.example"], "secretName": "cert"})), 0);
        assert_eq!(tls(json!({})), 0);
        assert_eq!(tls(json!({"hosts": ["*", "A"], "secretName": "No Secret"})), 3);
    }

    #[test]
    fn an_ingress_status_shows_addresses_and_names() {
        let status = |entry: Value| {
            let object = json!({"status": {"loadBalancer": {"ingress": [entry]}}});
            IngressRules.validate_status(&object, &json!({})).len()
        };
        assert_eq!(status(json!({"ip": "192.0.2.1"})), 0);
        assert_eq!(status(json!({"hostname": "a.example"})), 0);
        assert_eq!(status(json!({"ip": "x"})), 1);
        assert_eq!(status(json!({"hostname": "1.2.3.4"})), 1);
    }

    #[test]
    fn an_ingress_class_has_one_controller_for_good() {
        let class = |controller: &str, parameters: Value| {
            let mut object = json!({"spec": {"controller": controller, "parameters": parameters}});
            IngressClassRules.default(&mut object);
            object
        };
        let first = class("bowline.dev/ingress", json!(null));
        assert_eq!(said(IngressClassRules.validate(&first, None)), Vec::<String>::new());
        assert_eq!(
            said(
                IngressClassRules.validate(&class("bowline.dev/other", json!(null)), Some(&first))
            ),
            ["spec.controller: Invalid value: \"bowline.dev/other\": field is immutable"]
        );
        for bad in ["nope", "/x", "a/", "A/b", "a/b c"] {
            assert_eq!(
                IngressClassRules.validate(&class(bad, json!(null)), None).len(),
                1,
                "{bad}"
            );
        }
        assert_eq!(
            said(IngressClassRules.validate(&class("", json!(null)), None)),
            ["spec.controller: Required value"]
        );
        let with =
            |parameters: Value| said(IngressClassRules.validate(&class("a.b/c", parameters), None));
        assert_eq!(with(json!({"kind": "LoadBalancer", "name": "x"})), Vec::<String>::new());
        assert_eq!(
            with(json!({"kind": "LoadBalancer", "name": "x", "scope": "Namespace"})),
            ["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"]
        );
        assert_eq!(
            with(json!({"kind": "LoadBalancer", "name": "x", "namespace": "y"})),
            ["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"]
        );
        assert_eq!(
            with(json!({"kind": "LoadBalancer", "name": "x", "scope": "World"})),
            [
                "spec.parameters.scope: Unsupported value: \"World\": supported values: \"Cluster\", \"Namespace\""
            ]
        );
    }
}

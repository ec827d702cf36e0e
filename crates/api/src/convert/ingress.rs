//! Ingresses, as the planner gets them. A host or path that cannot be read is left out and reported; the others are
//! served.

use super::read::{
    Annotations, INGRESS_PLACEMENT, NOT_A_NAME, bad_value, created, deleting, key, placement, port,
    requests, uid,
};
use super::tuning::{On, redirect, tuning};
use crate::annotation_keys;
use crate::translate::{is_dns_label, is_object_name};
use bowline_core::objects::{self, Backend, BackendPort};
use bowline_core::outcome::Problem;
use bowline_core::plan::{Host, PathKind, PathMatch};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, Ingress, IngressBackend, IngressRule, IngressSpec, IngressTLS,
    ServiceBackendPort,
};

/// The longest host, in bytes. Only a regular expression can reach it.
const LONGEST_HOST: usize = 1024;

/// An Ingress as the planner gets it.
pub fn ingress(ingress: &Ingress) -> objects::Ingress {
    let (no_spec, no_annotations) = (IngressSpec::default(), Annotations::new());
    let spec = ingress.spec.as_ref().unwrap_or(&no_spec);
    let meta = &ingress.metadata;
    let all = meta.annotations.as_ref().unwrap_or(&no_annotations);
    let mut problems = Vec::new();
    let tuning = tuning(all, On::Ingress, &mut problems);
    let redirect = redirect(all, &mut problems);
    problems.extend(annotation_keys::unknown(all));
    let rules = spec.rules.iter().flatten();
    let rules = rules.filter_map(|written| rule(written, &mut problems)).collect();
    let tls = spec.tls.iter().flatten();
    let tls = tls.filter_map(|written| ingress_tls(written, &mut problems)).collect();
    objects::Ingress {
        key: key(meta),
        uid: uid(meta),
        created: created(meta),
        deleting: deleting(meta),
        class: spec.ingress_class_name.as_deref().map(Into::into),
        placement: placement(all, INGRESS_PLACEMENT),
        tuning,
        redirect,
        default_backend: spec.default_backend.as_ref().map(|b| backend(b, &mut problems)),
        rules,
        tls,
        requests: requests(all),
        problems,
    }
}

fn rule(written: &IngressRule, problems: &mut Vec<Problem>) -> Option<objects::IngressRule> {
    let host = host("spec.rules.host", written.host.as_deref().unwrap_or_default(), problems)?;
    let paths = written.http.iter().flat_map(|http| &http.paths);
    Some(objects::IngressRule {
        host,
        paths: paths.filter_map(|written| path(written, problems)).collect(),
    })
}

fn host(field: &str, text: &str, problems: &mut Vec<Problem>) -> Option<Host> {
    let read = match text.parse::<Host>() {
        Ok(_) if text.len() > LONGEST_HOST => Err("is longer than 1024 bytes".into()),
        read => read.map_err(|bad| bad.to_string()),
    };
    read.map_err(|why| problems.push(bad_value(field, text, &why))).ok()
}

fn path(written: &HTTPIngressPath, problems: &mut Vec<Problem>) -> Option<objects::IngressPath> {
    let kind = match written.path_type.as_str() {
        "Exact" => PathKind::Exact,
        "Prefix" | "ImplementationSpecific" | "" => PathKind::Prefix,
        other => {
            let why = "is not Exact, Prefix or ImplementationSpecific";
            problems.push(bad_value("spec.rules.http.paths.pathType", other, why));
            return None;
        }
    };
    let value = match written.path.as_deref() {
        None | Some("") => "/",
        Some(path) => path,
    };
    if !is_path(value) {
        let why =
            "is not a path: write one that begins with '/' and has no spaces or control characters";
        problems.push(bad_value("spec.rules.http.paths.path", value, why));
        return None;
    }
    Some(objects::IngressPath {
        path: PathMatch { kind, value: value.into() },
        backend: backend(&written.backend, problems),
    })
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// A backend that cannot be read has no Service, or a port number that no port has. Its path is then answered with an
/// error, and not served by the next shorter path.
fn backend(written: &IngressBackend, problems: &mut Vec<Problem>) -> Backend {
    const NO_PORT: BackendPort = BackendPort::Number(0);
    let Some(service) = &written.service else { return Backend { service: None, port: NO_PORT } };
    if !is_dns_label(&service.name) {
        problems.push(bad_value(
            "backend.service.name",
            &service.name,
            "is not the name of a Service: at most 63 lower-case letters, digits and '-'",
        ));
        return Backend { service: None, port: NO_PORT };
    }
    let read = match &service.port {
        Some(ServiceBackendPort { name: Some(name), .. }) if !name.is_empty() => {
            is_dns_label(name).then(|| BackendPort::Name(name.as_str().into())).ok_or_else(|| {
                let why = "is not the name of a port: lower-case letters, digits and '-'";
                bad_value("backend.service.port.name", name, why)
            })
        }
        written => {
            let number = written.as_ref().and_then(|port| port.number).unwrap_or_default();
            port(number).map(BackendPort::Number).ok_or_else(|| {
                let why = "is not a port: a number from 1 to 65535";
                bad_value("backend.service.port.number", &number.to_string(), why)
            })
        }
    };
    let port = read.unwrap_or_else(|problem| {
        problems.push(problem);
        NO_PORT
    });
    Backend { service: Some(service.name.as_str().into()), port }
}

/// An entry with hosts of which none can be read is left out: without hosts it would stand for all.
fn ingress_tls(written: &IngressTLS, problems: &mut Vec<Problem>) -> Option<objects::IngressTls> {
    let texts = written.hosts.as_deref().unwrap_or_default();
    let hosts: Vec<Host> =
        texts.iter().filter_map(|text| host("spec.tls.hosts", text, problems)).collect();
    if hosts.is_empty() && !texts.is_empty() {
        return None;
    }
    let secret = written.secret_name.as_deref().filter(|name| !name.is_empty());
    if let Some(name) = secret.filter(|name| !is_object_name(name)) {
        problems.push(bad_value("spec.tls.secretName", name, NOT_A_NAME));
    }
    let secret = secret.filter(|name| is_object_name(name)).map(Into::into);
    Some(objects::IngressTls { hosts, secret })
}

#[cfg(test)]
mod tests;

//! Tests of complete views, as a user reads them.

mod addresses;
mod announcing;
mod difference;
mod doctor;
mod explain;
mod missing;
mod now;
mod pools;
mod programs;
mod secrets;
mod status;
mod terminal;
mod top;

use super::explain::{Explanation, Subject};
use super::plan::Difference;
use super::status::{Applied, Status};
use super::testing::{facts, lists, now, object, service, settled};
use super::{Facts, Lists, View};
use bowline_api::{LoadBalancer, LoadBalancerStatus, Plan, PlanSpec, names};
use bowline_core::diagnosis::remedy::with_names;
use bowline_core::diagnosis::{Place, Reason};
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::plan::CertificateRef;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};

fn explained(lists: Lists, subject: Subject, namespace: &str, name: &str) -> String {
    let key = ObjectKey::new(namespace, name);
    Explanation::of(&facts(lists), subject, &key).expect("it exists").text()
}

/// A text without its layout.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn annotate(lease: &mut Lease, key: &str, value: &str) {
    let all = lease.metadata.annotations.get_or_insert_default();
    all.insert(key.to_owned(), value.to_owned());
}

const NO_SECRETS: &str = "You may not list secrets, so nothing is said about certificates.";

/// A cluster whose Ingress has TLS; and the same without access to Secrets.
fn with_tls() -> (Lists, Lists) {
    let mut lists = lists();
    let backend = json!({"service": {"name": "hello", "port": {"number": 8000}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    lists.ingresses[0] = object(json!({
        "metadata": {"namespace": "demo", "name": "hello", "uid": "i"},
        "spec": {
            "ingressClassName": "bowline",
            "tls": [{"hosts": ["hello.localhost"], "secretName": "cert"}],
            "rules": [{"host": "hello.localhost", "http": {"paths": paths}}],
        },
    }));
    let blind = Lists { secrets: None, notes: vec![NO_SECRETS.to_owned()], ..lists.clone() };
    (lists, blind)
}

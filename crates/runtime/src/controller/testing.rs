//! Builds watch events from JSON, for the tests of the controller.

use super::kinds::{KindSeen, ObjectSeen};
use super::observed::{
    AddressSeen, ClaimSeen, IngressSeen, LoadBalancerSeen, Observed, ServiceSeen,
};
use crate::watch::Seen;
use bowline_api::AddressPool;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads an object of one of Bowline's kinds.
pub(super) fn read<T: DeserializeOwned>(kind: &str, mut object: Value) -> T {
    object["apiVersion"] = json!("bowline.dev/v1alpha1");
    object["kind"] = json!(kind);
    serde_json::from_value(object).unwrap()
}

pub(super) fn service(object: Value) -> Observed {
    let service = serde_json::from_value(object).unwrap();
    Observed::Service(Seen::Apply(Box::new(ServiceSeen::of(&service))))
}

pub(super) fn load_balancer(object: Value) -> Observed {
    Observed::LoadBalancer(Seen::Apply(Box::new(seen_load_balancer(object))))
}

pub(super) fn deleted_load_balancer(object: Value) -> Observed {
    Observed::LoadBalancer(Seen::Delete(Box::new(seen_load_balancer(object))))
}

pub(super) fn seen_load_balancer(object: Value) -> LoadBalancerSeen {
    LoadBalancerSeen::of(&read("LoadBalancer", object))
}

pub(super) fn seen_claim(object: Value) -> ClaimSeen {
    ClaimSeen::of(&read("LoadBalancerClaim", object))
}

pub(super) fn class(object: Value) -> Observed {
    let class: bowline_api::LoadBalancerClass = read("LoadBalancerClass", object);
    Observed::Class(Seen::Apply((super::class(&class), Arc::new(class.spec.clone()))))
}

pub(super) fn pool(object: Value) -> Observed {
    let pool: AddressPool = read("AddressPool", object);
    Observed::Object(KindSeen::AddressPool(Seen::Apply(ObjectSeen::of(&pool))))
}

pub(super) fn address(object: Value) -> Observed {
    Observed::Address(Seen::Apply(AddressSeen::of(&read("Address", object))))
}

/// The end of the list of every kind.
pub(super) fn listed() -> Vec<Observed> {
    let kinds = KindSeen::done().into_iter().map(Observed::Object);
    let others = [
        Observed::Service(Seen::<Box<ServiceSeen>>::Done),
        Observed::Ingress(Seen::<Box<IngressSeen>>::Done),
        Observed::IngressClass(Seen::Done),
        Observed::TlsSecret(Seen::Done),
        Observed::Namespace(Seen::Done),
        Observed::LoadBalancer(Seen::Done),
        Observed::Claim(Seen::Done),
        Observed::Plan(Seen::Done),
        Observed::Certificates(Seen::Done),
        Observed::Cookies(Seen::Done),
        Observed::Lease(Seen::Done),
        Observed::Address(Seen::Done),
        Observed::Node(Seen::Done),
        Observed::Class(Seen::Done),
    ];
    others.into_iter().chain(kinds).collect()
}

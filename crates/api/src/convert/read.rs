//! The parts that all kinds have in common: metadata, ports, protocols, placement, and the wording of problems. Only
//! the other files of this module call it.

use crate::annotation_keys::{
    self, Found, Key, LOAD_BALANCER, LOAD_BALANCER_CLAIM, LOAD_BALANCER_SOURCE, NETWORK_BANDWIDTH,
    NETWORK_IOPS,
};
use crate::quantity::{self, Quantity};
use crate::source::LoadBalancerSource;
use crate::translate::is_object_name;
use bowline_core::ObjectKey;
use bowline_core::objects::{Placement, Timestamp};
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::plan::Transport;
use bowline_core::resources::Amounts;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotations of an object.
pub(super) type Annotations = BTreeMap<String, String>;

pub(super) fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), name(meta))
}

pub(super) fn name(meta: &ObjectMeta) -> Arc<str> {
    meta.name.as_deref().unwrap_or_default().into()
}

pub(super) fn uid(meta: &ObjectMeta) -> Arc<str> {
    meta.uid.as_deref().unwrap_or_default().into()
}

/// The creation time. An object that no server has stored yet counts as the youngest.
pub(super) fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0.as_second())
}

pub(super) fn deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// A port number. None: 0, and numbers that no port has.
pub(super) fn port(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// A protocol. Left out: TCP.
pub(super) fn transport(protocol: Option<&str>) -> Option<Transport> {
    match protocol {
        None | Some("TCP") => Some(Transport::Tcp),
        Some("UDP") => Some(Transport::Udp),
        Some("SCTP") => Some(Transport::Sctp),
        Some(_) => None,
    }
}

/// Why a text is not the name of an object.
pub(super) const NOT_A_NAME: &str =
    "is not the name of an object: at most 253 lower-case letters, digits, '-' and '.'";

/// The problem of a placement, address or host that cannot be read: nothing new is granted.
pub(super) fn bad_value(field: &str, value: &str, why: &str) -> Problem {
    Problem::new(Reason::BadValue, format!("{field}: {} {why}", quote(value)))
}

/// The problem of a tuning value that cannot be read: the default is used.
pub(super) fn bad_tuning(found: Found<'_>, why: &str) -> Problem {
    let Found { key, value } = found;
    Problem::new(Reason::BadTuning, format!("{key}: {} {why}; the default is used", quote(value)))
}

/// Reads an annotation. None: it is not set, or cannot be read, which adds a problem.
pub(super) fn tuned<T>(
    all: &Annotations,
    key: &Key,
    problems: &mut Vec<Problem>,
    read: impl FnOnce(Found<'_>) -> Result<T, String>,
) -> Option<T> {
    let found = annotation_keys::read(all, key)?;
    match read(found) {
        Ok(value) => Some(value),
        Err(why) => {
            problems.push(bad_tuning(found, &why));
            None
        }
    }
}

/// `"true"` or `"false"`.
pub(super) fn flag(found: Found<'_>) -> Result<bool, String> {
    match found.value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("is neither \"true\" nor \"false\"".into()),
    }
}

/// The amounts that an object requests of its load balancer.
pub(super) fn requests(all: &Annotations) -> Result<Amounts, Problem> {
    let amount = |key: &Key| {
        let Some(Found { key, value }) = annotation_keys::read(all, key) else { return Ok(None) };
        let whole = quantity::whole(&Quantity(value.to_owned()));
        let why = "is not a whole amount such as 10G, 500M or 1500";
        whole.map(Some).map_err(|_| bad_value(key, value, why))
    };
    Ok(Amounts { bandwidth: amount(&NETWORK_BANDWIDTH)?, iops: amount(&NETWORK_IOPS)? })
}

/// The load balancer that an object asks for. `keys`: the annotations that its kind has.
pub(super) fn placement(all: &Annotations, keys: &[Key]) -> Result<Placement, Problem> {
    let found: Vec<Found<'_>> =
        keys.iter().filter_map(|key| annotation_keys::read(all, key)).collect();
    let one = match found[..] {
        [] => return Ok(Placement::Default),
        [one] => one,
        [first, second, ..] => {
            return Err(bad_value(
                second.key,
                second.value,
                &format!("contradicts {}: {}; write one of them", first.key, quote(first.value)),
            ));
        }
    };
    if one.key == LOAD_BALANCER_SOURCE.name {
        return source(one.value).map(Placement::Source).ok_or_else(|| {
            bad_value(
                one.key,
                one.value,
                "is not the source of a load balancer as JSON, such as {\"builtin\":{}}",
            )
        });
    }
    if !is_object_name(one.value) {
        return Err(bad_value(one.key, one.value, NOT_A_NAME));
    }
    Ok(if one.key == LOAD_BALANCER_CLAIM.name {
        Placement::Claim(one.value.into())
    } else {
        Placement::LoadBalancer(one.value.into())
    })
}

/// The annotations by which a Service names its load balancer.
pub(super) const SERVICE_PLACEMENT: &[Key] = &[LOAD_BALANCER, LOAD_BALANCER_CLAIM];
/// The annotations by which an Ingress names its load balancer.
pub(super) const INGRESS_PLACEMENT: &[Key] =
    &[LOAD_BALANCER, LOAD_BALANCER_CLAIM, LOAD_BALANCER_SOURCE];

/// A source as canonical JSON, the form in which sources are compared.
fn source(json: &str) -> Option<Arc<str>> {
    serde_json::from_str::<LoadBalancerSource>(json).ok().as_ref().map(canonical)
}

/// The source of a load balancer as JSON, its fields in the order of the type.
pub(super) fn canonical(source: &LoadBalancerSource) -> Arc<str> {
    // Structs of texts and enums always become JSON.
    serde_json::to_string(source).unwrap_or_default().into()
}

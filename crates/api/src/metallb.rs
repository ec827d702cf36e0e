//! MetalLB's objects, for their import: their shape, what Bowline has instead of them, and how to recognize that
//! MetalLB's own controller still runs. It does no I/O; `bowline_runtime::metallb` reads and writes. A setting that Bowline
//! does not have becomes a [`Loss`], never a guess. Pools are here, what is announced is in [`announcing`].

mod announce;
mod go_duration;
mod kinds;
mod peers;
mod selectors;

pub use announce::{Announced, Announcing, announcing, selecting_labels};
pub use kinds::{
    BFDProfile, BFDProfileSpec, BGPAdvertisement, BGPAdvertisementSpec, BGPPeer, BGPPeerSpec,
    Community, CommunityAlias, CommunitySpec, Covers, Hidden, L2Advertisement, L2AdvertisementSpec,
    PasswordSecret, PreferredNodeSelector,
};
pub use peers::old_peer;

use crate::address_pool::{AddressPool, AddressPoolSpec, AllocateTo};
use crate::names;
use crate::selector::LabelSelector;
use bowline_core::addresses::{Range, RangeError};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The namespace that MetalLB's own manifests use.
pub const NAMESPACE: &str = "metallb-system";

/// The spec of a MetalLB pool. Unknown fields are skipped: nothing is written back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "IPAddressPool",
    plural = "ipaddresspools",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct IPAddressPoolSpec {
    /// Networks, and ranges with a hyphen.
    pub addresses: Vec<String>,
    /// Whether a Service that names no pool may get an address of it. Left out: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_assign: Option<bool>,
    /// Whether addresses that end in .0 or .255 are left out.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// The Services that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_allocation: Option<ServiceAllocation>,
}

/// The Services that may use a MetalLB pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAllocation {
    /// The lowest number above 0 is tried first, 0 last, as in an AddressPool.
    #[serde(default)]
    pub priority: i64,
    /// Namespaces by name.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Namespaces by their labels.
    #[serde(default)]
    pub namespace_selectors: Vec<LabelSelector>,
    /// Services by their labels.
    #[serde(default)]
    pub service_selectors: Vec<LabelSelector>,
}

/// What cannot be imported, or needs a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// A field that has no place here, or a value that it cannot have.
    #[error("{of}: {field}: {why}")]
    Field {
        /// MetalLB's object, with its kind.
        of: String,
        /// The field.
        field: &'static str,
        /// The value, what is used instead, and what to do.
        why: String,
    },
    /// An object for which there is none here.
    #[error("{of}: {why}; nothing is made for it")]
    NotMade {
        /// MetalLB's object, with its kind.
        of: String,
        /// Why.
        why: String,
    },
    /// The API does not take an object.
    #[error("{object} is refused by the API: {why}; make it by hand")]
    Refused {
        /// Bowline's object, with its kind.
        object: String,
        /// What the API said.
        why: String,
    },
    /// A password that a person must copy. Until then there is no session.
    #[error(
        "{of}: {field}: the password is not copied, and there is no session without it: run  {command}"
    )]
    Password {
        /// MetalLB's object, with its kind.
        of: String,
        /// The field.
        field: &'static str,
        /// What copies it.
        command: String,
    },
    /// An entry that cannot be read. MetalLB itself uses no pool at all while there is such an entry.
    #[error("{pool}: {error}; this entry is left out")]
    Entry {
        /// The pool.
        pool: String,
        /// What is wrong with it.
        error: RangeError,
    },
    /// No entry can be read.
    #[error("{pool}: none of its addresses can be read; there is no AddressPool of this name")]
    Whole {
        /// The pool.
        pool: String,
    },
    /// A priority that an AddressPool cannot have.
    #[error("{pool}: priority {priority} is not between 0 and 2147483647; 0 is used")]
    Priority {
        /// The pool.
        pool: String,
        /// MetalLB's priority.
        priority: i64,
    },
}

/// The AddressPool for a MetalLB pool, and its losses. None: no entry can be read. It gets the labels that advertisements
/// select by, and no others: a label can make another program its owner.
pub fn pool(
    theirs: &IPAddressPool,
    selecting: &BTreeSet<String>,
) -> (Option<AddressPool>, Vec<Loss>) {
    let name = theirs.metadata.name.clone().unwrap_or_default();
    let namespace = theirs.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &theirs.spec;
    let mut losses = Vec::new();
    let mut addresses: Vec<String> = Vec::new();
    for entry in &spec.addresses {
        match address(entry) {
            Ok(entry) if addresses.contains(&entry) => {}
            Ok(entry) => addresses.push(entry),
            Err(error) => losses.push(Loss::Entry { pool: name.clone(), error }),
        }
    }
    if addresses.is_empty() {
        losses.push(Loss::Whole { pool: name });
        return (None, losses);
    }
    let allocate_to =
        spec.service_allocation.as_ref().map(|to| allocate_to(to, &name, &mut losses));
    let mut pool = AddressPool::new(
        &name,
        AddressPoolSpec {
            addresses,
            scope: None,
            auto_assign: spec.auto_assign.unwrap_or(true),
            avoid_buggy_ips: spec.avoid_buggy_ips,
            allocate_to,
            per_namespace_quota: None,
            // MetalLB requires only the same key. Without this, Services that share an address now would lose it.
            sharing_across_namespaces: true,
            allowed_domains: Vec::new(),
            reuse_after: None,
        },
    );
    let from = format!("metallb.io/{namespace}/{name}");
    pool.metadata.annotations = Some([(names::ANNOTATION_IMPORTED_FROM.to_owned(), from)].into());
    let labels = theirs.metadata.labels.iter().flatten();
    let labels = labels.filter(|(key, _)| selecting.contains(*key));
    let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.clone(), value.clone())).collect();
    pool.metadata.labels = Some(labels).filter(|labels| !labels.is_empty());
    (Some(pool), losses)
}

/// An entry in the notation of AddressPools. MetalLB accepts `192.0.2.5/24` for its network, and spaces around a
/// hyphen; the AddressPool's schema does not.
fn address(entry: &str) -> Result<String, RangeError> {
    match Range::parse(entry) {
        Ok(range) if entry.contains('-') => Ok(range.to_string()),
        Ok(_) => Ok(entry.parse::<IpNet>().map_or_else(|_| entry.trim().to_owned(), text)),
        Err(RangeError::HostBits(_, network)) => Ok(text(network)),
        Err(error) => Err(error),
    }
}

fn text(network: IpNet) -> String {
    network.to_string()
}

fn allocate_to(to: &ServiceAllocation, pool: &str, losses: &mut Vec<Loss>) -> AllocateTo {
    let priority = i32::try_from(to.priority).ok().filter(|it| *it >= 0).unwrap_or_else(|| {
        losses.push(Loss::Priority { pool: pool.to_owned(), priority: to.priority });
        0
    });
    let mut service_selectors = to.service_selectors.clone();
    if to.namespaces.is_empty()
        && to.namespace_selectors.is_empty()
        && to.service_selectors.is_empty()
    {
        // The pool serves all Services, but comes before pools without a selector.
        service_selectors.push(LabelSelector::default());
    }
    let mut seen = BTreeSet::new();
    AllocateTo {
        priority,
        namespaces: to.namespaces.iter().filter(|it| seen.insert(*it)).cloned().collect(),
        namespace_selectors: to.namespace_selectors.clone(),
        service_selectors,
    }
}

/// Whether a Pod is MetalLB's controller and has not ended. It is recognized by the labels of MetalLB's manifests or
/// chart or, if an administrator chose other labels, by its image.
pub fn is_running_controller(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let labelled = |name: &str, component: &str| {
        label(name) == Some("metallb") && label(component) == Some("controller")
    };
    let images =
        pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|it| it.image.as_deref());
    labelled("app", "component")
        || labelled("app.kubernetes.io/name", "app.kubernetes.io/component")
        || images.into_iter().any(is_controller_image)
}

/// Whether this is an image of MetalLB's controller, such as `quay.io/metallb/controller:v0.15.2` or
/// `bitnami/metallb-controller@sha256:…`.
fn is_controller_image(image: &str) -> bool {
    let image = image.split('@').next().unwrap_or_default();
    let (head, last) = image.rsplit_once('/').unwrap_or(("", image));
    let last = last.split(':').next().unwrap_or_default();
    last == "metallb-controller"
        || (last == "controller" && head.rsplit('/').next() == Some("metallb"))
}

#[cfg(test)]
mod tests;

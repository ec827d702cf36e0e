//! Bowline's additions to the Kubernetes API: its kinds, their names, the annotation keys it reads, and the translation
//! of two spellings that Kubernetes itself does not know.
//!
//! ```text
//! load_balancer, claim, class ──┐  one file per kind; the derive makes its schema
//! address_pool, address,        ├─▶ crds ─▶ deploy/crds, `bowline crds`, `bowline up`
//! external_ip, advertisement,   │
//! bgp_peer, plan ───────────────┘
//!   └─ source, selector, quantity, duration, condition: shared by several kinds
//! names, annotations     every fixed string, once
//! translate              IPPerPod, Ingress spec.loadBalancer
//! metallb                MetalLB's objects ─▶ AddressPools, Advertisements, BGPPeers
//! provisioned_objects    the objects that serve a LoadBalancer which a class made
//! convert                objects, ours and Kubernetes' own ─▶ the values that `bowline-core` decides with
//! ```
//!
//! Nothing here talks to a server, keeps state or decides anything. The types describe valid objects; they can read
//! everything that the schema accepts.

#![allow(
    unreachable_pub,
    reason = "the schema derive copies structs into functions, where pub is idle"
)]
#![allow(
    clippy::duplicated_attributes,
    reason = "clippy takes the like-named parts of printer columns for duplicates"
)]

pub mod address;
pub mod address_pool;
pub mod advertisement;
pub mod annotation_keys;
pub mod bgp_peer;
pub mod claim;
pub mod class;
pub mod condition;
pub mod convert;
pub mod crds;
pub mod duration;
pub mod external_ip;
pub mod load_balancer;
pub mod metallb;
pub mod names;
pub mod plan;
pub mod provisioned_objects;
pub mod quantity;
mod schema;
pub mod selector;
pub mod source;
pub mod translate;

pub use address::{Address, AddressSpec, AddressStatus};
pub use address_pool::{AddressPool, AddressPoolSpec, AddressPoolStatus};
pub use advertisement::{Advertisement, AdvertisementSpec};
pub use bgp_peer::{BGPPeer, BGPPeerSpec, BGPPeerStatus};
pub use claim::{LoadBalancerClaim, LoadBalancerClaimSpec, LoadBalancerClaimStatus};
pub use class::{LoadBalancerClass, LoadBalancerClassSpec, LoadBalancerClassStatus};
pub use external_ip::{ExternalIP, ExternalIPSpec, ExternalIPStatus};
pub use load_balancer::{LoadBalancer, LoadBalancerSpec, LoadBalancerStatus};
pub use plan::{Plan, PlanSpec};

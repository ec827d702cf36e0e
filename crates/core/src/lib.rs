//! Decides, with values only: which load balancer serves which consumers, and with which members.
//!
//! ```text
//!  objects ─▶ planner ─▶ plan (fragments) ─▶ shard ─▶ Plan objects       leader
//!                │
//!                └─▶ outcome: placed, refused, warnings ─▶ status, events, explain
//!
//!  pools, requests, names ─▶ addresses ─▶ Address objects, grants          leader
//!
//!  claims, load balancers ─▶ binder ─▶ claimRef, status, what to create   leader
//!
//!  objects behind a provisioned load balancer ─▶ provision ─▶ next step   leader
//!
//!  consumers, capacity ─▶ admission ─▶ seats in LoadBalancer status       leader
//!
//!  plan + slices + nodes + certificates ─▶ resolver ─▶ update ─▶ a driver  agent
//!
//!  addresses, Advertisements, BGPPeers, nodes ─▶ announce ─▶ what this node announces     speaker
//!
//!  Services of any class + slices + nodes ─▶ exposed ─▶ what kube2lb's templates see
//! ```
//!
//! Nothing here does I/O, reads a clock, is async or knows Kubernetes' types: `bowline-api` turns
//! objects into [`objects`], the runtime carries values in and out. Time is an argument.

pub mod addresses;
pub mod admission;
pub mod announce;
pub mod arrivals;
pub mod backoff;
pub mod binder;
pub mod burst;
#[cfg(test)]
mod cases;
pub mod certificate_rooms;
pub mod clock;
pub mod cookies;
pub mod deleted_uids;
pub mod diagnosis;
pub mod dns;
pub mod election;
pub mod event_correlator;
pub mod exposed;
pub mod expression;
pub mod fair_queue;
pub mod hash;
pub mod held_back;
pub mod in_force;
pub mod job_slots;
pub mod kept_state;
pub mod key;
pub mod lines;
pub mod load_balancer_status_writes;
pub mod member_rules;
pub mod nearest;
pub mod no_plan;
pub mod objects;
pub mod outcome;
pub mod plan;
pub mod planner;
pub mod point;
pub mod pool_health;
pub mod programmed;
pub mod provision;
pub mod quota;
pub mod relist;
pub mod replicas;
pub mod report;
pub mod resolver;
pub mod resources;
pub mod shard;
pub mod status;
pub mod unread_fragments;
pub mod update;
pub mod vanished;

pub use key::{ConsumerKind, ConsumerRef, ObjectKey};

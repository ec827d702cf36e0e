//! Wires Bowline's parts together: the embedded cluster, watches, election, queues, writers of status
//! and the admin endpoint. Rules live in `bowline-core` and `bowline-api`; this crate starts, feeds
//! and stops them. The binary `bowline` calls it.

pub mod admin;
pub mod agent;
pub mod agents_page;
mod api_timeout;
pub mod apply;
pub mod causes;
mod clock;
pub mod controller;
pub mod dns;
mod elect;
#[cfg(feature = "apiserver")]
pub mod embedded;
mod event_recorder;
pub mod lease;
#[cfg(feature = "apiserver")]
pub mod manifests;
pub mod metallb;
pub mod metrics;
pub mod observe;
mod random;
pub mod roles;
mod sockets;
#[cfg(feature = "speaker")]
pub mod speaker;
mod supervise;
pub mod templates;
pub mod watch;

pub use roles::{AgentOptions, Context, ControllerOptions, RoleError};

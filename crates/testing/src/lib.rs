//! What every end-to-end test of Bowline stands on: one way to ask for a cluster, the real `kubectl`,
//! raw HTTP for asserts on the protocol, and the replay of transcripts recorded from a real server.
//! It is used by tests only and never by the product, so what goes wrong here panics with the reason.
//!
//! ```text
//!  Cluster::start ─┬─ (default)               embedded: our own server, in memory, in this process
//!                  ├─ KUBEBUILDER_ASSETS      real: etcd + kube-apiserver (+ controller-manager)
//!                  └─ BOWLINE_TEST_KUBECONFIG existing: somebody's cluster, namespaces of our own
//! ```
//!
//! All that has to do with clusters is behind the feature `cluster`. Without it there is what tests of one crate
//! need: servers and clients of traffic, certificates, a network of its own, processes that end with the test. It
//! builds no crate of Bowline's.
//!
//! A server is started once per test binary and shared; each test has a client and namespaces of its
//! own. What is missing fails, with the command that installs it. Only tests with a network of their own
//! (`tests/traffic`) are left out where the cluster is somebody's, as it cannot be reached from there; each
//! says so.
#![allow(clippy::expect_used, clippy::panic, reason = "a test support crate fails by panicking")]

mod backend;
mod bind;
mod certificate;
mod dial;
mod janitor;
pub mod net;
pub mod page;
mod wait;

#[cfg(feature = "cluster")]
mod bowline;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod embedded;
#[cfg(feature = "cluster")]
mod http;
#[cfg(feature = "cluster")]
mod kubectl;
#[cfg(feature = "cluster")]
mod link;
#[cfg(feature = "cluster")]
mod metallb;
#[cfg(feature = "cluster")]
pub mod objects;
#[cfg(feature = "cluster")]
mod pki;
#[cfg(feature = "cluster")]
mod real;
#[cfg(feature = "cluster")]
mod recorder;
#[cfg(feature = "cluster")]
pub mod transcript;

pub use backend::{Backend, Echo, Preamble};
pub use bind::Bind;
#[cfg(feature = "cluster")]
pub use bowline::{Bowline, SYSTEM};
pub use certificate::{Authority, Issued};
#[cfg(feature = "cluster")]
pub use cluster::{Access, Cluster, Flavour, Stack};
pub use dial::{Answer, Dial, Io, Line, Request, Session, WebSocket, ask};
#[cfg(feature = "cluster")]
pub use http::{Call, Reply};
pub use janitor::{Scratch, Service};
#[cfg(feature = "cluster")]
pub use kubectl::Output;
#[cfg(feature = "cluster")]
pub use link::Link;
#[cfg(feature = "cluster")]
pub use metallb::METALLB;
#[cfg(feature = "cluster")]
pub use recorder::{Asked, Recorder};
pub use wait::{eventually, until};

/// A short random suffix for names that must not meet another test's.
pub fn unique() -> String {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

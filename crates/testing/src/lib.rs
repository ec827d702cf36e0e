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
//! A server is started once per test binary and shared; each test has a client and namespaces of its
//! own. What is missing fails, with the command that installs it. Only tests with a network of their own
//! (`tests/traffic`) are left out where the cluster is somebody's, as it cannot be reached from there; each
//! says so.
#![allow(clippy::expect_used, clippy::panic, reason = "a test support crate fails by panicking")]

mod backend;
mod bind;
mod bowline;
mod certificate;
mod cluster;
mod dial;
mod embedded;
mod http;
mod janitor;
mod kubectl;
mod link;
mod metallb;
pub mod net;
pub mod objects;
pub mod page;
mod pki;
mod real;
mod recorder;
pub mod transcript;
mod wait;

pub use backend::{Backend, Echo, Preamble};
pub use bind::Bind;
pub use bowline::{Bowline, SYSTEM};
pub use certificate::{Authority, Issued};
pub use cluster::{Access, Cluster, Flavour, Stack};
pub use dial::{Answer, Dial, Io, Line, Request, Session, WebSocket, ask};
pub use http::{Call, Reply};
pub use janitor::{Scratch, Service};
pub use kubectl::Output;
pub use link::Link;
pub use metallb::METALLB;
pub use recorder::{Asked, Recorder};
pub use wait::{eventually, until};

/// A short random suffix for names that must not meet another test's.
pub fn unique() -> String {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! The library of all end-to-end tests of Bowline: clusters, the real `kubectl`, raw HTTP for asserts on the
//! protocol, and the replay of transcripts recorded from kube-apiserver. Only tests use it, so an error panics
//! with its reason.
//!
//! ```text
//!  Cluster::start ─┬─ (default)               embedded: our own server, in memory, in this process
//!                  ├─ KUBEBUILDER_ASSETS      real: etcd + kube-apiserver (+ controller-manager)
//!                  └─ BOWLINE_TEST_KUBECONFIG existing: an existing cluster, with namespaces of the tests
//! ```
//!
//! Everything about clusters needs the feature `cluster`. Without it, there is what the tests of one crate need:
//! servers and clients of traffic, certificates, a network of its own, machines with links, routers, and processes that
//! end with the test. It
//! then builds no other crate of Bowline.
//!
//! Each test binary starts one server, which its tests share; each test has a client and namespaces of its own. A
//! missing program fails the test, with the command that installs it. Only tests with a network of their own
//! (`tests/traffic`) are left out on an existing cluster, because it cannot be reached from there; each says so.
#![allow(clippy::expect_used, clippy::panic, reason = "a test support crate fails by panicking")]

mod backend;
mod bind;
mod certificate;
mod dial;
mod frr;
mod janitor;
mod machine;
pub mod net;
pub mod page;
pub mod traffic;
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
pub use frr::{Frr, Vty};
#[cfg(feature = "cluster")]
pub use http::{Call, Reply};
pub use janitor::{Scratch, Service};
#[cfg(feature = "cluster")]
pub use kubectl::Output;
#[cfg(feature = "cluster")]
pub use link::Link;
pub use machine::{Machine, mac};
#[cfg(feature = "cluster")]
pub use metallb::METALLB;
#[cfg(feature = "cluster")]
pub use recorder::{Asked, Recorder};
pub use wait::{eventually, until};

/// A short random suffix for names that must not be those of another test.
pub fn unique() -> String {
    let mut bytes = [0u8; 4];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! The API conformance suite: what a client of the Kubernetes API may rely on, asserted alike on the
//! embedded server and on a real kube-apiserver (see `bowline-testing` for how to choose). Where ours
//! differs on purpose, `differences` or the transcript says so, with the reason.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod client;
mod differences;
mod discovery;
mod knots;
mod kubectl_change;
mod kubectl_look;
mod product;
mod transcripts;

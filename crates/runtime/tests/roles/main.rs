//! Tests of the roles as wired here, in the test's own process: controller and agents over the embedded API, look-ups, the
//! import of MetalLB's pools. One program for all of them, because each program takes seconds to link.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod agent;
mod certificates;
mod dns;
mod metallb;
mod service;
mod support;
mod traffic;
mod versions;

//! What an administrator gets beside the binary: the chart and the manifests made from it, the image's
//! recipe, monitoring, units for machines outside the cluster. Each is given to the program that it is
//! written for, and roles run with no more rights than it grants.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod chart;
mod confined;
mod container;
mod monitoring;
mod roles;
mod security;
mod tools;
mod vms;
mod vrrp;

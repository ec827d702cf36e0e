//! Which address a Service or a load balancer gets: from pools, by request and from DNS names, with the
//! real binary on an API of the test's own, and a real BIND where names are looked up. Only what the API
//! shows, or what a client meets, counts as proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod churn;
mod crooked;
mod crowd;
mod holders;
mod hostile;
mod metallb;
mod names;
mod pools;
mod release;
mod rules;
mod silent;
mod stage;
mod tenants;
mod traffic;

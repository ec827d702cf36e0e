//! From an object to a connection: every rule of Services and Ingresses, tried by clients and backends
//! that really talk, through the real binary, on the embedded API or a real one (see `bowline-testing`
//! for how to choose). Each test has a load balancer, addresses and a namespace of its own; `stage`
//! sets them up. Only what a client meets, or what the API shows, counts as proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod addresses;
mod crowd;
mod failures;
mod hostile;
mod ingresses;
mod leaders;
mod load;
mod members;
mod namespace;
mod observe;
mod services;
mod stage;
mod tls;
mod tuning;

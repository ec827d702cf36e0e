//! Two tenants share a load balancer, and one of them does what a tenant can do to take, exhaust or slow what
//! the other has. The other one sends requests all the time: none may fail. Each test names the attack;
//! docs/security.md lists them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod attack;
mod changes;
mod clients;
mod flood;
mod generations;
mod listeners;
mod programs;
#[path = "../traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;
mod takeover;
mod tenants;
mod turns;

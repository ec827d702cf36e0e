//! A running system is broken in one way at a time, really: for each way, what a client meets and what `bowline explain`,
//! statuses, conditions and Events say agree, and name the cause and a remedy. The test then follows the remedy:
//! where a command is printed, it runs what is printed. Then everything agrees again.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod addresses;
mod agents;
mod claims;
mod disk;
mod endpoints;
mod leaders;
mod listeners;
mod names;
mod patient;
mod printed;
mod programs;
#[path = "../traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;
mod tenants;

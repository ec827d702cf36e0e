//! The HAProxy driver end to end: real HAProxy, started by a real agent, carries real traffic. The stage is
//! the one of `tests/traffic`; only what a client meets, or what HAProxy's process list shows, is proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod edge;
mod faults;
mod load;
mod readme;
mod rules;
mod spread;
#[path = "../traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;

//! The nginx driver end to end: real nginx, started by a real agent, carries real traffic. The stage is the
//! one of `tests/traffic`; only what a client meets, or what nginx's processes show, is proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod edge;
mod faults;
mod load;
mod rules;
#[path = "../traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;

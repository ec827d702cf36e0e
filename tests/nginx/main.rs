//! The nginx driver end to end: real nginx, started by a real agent, carries real traffic. The stage is the
//! one of `tests/traffic`, most tests are those of `tests/program`;
//! only what a client meets, or what nginx's processes show, is proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod edge;
#[path = "../program/faults.rs"]
mod faults;
#[path = "../program/load.rs"]
mod load;
mod own;
#[path = "../program/play.rs"]
mod play;
#[path = "../program/readme.rs"]
mod readme;
#[path = "../program/rules.rs"]
mod rules;
#[path = "../program/settings.rs"]
mod settings;
#[path = "../program/spread.rs"]
mod spread;
#[path = "../traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;

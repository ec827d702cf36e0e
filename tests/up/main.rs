//! `bowline up` as its users and their accidents meet it: the real binary as a child process, on free
//! loopback ports and in scratch folders. Each module is about one promise; `bowline` starts and stops
//! the binary, `wire` speaks to its port byte by byte.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod access;
mod addresses;
mod bowline;
mod command_line;
mod demo;
mod disk;
mod durability;
mod ending;
mod folders;
mod hostile;
mod kubeconfig;
mod lines;
mod local;
mod look;
mod manifests;
mod metallb;
mod random;
mod resume;
mod storm;
mod tool;
mod top;
mod wire;

//! `bowline agent --template`, as a user of kube2lb meets it: the real binary on an API of the test's own,
//! files on disk, and real HAProxy and Caddy behind the templates of `examples/template`.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod files;
mod hostile;
mod notified;
mod planned;
mod programs;
mod readme;
mod stage;
mod tokens;

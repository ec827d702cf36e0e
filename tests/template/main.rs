//! `bowline agent --template`, as a user of kube2lb meets it: the real binary on an API of the test's own,
//! files on disk, and real HAProxy and Caddy behind the templates of `examples/template`.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod files;
mod holders;
mod hostile;
mod notified;
mod planned;
mod programs;
mod readme;
mod stage;

// How HAProxy and nginx read their files, as the tests of the drivers have it.
#[allow(dead_code, reason = "the drivers' tests use the rest")]
#[path = "../../crates/drivers/src/haproxy/tokens.rs"]
mod haproxy_tokens;
#[allow(dead_code, reason = "the drivers' tests use the rest")]
#[path = "../../crates/drivers/src/nginx/tokens.rs"]
mod nginx_tokens;

//! Which addresses a node announces, with the real binary on an API of the test's own and a real router. Only the
//! router's own table counts as proof.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod bgp;
mod fabric;
mod lan;
mod links;
mod migrate;
mod nodes;
mod router;
mod stage;
mod told;
mod two_clusters;

//! Sessions with real routers: FRR, BIRD and GoBGP, each in a network of its own. What a test believes is the table of
//! the router. The speaker is a process of its own, so that it can be killed.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod bird;
mod detection;
mod frr;
mod gobgp;
mod network;
mod process;
mod restart;
mod router;
mod sessions;

use router::{Router, Seen, Setup};

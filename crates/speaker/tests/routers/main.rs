//! Sessions with real routers: FRR, BIRD and GoBGP, each in a network of its own. What a test believes is the table of
//! the router. The speaker is a process of its own, so that it can be killed.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "real routers live by the real clock")]

mod bird;
mod detection;
mod frr;
mod gobgp;
mod many;
mod network;
mod process;
mod recording;
mod restart;
mod router;
mod sessions;
mod unnumbered;

use router::{Router, Seen, Setup};

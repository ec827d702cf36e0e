//! Announcing: which addresses this node makes known to the network, by which protocol, to which peers, and why an
//! address is announced by no node.
//!
//! The values of Advertisements and BGPPeers are here, parsed once by `bowline-api`. Nothing here opens a socket;
//! `bowline-speaker` does what is decided here.

mod advertisement;
mod community;
mod peer;
mod route;

pub use advertisement::{Advertisement, ByBgp, ByL2, Covers, Lengths};
pub use community::{Community, NotACommunity};
pub use peer::{Bfd, Peer, PeerAsn, PeerTarget};
pub use route::Route;

//! Announcing: which addresses this node makes known to the network, by which protocol, to which peers, and why an
//! address is announced by no node.
//!
//! ```text
//!  Addresses, Advertisements, BGPPeers, AddressPools,        ┌─ Peer, Announce, Withdraw ─▶ BGP sessions
//!  Nodes, Services, EndpointSlices ─────────┐                ├─ Offer, Decline ───────────▶ ARP and neighbour discovery
//!  agents: which listeners are open ────────┼▶ Announcements ┼─ Hold, Release, Refuse ────▶ addresses of the node
//!  kube-proxy's health, other speakers ─────┘                └─ Check ────────────────────▶ health checks
//! ```
//!
//! The values of Advertisements and BGPPeers are here, parsed once by `bowline-api`. Nothing here opens a socket;
//! the runtime's speaker feeds [`Announcements`], and `bowline-speaker` does what it decides.

mod advertisement;
mod announced;
mod community;
mod decide;
mod endpoints;
mod event;
mod machine;
mod moves;
mod peer;
mod route;
mod routes;
mod speakers;
#[cfg(test)]
mod tests;
mod why;

pub use advertisement::{Advertisement, ByBgp, ByL2, Covers, Lengths};
pub use community::{Community, NotACommunity};
pub use event::{
    AnnouncedService, Announcing, Candidate, Effect, Event, Kind, Listening, Name, Object, Ports,
    SpeakerNode,
};
pub use machine::{Announced, Announcements};
pub use moves::{Moves, Wish};
pub use peer::{Bfd, Peer, PeerAsn, PeerTarget};
pub use route::Route;
pub use speakers::{AnnouncedBy, SpeakerLease, SpeakerNews, Speakers, conflict};
pub use why::WhyNot;

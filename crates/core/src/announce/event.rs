//! What happens to the machine and what it asks for. Events come from watches, from agents over their socket, from
//! health checks and from other speakers; effects go to the sockets.

use super::{Advertisement, Peer, Route};
use crate::addresses::{Labels, Record};
use crate::key::ObjectKey;
use crate::objects::Slice;
use crate::plan::Transport;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A Node, as far as announcing depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeakerNode {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: Labels,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether no new Pods may be placed on it.
    pub cordoned: bool,
    /// Whether load balancers must not use it.
    pub excluded: bool,
    /// Whether it is deleted or shut down.
    pub leaving: bool,
    /// Where other nodes of the cluster reach it, the best one first.
    pub addresses: Vec<IpAddr>,
}

impl SpeakerNode {
    /// A machine without a Node object: nothing speaks against it.
    pub fn without_object(name: Arc<str>) -> Self {
        Self { name, ready: true, ..Self::default() }
    }

    /// Whether it announces only what no other node does.
    pub fn is_doubtful(&self) -> bool {
        !self.ready || self.cordoned
    }

    /// Whether it is certain to serve.
    pub fn is_sound(&self) -> bool {
        !self.is_doubtful() && !self.excluded && !self.leaving
    }
}

/// A Service that may hold addresses, as far as announcing depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedService {
    /// Its labels.
    pub labels: Labels,
    /// `externalTrafficPolicy: Local`: only nodes with an endpoint serve it.
    pub local_only: bool,
    /// Where kube-proxy says whether the node has an endpoint.
    pub health_check_port: Option<u16>,
}

/// Kinds of objects that the machine observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Addresses.
    Address,
    /// Advertisements.
    Advertisement,
    /// BGPPeers.
    Peer,
    /// AddressPools.
    Pool,
    /// Nodes.
    Node,
    /// Services.
    Service,
    /// EndpointSlices.
    Slice,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Address,
        Self::Advertisement,
        Self::Peer,
        Self::Pool,
        Self::Node,
        Self::Service,
        Self::Slice,
    ];
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// An Address, and where its status says that it is announced.
    Address(Record, Announcing),
    /// An Advertisement.
    Advertisement(Arc<Advertisement>),
    /// A BGPPeer.
    Peer(Arc<Peer>),
    /// An AddressPool, with its labels.
    Pool(Arc<str>, Labels),
    /// A Node.
    Node(SpeakerNode),
    /// A Service.
    Service(ObjectKey, AnnouncedService),
    /// An EndpointSlice.
    Slice(Slice),
}

/// The nodes that announce an address by BGP, as the leader records it in the status of the Address. A speaker that takes no
/// part in gossip knows other speakers by this alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcing {
    /// How many there are.
    pub nodes: usize,
    /// The first of them by name.
    pub first: Box<[Arc<str>]>,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// An Address.
    Address(IpAddr),
    /// An Advertisement.
    Advertisement(Arc<str>),
    /// A BGPPeer.
    Peer(Arc<str>),
    /// An AddressPool.
    Pool(Arc<str>),
    /// A Node.
    Node(Arc<str>),
    /// A Service.
    Service(ObjectKey),
    /// An EndpointSlice.
    Slice(ObjectKey),
}

/// The ports of an address at which an agent listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<BTreeSet<(Transport, u16)>>", into = "Option<BTreeSet<(Transport, u16)>>")]
pub enum Ports {
    /// The agent does not say.
    #[default]
    Unknown,
    /// These, and no others.
    Only(Arc<BTreeSet<(Transport, u16)>>),
}

impl Ports {
    /// The ports of two agents together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Only(one), Self::Only(two)) if one == two => self.clone(),
            (Self::Only(one), Self::Only(two)) => {
                Self::Only(Arc::new(one.iter().chain(&**two).copied().collect()))
            }
            _ => Self::Unknown,
        }
    }
}

impl From<Option<BTreeSet<(Transport, u16)>>> for Ports {
    fn from(ports: Option<BTreeSet<(Transport, u16)>>) -> Self {
        ports.map_or(Self::Unknown, |ports| Self::Only(Arc::new(ports)))
    }
}

impl From<Ports> for Option<BTreeSet<(Transport, u16)>> {
    fn from(ports: Ports) -> Self {
        match ports {
            Ports::Unknown => None,
            Ports::Only(ports) => Some((*ports).clone()),
        }
    }
}

/// What an agent says of an address in its Plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Whether what holds the address is served there.
    pub open: bool,
    /// The ports of its listeners, open or not.
    #[serde(default)]
    pub ports: Ports,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins. Objects that it does not deliver are deleted.
    Begin(Kind),
    /// An object as it is now.
    Apply(Object),
    /// An object is there and cannot be read: it counts as it was before.
    Unreadable(Name),
    /// An object is deleted.
    Delete(Name),
    /// The list of all objects of a kind has ended.
    Done(Kind),
    /// The addresses in the Plan of a load balancer whose agent runs on this node, and what listens at each. None: the
    /// agent has ended.
    Agent(Arc<str>, Option<BTreeMap<IpAddr, Listening>>),
    /// Of the addresses that are wanted on the node itself, these are there. An address behind an agent is announced
    /// only then.
    Present(BTreeSet<IpAddr>),
    /// What kube-proxy answers at the health check port of a Service. None: it does not answer.
    Health(ObjectKey, Option<bool>),
    /// The speaker of another node runs, or does not.
    Speaker(Arc<str>, bool),
    /// The speaker of another node says that an agent there serves an address, or no longer does.
    ServedAt(IpAddr, Arc<str>, bool),
    /// This node leaves: nothing is announced any more.
    Leave,
}

/// How this node offers itself as the owner of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The interfaces that answer. Empty: all of them.
    pub interfaces: BTreeSet<Arc<str>>,
    /// It comes before nodes that are not preferred.
    pub preferred: bool,
    /// It serves the address still, but another node should take it over.
    pub draining: bool,
}

/// What is to be done. Effects of one take are carried out in their order: an address is on the node before it is
/// announced, and leaves it after it is withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A session with this peer is wanted, with this configuration.
    Peer(Arc<Peer>),
    /// An address is wanted on the node itself, where these of its ports are open to the network.
    Hold(IpAddr, Ports),
    /// The health check of a Service is wanted at this port. None: no longer.
    Check(ObjectKey, Option<u16>),
    /// Packets to addresses of this prefix that nobody holds are to be refused: it is announced as a whole.
    Refuse(IpNet),
    /// A peer is to be told a route.
    Announce(Arc<str>, IpNet, Arc<Route>),
    /// This node may own an address on its links.
    Offer(IpAddr, Candidate),
    /// Everything that is known is announced: routers that kept routes over a restart may forget the others, and
    /// addresses that an earlier process left on the node may go.
    Complete,
    /// A peer is to forget a route.
    Withdraw(Arc<str>, IpNet),
    /// This node may not own an address any more.
    Decline(IpAddr),
    /// A prefix is no longer announced as a whole.
    Accept(IpNet),
    /// An address is no longer wanted on the node itself.
    Release(IpAddr),
    /// No session with this peer is wanted. Its routes go with it.
    Forget(Arc<str>),
}

impl Effect {
    /// The place in the order of a take.
    pub(super) fn place(&self) -> u8 {
        match self {
            Self::Peer(_) => 0,
            Self::Hold(..) => 1,
            Self::Check(..) => 2,
            Self::Refuse(_) => 3,
            Self::Announce(..) => 4,
            Self::Offer(..) => 5,
            Self::Complete => 6,
            Self::Withdraw(..) => 7,
            Self::Decline(_) => 8,
            Self::Accept(_) => 9,
            Self::Release(_) => 10,
            Self::Forget(_) => 11,
        }
    }
}

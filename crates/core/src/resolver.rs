//! The agent's index: joins the plan of one load balancer with EndpointSlices, Nodes and certificates
//! into what a driver applies. It touches only pools whose members an event may have changed.

use crate::key::ObjectKey;
use crate::objects::{Node, Slice};
use crate::plan::Fragment;
use crate::update::Certificate;
use std::sync::Arc;

/// Kinds that the resolver is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Plan objects of the load balancer.
    Shard,
    /// EndpointSlice.
    Slice,
    /// Node.
    Node,
    /// Secrets of our own with certificates of the load balancer.
    Certificates,
}

/// An object that the resolver is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Plan object: its name and its fragments. A fragment in two of them counts once, from the
    /// one with the lower name.
    Shard(Arc<str>, Vec<Fragment>),
    /// An EndpointSlice.
    Slice(Slice),
    /// A Node.
    Node(Node),
    /// A Secret of ours: its name, and certificates by hash.
    Certificates(Arc<str>, Vec<(Arc<str>, Arc<Certificate>)>),
}

/// What the resolver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All objects of a kind follow; those that do not are gone.
    Begin(Kind),
    /// An object as it is now.
    Apply(Object),
    /// An object is gone. Of Plans and Secrets only the name counts.
    Delete(Kind, ObjectKey),
    /// All objects of a kind have been told.
    Done(Kind),
}

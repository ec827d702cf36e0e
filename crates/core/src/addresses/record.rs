//! The content of an `Address` object as values: its holders, their terms, and whether the address drains or rests.
//! Data only. The machine compares it with what it wants; `bowline-api` turns it into objects and back.

use crate::key::ObjectKey;
use crate::objects::{Timestamp, Version};
use crate::plan::Transport;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Kinds of objects that can hold an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HolderKind {
    /// A Service.
    Service,
    /// A load balancer with `spec.addressPool`.
    LoadBalancer,
    /// One Pod of a Service, by its ExternalIP.
    ExternalIp,
}

impl fmt::Display for HolderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::LoadBalancer => "LoadBalancer",
            Self::ExternalIp => "ExternalIP",
        })
    }
}

/// An object that has, or wants, an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderRef {
    /// Its namespace (empty for a LoadBalancer) and name.
    pub key: ObjectKey,
    /// Its kind.
    pub kind: HolderKind,
    /// Its uid: another object of the same name is another holder.
    pub uid: Arc<str>,
}

impl HolderRef {
    pub(super) fn holder_key(&self) -> HolderKey {
        HolderKey { key: self.key.clone(), kind: self.kind }
    }
}

impl fmt::Display for HolderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// A holder by kind and name, whatever its uid: an object that is created again takes the place of the old one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HolderKey {
    pub(super) key: ObjectKey,
    pub(super) kind: HolderKind,
}

impl fmt::Display for HolderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// The order of requesters: the oldest first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Age {
    pub(super) created: Timestamp,
    pub(super) holder: HolderKey,
}

/// A port in use on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Its protocol.
    pub transport: Transport,
    /// Its number.
    pub number: u16,
}

/// A holder of an address, and the terms under which it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The object that holds it.
    pub holder: HolderRef,
    /// The ports it uses on the address; sorted. Empty: all of them.
    pub ports: Vec<Port>,
    /// The key under which it shares the address. None: it does not share.
    pub key: Option<Arc<str>>,
    /// The load balancer on which it has the address. None: it has it alone, or is one itself.
    pub load_balancer: Option<Arc<str>>,
    /// Since when it has the address.
    pub since: Timestamp,
}

/// The state of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// In use.
    Active,
    /// Holders of it that have another address of the same family leave it at that time.
    Draining {
        /// When.
        until: Timestamp,
    },
    /// It has no holder, and is not granted before that time.
    Resting {
        /// When.
        until: Timestamp,
    },
}

/// The content of an `Address` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The pool that the address is from.
    pub pool: Option<Arc<str>>,
    /// Its holders, in the order in which they got it.
    pub holders: Vec<Holder>,
    /// Its state.
    pub state: AddressState,
}

impl Content {
    pub(super) fn has(&self, uid: &str) -> bool {
        self.holder(uid).is_some()
    }

    pub(super) fn holder(&self, uid: &str) -> Option<&Holder> {
        self.holders.iter().find(|it| *it.holder.uid == *uid)
    }

    /// The key under which it is shared. All holders that share an address have the same key.
    pub(super) fn key(&self) -> Option<&Arc<str>> {
        self.holders.first().and_then(|it| it.key.as_ref())
    }
}

/// An `Address` object as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The address.
    pub address: IpAddr,
    /// Its resourceVersion.
    pub version: Version,
    /// Its content.
    pub content: Content,
}

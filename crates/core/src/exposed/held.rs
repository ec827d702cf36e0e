//! What Services have in the files that templates made last: the memory of this mode, which has no Plans. A
//! Service keeps a port and a namespace keeps a name while they ask for it, however old others are that ask
//! for the same later. The caller keeps it beside the files, so that it outlives a restart.

use super::view::Entry;
use crate::key::ConsumerRef;
use crate::plan::Transport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The ports and names that Services have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    ports: BTreeSet<Port>,
    names: BTreeSet<Name>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Port {
    consumer: ConsumerRef,
    ip: IpAddr,
    port: u16,
    transport: Transport,
    mode: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Name {
    namespace: Arc<str>,
    ip: IpAddr,
    port: u16,
    name: String,
}

impl Held {
    /// Reads what [`Self::to_json`] wrote; None: it cannot be read.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// A text to be kept. Nothing in it can fail to be written.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the Service has the port of this entry. Another mode is another wish: what shares a port
    /// must not get it for itself alone by changing it.
    pub(super) fn has_port(&self, entry: &Entry) -> bool {
        self.ports.contains(&port(entry))
    }

    /// Whether the namespace of this entry has the name at its port.
    pub(super) fn has_name(&self, entry: &Entry, text: &str) -> bool {
        self.names.contains(&name(entry, text))
    }

    /// The Service has the port of this entry, and its namespace these names.
    pub(super) fn add<'a>(&mut self, entry: &Entry, names: impl IntoIterator<Item = &'a str>) {
        self.ports.insert(port(entry));
        self.names.extend(names.into_iter().map(|text| name(entry, text)));
    }
}

fn port(entry: &Entry) -> Port {
    let spec = &entry.port;
    Port {
        consumer: entry.consumer.clone(),
        ip: spec.ip.to_canonical(),
        port: spec.port,
        transport: spec.transport,
        mode: spec.mode.clone(),
    }
}

fn name(entry: &Entry, text: &str) -> Name {
    Name {
        namespace: entry.consumer.namespace.clone(),
        ip: entry.port.ip.to_canonical(),
        port: entry.port.port,
        name: text.to_ascii_lowercase(),
    }
}

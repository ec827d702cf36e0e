//! The ports and names that Services have in the files that templates made last: the memory of kube2lb's templates,
//! which have no Plans. A Service keeps a port and a namespace keeps a name while they ask for it, even if an older Service asks
//! for the same later. It decides nothing; the caller stores it beside the files, so that it survives a restart.

use super::view::{Entry, PortSpec};
use crate::key::ConsumerRef;
use crate::plan::Transport;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The ports and names that Services have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    ports: BTreeSet<Port>,
    names: BTreeSet<Name>,
    /// The names that are regular expressions, in the order in which namespaces got them. Files of older versions do
    /// not have it.
    #[serde(default)]
    expressions: Vec<Name>,
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

impl Name {
    fn is_expression(&self) -> bool {
        self.name.starts_with('~')
    }
}

/// See [`Held::ranks`].
pub(super) struct Ranks<'a>(BTreeMap<&'a Name, usize>);

impl Ranks<'_> {
    /// The position of an expression of a namespace at a port; after all others if it is not held.
    pub(super) fn of(&self, namespace: &Arc<str>, port: &PortSpec, text: &str) -> usize {
        self.0.get(&name_at(namespace, port, text)).copied().unwrap_or(usize::MAX)
    }
}

impl Held {
    /// Reads what [`Self::to_json`] wrote; None: it cannot be read.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text to store. Serializing it cannot fail.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the Service has the port of this entry. In another mode it does not: a Service that shares a port must
    /// not get it alone by a change of its mode.
    pub(super) fn has_port(&self, entry: &Entry) -> bool {
        self.ports.contains(&port(entry))
    }

    /// Whether the namespace of this entry has the name at its port.
    pub(super) fn has_name(&self, entry: &Entry, text: &str) -> bool {
        self.names.contains(&name(entry, text))
    }

    /// Adds the port of this entry for its Service, and these names for its namespace.
    pub(super) fn add<'a>(&mut self, entry: &Entry, names: impl IntoIterator<Item = &'a str>) {
        self.ports.insert(port(entry));
        for name in names.into_iter().map(|text| name(entry, text)) {
            if self.names.insert(name.clone()) && name.is_expression() {
                self.expressions.push(name);
            }
        }
    }

    /// Puts the regular expressions in order: those of `before` as they were there, new ones after them.
    pub(super) fn after(mut self, before: &Self) -> Self {
        let unordered = before.names.iter().filter(|name| name.is_expression());
        let all = before.expressions.iter().chain(unordered).chain(&self.expressions);
        let mut seen = BTreeSet::new();
        let kept = all.filter(|name| self.names.contains(name) && seen.insert(*name)).cloned();
        self.expressions = kept.collect();
        self
    }

    /// The position of each expression in the order in which namespaces got them.
    pub(super) fn ranks(&self) -> Ranks<'_> {
        Ranks(self.expressions.iter().zip(0..).collect())
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
    name_at(&entry.consumer.namespace, &entry.port, text)
}

fn name_at(namespace: &Arc<str>, port: &PortSpec, text: &str) -> Name {
    Name {
        namespace: namespace.clone(),
        ip: port.ip.to_canonical(),
        port: port.port,
        name: text.to_ascii_lowercase(),
    }
}

//! Collects the refusals while a plan is rendered, and filters what every program leaves out alike: excluded consumers
//! and certificates, and addresses that cannot be bound. Each rendering has one. Pure.

use super::{Excluded, pem};
use crate::desired::Desired;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Problem, Reason};
use bowline_core::update::{Extent, ListenerKey, Refusal, ResolvedListener};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The configuration of a program, and what of the plan it does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered<W> {
    /// The configuration.
    pub wanted: W,
    /// What the program cannot do, sorted.
    pub refused: Vec<Refusal>,
}

/// The filter, with the refusals collected so far.
#[derive(Debug)]
pub(crate) struct RenderFilter<'a> {
    /// The program's name.
    name: &'static str,
    desired: &'a Desired,
    excluded: &'a Excluded,
    refused: BTreeSet<Refusal>,
}

impl<'a> RenderFilter<'a> {
    /// A filter that refuses every excluded consumer.
    pub(crate) fn new(name: &'static str, desired: &'a Desired, excluded: &'a Excluded) -> Self {
        let mut filter = Self { name, desired, excluded, refused: BTreeSet::new() };
        for (consumer, why) in &excluded.consumers {
            let message = format!("{name} refuses the configuration of this object: {why}");
            filter.refuse(consumer, Reason::NotSupported, message, Extent::All);
        }
        filter
    }

    /// Adds a refusal.
    pub(crate) fn refuse(
        &mut self,
        consumer: &ConsumerRef,
        reason: Reason,
        message: String,
        extent: Extent,
    ) {
        let problem = Problem::new(reason, message);
        self.refused.insert(Refusal { consumer: consumer.clone(), problem, extent });
    }

    /// Whether the whole consumer is excluded.
    pub(crate) fn is_excluded(&self, consumer: &ConsumerRef) -> bool {
        self.excluded.consumers.contains_key(consumer)
    }

    /// The listeners to open: their consumers are not excluded, and their addresses can be bound.
    pub(crate) fn listeners(&mut self) -> Vec<(&'a ListenerKey, &'a ResolvedListener)> {
        let mut open = Vec::new();
        for (key, resolved) in &self.desired.listeners {
            match self.excluded.listeners.get(key) {
                _ if self.is_excluded(&resolved.consumer) => {}
                Some(why) => {
                    let message = format!("{} cannot be bound: {why}", key.socket());
                    let extent = Extent::Listener(*key);
                    self.refuse(&resolved.consumer, Reason::BindFailed, message, extent);
                }
                None => open.push((key, &**resolved)),
            }
        }
        open
    }

    /// Refuses a listener with a protocol that the program does not support there.
    pub(crate) fn refuse_protocol(&mut self, key: &ListenerKey, resolved: &ResolvedListener) {
        let protocol = format!("{:?}", resolved.protocol()).to_uppercase();
        let message = format!("{}: {} does not carry {protocol} here", key.socket(), self.name);
        let extent = Extent::Listener(*key);
        self.refuse(&resolved.consumer, Reason::NotSupported, message, extent);
    }

    /// The certificates that can be served, with their keys, by hash.
    pub(crate) fn certificates(&mut self) -> BTreeMap<Arc<str>, Arc<str>> {
        let mut served = BTreeMap::new();
        for (hash, certificate) in &self.desired.certificates {
            let digits = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let bundle = match self.excluded.certificates.get(hash) {
                Some(why) => Err(format!("{} refuses it: {why}", self.name)),
                None if !digits => Err("its hash is not valid".to_owned()),
                None => pem::bundle(&certificate.chain, &certificate.key).map_err(str::to_owned),
            };
            match bundle {
                Ok(pem) => drop(served.insert(hash.clone(), pem.into())),
                Err(why) => self.refuse_certificate(hash, &why),
            }
        }
        served
    }

    fn refuse_certificate(&mut self, hash: &str, why: &str) {
        for (key, site) in &self.desired.sites {
            let certificate = site.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
            if certificate.is_none_or(|it| *it.hash != *hash) {
                continue;
            }
            for (_, consumer) in &site.rules {
                let message = format!("the certificate of {} cannot be served: {why}", key.host);
                self.refuse(consumer, Reason::BadCertificate, message, Extent::Part);
            }
        }
    }

    /// Adds the configuration to the collected refusals.
    pub(crate) fn rendered<W>(self, wanted: W) -> Rendered<W> {
        Rendered { wanted, refused: self.refused.into_iter().collect() }
    }
}

/// A hash of these texts with 16 hexadecimal digits.
pub(crate) fn short_hash(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

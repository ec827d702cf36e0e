//! What of a plan a program will not do, told on whom it concerns, and what every program leaves out alike:
//! consumers and certificates that it refused, addresses that cannot be bound. Renderers hold one; pure.

use super::{Excluded, pem};
use crate::desired::Desired;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Problem, Reason};
use bowline_core::update::{Extent, ListenerKey, Refusal, ResolvedListener};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a program is to have, and what of the plan is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered<W> {
    /// What it is to have.
    pub wanted: W,
    /// What it will not do, sorted.
    pub refused: Vec<Refusal>,
}

/// What is left out, and whom it is told.
#[derive(Debug)]
pub(crate) struct Sieve<'a> {
    /// How the program is called.
    name: &'static str,
    desired: &'a Desired,
    excluded: &'a Excluded,
    refused: BTreeSet<Refusal>,
}

impl<'a> Sieve<'a> {
    /// One that tells of all that was excluded.
    pub(crate) fn new(name: &'static str, desired: &'a Desired, excluded: &'a Excluded) -> Self {
        let mut sieve = Self { name, desired, excluded, refused: BTreeSet::new() };
        for (consumer, why) in &excluded.consumers {
            let message = format!("{name} refuses the configuration of this object: {why}");
            sieve.refuse(consumer, Reason::NotSupported, message, Extent::All);
        }
        sieve
    }

    /// Tells a consumer.
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

    /// Whether all of a consumer is left out.
    pub(crate) fn is_excluded(&self, consumer: &ConsumerRef) -> bool {
        self.excluded.consumers.contains_key(consumer)
    }

    /// Listeners that are to be opened: of consumers that are not left out, at addresses that can be bound.
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

    /// A listener of a kind that the program does not carry there.
    pub(crate) fn refuse_protocol(&mut self, key: &ListenerKey, resolved: &ResolvedListener) {
        let protocol = format!("{:?}", resolved.protocol()).to_uppercase();
        let message = format!("{}: {} does not carry {protocol} here", key.socket(), self.name);
        let extent = Extent::Listener(*key);
        self.refuse(&resolved.consumer, Reason::NotSupported, message, extent);
    }

    /// Certificates that can be served, with their keys, by hash.
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

    /// With what the program is to have then.
    pub(crate) fn rendered<W>(self, wanted: W) -> Rendered<W> {
        Rendered { wanted, refused: self.refused.into_iter().collect() }
    }
}

/// Sixteen digits that stand for these texts.
pub(crate) fn short_hash(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

//! Which namespace has which host of a load balancer, which Ingress has which path of it, and how the host
//! is served over TLS. A host belongs to the namespace for which Plans record it, as long as an Ingress
//! there wants it; else to that of the oldest Ingress with rules for it. A path belongs to the oldest
//! Ingress of that namespace. All Ingresses of one host get the same TLS, so that none serves it in the
//! clear because another one forgot.

use super::few::Edges;
use super::recorded::Records;
use super::who::{Age, Who};
use crate::key::ObjectKey;
use crate::plan::{Host, PathMatch, SiteTls};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an Ingress wants of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostWant {
    pub(super) paths: BTreeSet<PathMatch>,
    pub(super) tls: Option<TlsOffer>,
}

/// How an Ingress would serve a host over TLS.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TlsOffer {
    pub(super) site: SiteTls,
    /// The Secret that has the certificate, and the bytes of chain and key.
    pub(super) secret: Option<(ObjectKey, usize)>,
}

/// The wanted hosts of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    contenders: Edges<Host, Age>,
    /// The namespaces with an Ingress that wants a host, and how many of them do.
    namespaces: FxHashMap<Host, Vec<(Arc<str>, u32)>>,
    paths: Edges<(Host, Arc<str>, PathMatch), Age>,
    offers: FxHashMap<Host, BTreeMap<Age, TlsOffer>>,
}

impl Hosts {
    /// The namespace that a host belongs to, as one of them sees it: itself where the host is its own,
    /// else the first owner.
    pub(super) fn owner(
        &self,
        host: &Host,
        me: &Arc<str>,
        records: Records<'_>,
    ) -> Option<&Arc<str>> {
        let owners = self.owners(host, records);
        owners.iter().find(|owner| **owner == me).or(owners.first()).copied()
    }

    /// The namespaces that a host belongs to: several only while Plans of two leaders record it for
    /// several and no agent has said which of them it serves.
    pub(super) fn owners(&self, host: &Host, records: Records<'_>) -> Vec<&Arc<str>> {
        let wanting = self.namespaces.get(host).map(Vec::as_slice).unwrap_or_default();
        if let [(only, _)] = wanting {
            return vec![only];
        }
        let all = wanting.iter().map(|(namespace, _)| namespace);
        let mut recorded: Vec<_> = all.filter(|it| records.has_host(it, host)).collect();
        let oldest = |among: &[&Arc<str>]| {
            let mut ages = self.contenders.of(host).map(|age| &age.key.namespace);
            ages.find(|namespace| among.is_empty() || among.contains(namespace))
        };
        match recorded.len() {
            0 => oldest(&[]).into_iter().collect(),
            1 => recorded,
            _ => {
                let unserved = |it: &&Arc<str>| records.is_host_unserved(it, host);
                if recorded.iter().all(unserved) {
                    return oldest(&recorded).into_iter().collect();
                }
                recorded.retain(|it| !unserved(it));
                recorded
            }
        }
    }

    /// Whether Ingresses of more than one namespace want a host.
    pub(super) fn is_contended(&self, host: &Host) -> bool {
        self.namespaces.get(host).is_some_and(|all| all.len() > 1)
    }

    /// An Ingress of a namespace wants a host, or no longer.
    fn count(&mut self, host: &Host, namespace: &Arc<str>, wants: bool) {
        let all = self.namespaces.entry(host.clone()).or_default();
        let at = all.iter().position(|(it, _)| it == namespace);
        match (at, wants) {
            (Some(at), true) => all[at].1 += 1,
            (None, true) => all.push((namespace.clone(), 1)),
            (Some(at), false) => {
                all[at].1 -= 1;
                if all[at].1 == 0 {
                    all.remove(at);
                }
            }
            (None, false) => {}
        }
        if all.is_empty() {
            self.namespaces.remove(host);
        }
    }

    /// The Ingresses that want a host, the oldest first.
    pub(super) fn contenders(&self, host: &Host) -> impl Iterator<Item = Who> {
        self.contenders.of(host).map(|age| Who::ingress(&age.key))
    }

    /// The Ingress of this namespace that a path belongs to.
    pub(super) fn holder(
        &self,
        host: &Host,
        namespace: &Arc<str>,
        path: &PathMatch,
    ) -> Option<&ObjectKey> {
        let key = (host.clone(), namespace.clone(), path.clone());
        self.paths.first(&key).map(|age| &age.key)
    }

    /// How a namespace serves a host over TLS, and which Ingress says so: the oldest that has a
    /// certificate; failing that the oldest that wants TLS.
    pub(super) fn tls(&self, host: &Host, namespace: &str) -> Option<(&ObjectKey, &TlsOffer)> {
        let offers = || {
            let all = self.offers.get(host).into_iter().flatten();
            all.filter(|(age, _)| *age.key.namespace == *namespace)
        };
        let usable = offers().find(|(_, offer)| offer.site.certificate.is_some());
        usable.or_else(|| offers().next()).map(|(age, offer)| (&age.key, offer))
    }

    /// Changes what an Ingress wants of a host. Where that changes who has the host or a path, or its
    /// TLS, those who see it are touched.
    pub(super) fn change(
        &mut self,
        age: &Age,
        host: &Host,
        (old, new): (Option<&HostWant>, Option<&HostWant>),
        records: Records<'_>,
        touched: &mut BTreeSet<Who>,
    ) {
        let decided = |hosts: &Self| {
            let owners: Vec<_> = hosts.owners(host, records).into_iter().cloned().collect();
            let tls = |owner: &Arc<str>| {
                hosts.tls(host, owner).map(|(by, offer)| (by.clone(), offer.clone()))
            };
            let tls: Vec<_> = owners.iter().map(tls).collect();
            (owners, tls)
        };
        let before = decided(self);
        let none = HostWant::default();
        let (was, is) = (old.unwrap_or(&none), new.unwrap_or(&none));
        for path in was.paths.difference(&is.paths) {
            self.change_path(age, host, path, false, touched);
        }
        for path in is.paths.difference(&was.paths) {
            self.change_path(age, host, path, true, touched);
        }
        match new {
            Some(_) => self.contenders.insert(host.clone(), age.clone()),
            None => self.contenders.remove(host, age),
        }
        if old.is_some() != new.is_some() {
            self.count(host, &age.key.namespace, new.is_some());
        }
        self.change_offer(age, host, is.tls.as_ref());
        let after = decided(self);
        if before != after {
            let same_owners = before.0 == after.0;
            let sees = |age: &&Age| !same_owners || after.0.contains(&age.key.namespace);
            let who = self.contenders.of(host).filter(sees).map(|age| Who::ingress(&age.key));
            touched.extend(who);
        }
    }

    fn change_path(
        &mut self,
        age: &Age,
        host: &Host,
        path: &PathMatch,
        enters: bool,
        touched: &mut BTreeSet<Who>,
    ) {
        let key = (host.clone(), age.key.namespace.clone(), path.clone());
        let held = self.paths.first(&key) == Some(age);
        if enters {
            self.paths.insert(key.clone(), age.clone());
        } else {
            self.paths.remove(&key, age);
        }
        if held || self.paths.first(&key) == Some(age) {
            touched.extend(self.paths.of(&key).map(|age| Who::ingress(&age.key)));
        }
    }

    fn change_offer(&mut self, age: &Age, host: &Host, offer: Option<&TlsOffer>) {
        if let Some(offer) = offer {
            self.offers.entry(host.clone()).or_default().insert(age.clone(), offer.clone());
        } else if let Some(offers) = self.offers.get_mut(host) {
            offers.remove(age);
            if offers.is_empty() {
                self.offers.remove(host);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contenders.is_empty()
    }
}

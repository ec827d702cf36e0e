//! Who has which host and path of a load balancer, and how the host is served over TLS. A host belongs
//! to the namespace of the oldest Ingress that has rules for it, a path of it to the oldest Ingress of
//! that namespace; all Ingresses of one host get the same TLS, so that none serves it in the clear
//! because another one forgot.

use super::few::Edges;
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
    /// The Secret that has the certificate.
    pub(super) secret: Option<ObjectKey>,
}

/// The wanted hosts of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    contenders: Edges<Host, Age>,
    paths: Edges<(Host, Arc<str>, PathMatch), Age>,
    offers: FxHashMap<Host, BTreeMap<Age, TlsOffer>>,
}

impl Hosts {
    /// The namespace that a host belongs to.
    pub(super) fn owner(&self, host: &Host) -> Option<&Arc<str>> {
        self.contenders.first(host).map(|age| &age.key.namespace)
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

    /// How a host is served over TLS, and which Ingress says so: of those in the host's namespace the
    /// oldest that has a certificate; failing that the oldest that wants TLS.
    pub(super) fn tls(&self, host: &Host) -> Option<(&ObjectKey, &TlsOffer)> {
        let owner = self.owner(host)?;
        let offers = || {
            let all = self.offers.get(host).into_iter().flatten();
            all.filter(|(age, _)| age.key.namespace == *owner)
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
        old: Option<&HostWant>,
        new: Option<&HostWant>,
        touched: &mut BTreeSet<Who>,
    ) {
        let decided = |hosts: &Self| {
            let tls = hosts.tls(host).map(|(by, offer)| (by.clone(), offer.clone()));
            (hosts.owner(host).cloned(), tls)
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
        self.change_offer(age, host, is.tls.as_ref());
        let after = decided(self);
        if before != after {
            let same_owner = before.0 == after.0;
            let sees = |age: &&Age| !same_owner || Some(&age.key.namespace) == after.0.as_ref();
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

//! Which namespace owns which host of a load balancer, which Ingress holds which path of it, and how the host is served
//! over TLS. A host belongs to the namespace for which Plans record it, as long as an Ingress there wants it; else to
//! the namespace of the oldest Ingress with rules for it. A path belongs to the oldest Ingress of the owner. All
//! Ingresses of one host get the same TLS, so that none serves it in clear text because it lacks a TLS entry.

use super::consumer::{Age, ConsumerKey};
use super::edges::Edges;
use super::recorded::Records;
use crate::key::ObjectKey;
use crate::plan::{Host, PathMatch, SiteTls};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an Ingress wants for one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HostWant {
    pub(super) paths: BTreeSet<PathMatch>,
    pub(super) tls: Option<TlsOffer>,
}

/// How an Ingress would serve a host over TLS.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TlsOffer {
    pub(super) site: SiteTls,
    /// The Secret with the certificate, and the size of chain and private key.
    pub(super) secret: Option<(ObjectKey, usize)>,
}

/// The wanted hosts of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// The namespaces with an Ingress that wants a host.
    namespaces: FxHashMap<Host, Vec<Arc<str>>>,
    // By namespace: waiting Ingresses of other namespaces, however many, cost the owner of a host nothing.
    contenders: Edges<(Host, Arc<str>), Age>,
    paths: Edges<(Host, Arc<str>, PathMatch), Age>,
    offers: FxHashMap<(Host, Arc<str>), BTreeMap<Age, TlsOffer>>,
}

impl Hosts {
    /// The owner of a host, as one namespace sees it: itself where it is an owner, else the first owner.
    pub(super) fn owner(
        &self,
        host: &Host,
        me: &Arc<str>,
        records: Records<'_>,
    ) -> Option<&Arc<str>> {
        let owners = self.owners(host, records);
        owners.iter().find(|owner| **owner == me).or(owners.first()).copied()
    }

    /// The namespaces that own a host. There are several only while Plans of two leaders record the host for several
    /// and no agent has reported which of them it serves.
    pub(super) fn owners(&self, host: &Host, records: Records<'_>) -> Vec<&Arc<str>> {
        let wanting = self.wanting(host);
        if let [only] = wanting {
            return vec![only];
        }
        let mut recorded: Vec<_> = wanting.iter().filter(|it| records.has_host(it, host)).collect();
        let first = |it: &Arc<str>| self.contenders.first(&(host.clone(), it.clone()));
        let oldest = |among: &[&Arc<str>]| {
            let among = wanting.iter().filter(|it| among.is_empty() || among.contains(it));
            among.min_by_key(|it| first(it))
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
        self.wanting(host).len() > 1
    }

    /// The namespaces with an Ingress that wants a host.
    fn wanting(&self, host: &Host) -> &[Arc<str>] {
        self.namespaces.get(host).map(Vec::as_slice).unwrap_or_default()
    }

    /// Changes whether an Ingress wants a host.
    fn contend(&mut self, age: &Age, host: &Host, wants: bool) {
        let namespace = &age.key.namespace;
        let key = (host.clone(), namespace.clone());
        let had = self.contenders.first(&key).is_some();
        match wants {
            true => self.contenders.insert(key.clone(), age.clone()),
            false => self.contenders.remove(&key, age),
        }
        let has = self.contenders.first(&key).is_some();
        if had == has {
            return;
        }
        let all = self.namespaces.entry(host.clone()).or_default();
        match has {
            true => all.push(namespace.clone()),
            false => all.retain(|it| it != namespace),
        }
        if all.is_empty() {
            self.namespaces.remove(host);
        }
    }

    /// The Ingresses that want a host.
    pub(super) fn contenders(&self, host: &Host) -> impl Iterator<Item = ConsumerKey> {
        self.wanting(host).iter().flat_map(|namespace| self.contenders_of(host, namespace))
    }

    /// The Ingresses of a namespace that want a host.
    fn contenders_of<'a>(
        &'a self,
        host: &Host,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = ConsumerKey> + use<'a> {
        let key = (host.clone(), namespace.clone());
        self.contenders.of(&key).map(|age| ConsumerKey::ingress(&age.key))
    }

    /// The Ingress of this namespace that holds a path.
    pub(super) fn holder(
        &self,
        host: &Host,
        namespace: &Arc<str>,
        path: &PathMatch,
    ) -> Option<&ObjectKey> {
        let key = (host.clone(), namespace.clone(), path.clone());
        self.paths.first(&key).map(|age| &age.key)
    }

    /// How a namespace serves a host over TLS, and which Ingress says so: the oldest one with a certificate, else the
    /// oldest one that wants TLS.
    pub(super) fn tls(&self, host: &Host, namespace: &Arc<str>) -> Option<(&ObjectKey, &TlsOffer)> {
        let offers = self.offers.get(&(host.clone(), namespace.clone()))?;
        let usable = offers.iter().find(|(_, offer)| offer.site.certificate.is_some());
        usable.or_else(|| offers.iter().next()).map(|(age, offer)| (&age.key, offer))
    }

    /// Changes what an Ingress wants for a host. Where that changes the owner of the host, the holder of a path, or the
    /// TLS, the affected Ingresses are touched.
    pub(super) fn change(
        &mut self,
        age: &Age,
        host: &Host,
        (old, new): (Option<&HostWant>, Option<&HostWant>),
        records: Records<'_>,
        touched: &mut BTreeSet<ConsumerKey>,
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
        self.contend(age, host, new.is_some());
        self.change_offer(age, host, is.tls.as_ref());
        let after = decided(self);
        if before.0 != after.0 {
            touched.extend(self.contenders(host));
        } else if before != after {
            touched.extend(after.0.iter().flat_map(|owner| self.contenders_of(host, owner)));
        }
    }

    fn change_path(
        &mut self,
        age: &Age,
        host: &Host,
        path: &PathMatch,
        enters: bool,
        touched: &mut BTreeSet<ConsumerKey>,
    ) {
        let key = (host.clone(), age.key.namespace.clone(), path.clone());
        let held = self.paths.first(&key) == Some(age);
        if enters {
            self.paths.insert(key.clone(), age.clone());
        } else {
            self.paths.remove(&key, age);
        }
        if held || self.paths.first(&key) == Some(age) {
            touched.extend(self.paths.of(&key).map(|age| ConsumerKey::ingress(&age.key)));
        }
    }

    fn change_offer(&mut self, age: &Age, host: &Host, offer: Option<&TlsOffer>) {
        let key = (host.clone(), age.key.namespace.clone());
        if let Some(offer) = offer {
            self.offers.entry(key).or_default().insert(age.clone(), offer.clone());
        } else if let Some(offers) = self.offers.get_mut(&key) {
            offers.remove(age);
            if offers.is_empty() {
                self.offers.remove(&key);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contenders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Timestamp;
    use crate::planner::recorded::Recorded;

    fn age(namespace: &str, created: Timestamp) -> Age {
        Age { created, key: ObjectKey::new(namespace, format!("i{created}")) }
    }

    #[test]
    fn ingresses_that_wait_for_the_host_of_another_namespace_are_not_looked_at_when_it_changes() {
        let (host, lb) = (Host::Exact("shop.example".into()), Arc::from("lb"));
        let recorded = Recorded::default();
        let records = Records { recorded: &recorded, lb: &lb };
        let want = |redirect| {
            let site = SiteTls { certificate: None, redirect };
            let tls = Some(TlsOffer { site, secret: None });
            HostWant { paths: BTreeSet::new(), tls }
        };
        let (old, new) = (want(false), want(true));
        let mut hosts = Hosts::default();
        let mut touched = BTreeSet::new();
        let shop = age("shop", 0);
        hosts.change(&shop, &host, (None, Some(&old)), records, &mut touched);
        for created in 1..=1_000 {
            let evil = age("evil", created);
            hosts.change(&evil, &host, (None, Some(&old)), records, &mut touched);
        }
        touched.clear();
        hosts.change(&shop, &host, (Some(&old), Some(&new)), records, &mut touched);
        assert_eq!(touched, [ConsumerKey::ingress(&shop.key)].into());
        // The owner's entries hold nothing of the waiting namespace.
        let own = (host.clone(), shop.key.namespace.clone());
        assert_eq!((hosts.offers[&own].len(), hosts.contenders.of(&own).count()), (1, 1));
        assert_eq!(hosts.tls(&host, &own.1), Some((&shop.key, new.tls.as_ref().unwrap())));
        // The oldest waiting Ingress comes next.
        touched.clear();
        hosts.change(&shop, &host, (Some(&new), None), records, &mut touched);
        assert_eq!(
            (hosts.owners(&host, records), touched.len()),
            (vec![&Arc::from("evil")], 1_000)
        );
    }
}

//! Sites with the rules of all consumers for one host, and the certificates that they refer to. A host that the plan
//! has for two namespaces stays with the one for which it was served first. It reads no Secret; the resolver feeds it.

use super::pieces::Pieces;
use super::shards::Part;
use super::{Contested, Unserved};
use crate::key::ConsumerRef;
use crate::plan::{CertificateRef, Host, SiteTls};
use crate::relist::{Epoch, Relist};
use crate::update::{Certificate, Change, Extent, ResolvedSite, SiteKey, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All sites and certificates, and those to visit.
#[derive(Debug, Default)]
pub(super) struct Sites {
    sites: BTreeMap<SiteKey, Entry>,
    dirty: BTreeSet<SiteKey>,
    /// Sites that the plan has for several namespaces.
    contested: BTreeSet<SiteKey>,
    /// The namespaces for which sites were served before a restart. They count until the first update.
    recalled: BTreeMap<SiteKey, Arc<str>>,
    secrets: BTreeMap<Arc<str>, (Epoch, ByName)>,
    certificates: BTreeMap<Arc<str>, Held>,
    dirty_certificates: BTreeSet<Arc<str>>,
}

type ByName = BTreeMap<Arc<str>, Arc<Certificate>>;

#[derive(Debug, Default)]
struct Entry {
    pieces: Pieces,
    /// The namespace that owns the host, as long as the plan has a site of it.
    owner: Arc<str>,
    given: Option<Arc<ResolvedSite>>,
    /// The certificates that it uses, or for which it waits.
    certificates: BTreeSet<Arc<str>>,
}

impl Entry {
    /// Chooses the namespace that owns the host now.
    fn choose_owner(&mut self) {
        let mut namespaces = self.pieces.iter().map(|(part, _)| &part.key.0.namespace);
        if namespaces.all(|namespace| *namespace != self.owner)
            && let Some((part, _)) = self.pieces.first()
        {
            self.owner = part.key.0.namespace.clone();
        }
    }

    /// The consumers of other namespaces for which the plan has the host.
    fn others(&self) -> impl Iterator<Item = &ConsumerRef> {
        let all = self.pieces.iter().map(|(part, _)| &part.key.0);
        all.filter(|consumer| consumer.namespace != self.owner)
    }
}

/// A certificate: the Secrets with it, the sites that use it or wait for it, and the one in the driver. It is in use as
/// long as the plan names it: when a Secret loses it, the hosts that have it keep it.
#[derive(Debug, Default)]
struct Held {
    /// By name of the Secret; the first one counts.
    secrets: ByName,
    sites: BTreeSet<SiteKey>,
    given: Option<Arc<Certificate>>,
}

impl Held {
    fn newest(&self) -> Option<&Arc<Certificate>> {
        self.secrets.values().next().or(self.given.as_ref())
    }
}

impl Sites {
    /// Notes that a site was served for this namespace before a restart.
    pub(super) fn recall(&mut self, key: SiteKey, owner: Arc<str>) {
        self.recalled.insert(key, owner);
    }

    /// Adds the sites of a fragment.
    pub(super) fn add(&mut self, part: &Arc<Part>) {
        for (index, (key, _)) in part.sites.iter().enumerate() {
            self.sites.entry(key.clone()).or_default().pieces.add(part, index);
            self.dirty.insert(key.clone());
        }
    }

    /// Removes the sites of a fragment.
    pub(super) fn remove(&mut self, part: &Arc<Part>) {
        for (key, _) in &part.sites {
            if let Some(entry) = self.sites.get_mut(key) {
                entry.pieces.remove(part);
            }
            self.dirty.insert(key.clone());
        }
    }

    /// Takes a Secret as it is now.
    pub(super) fn apply_secret(
        &mut self,
        name: &Arc<str>,
        certificates: Vec<(Arc<str>, Arc<Certificate>)>,
        epoch: Epoch,
    ) {
        let (_, mut old) = self.secrets.remove(name).unwrap_or_default();
        let mut new = ByName::new();
        for (hash, certificate) in certificates {
            if old.remove(&hash).as_ref() != Some(&certificate) {
                let held = self.certificates.entry(hash.clone()).or_default();
                held.secrets.insert(name.clone(), certificate.clone());
                self.dirty_certificates.insert(hash.clone());
            }
            new.insert(hash, certificate);
        }
        old.keys().for_each(|hash| self.withdraw(name, hash));
        self.secrets.insert(name.clone(), (epoch, new));
    }

    /// Forgets a Secret.
    pub(super) fn delete_secret(&mut self, name: &str) {
        if let Some((_, certificates)) = self.secrets.remove(name) {
            certificates.keys().for_each(|hash| self.withdraw(name, hash));
        }
    }

    /// Forgets Secrets that the last list did not deliver.
    pub(super) fn sweep_secrets(&mut self, relist: Relist) {
        let missed = relist.missed(&self.secrets, |(epoch, _)| *epoch);
        missed.iter().for_each(|name| self.delete_secret(name));
    }

    fn withdraw(&mut self, secret: &str, hash: &Arc<str>) {
        if let Some(held) = self.certificates.get_mut(hash) {
            held.secrets.remove(secret);
        }
        self.dirty_certificates.insert(hash.clone());
    }

    /// Brings dirty sites and certificates up to date and adds the changes to the update.
    pub(super) fn take(&mut self, update: &mut Update) {
        for hash in &self.dirty_certificates {
            let sites = self.certificates.get(hash).into_iter().flat_map(|held| &held.sites);
            self.dirty.extend(sites.cloned());
        }
        for (key, owner) in std::mem::take(&mut self.recalled) {
            if let Some(entry) = self.sites.get_mut(&key).filter(|it| it.given.is_none()) {
                entry.owner = owner;
            }
        }
        for key in std::mem::take(&mut self.dirty) {
            update.sites.extend(self.take_site(key));
        }
        for hash in std::mem::take(&mut self.dirty_certificates) {
            update.certificates.extend(self.take_certificate(hash));
        }
    }

    fn take_site(&mut self, key: SiteKey) -> Option<Change<SiteKey, Arc<ResolvedSite>>> {
        let entry = self.sites.get_mut(&key)?;
        let before = entry.given.take();
        let mut uses = BTreeSet::new();
        entry.choose_owner();
        match entry.others().next() {
            Some(_) => self.contested.insert(key.clone()),
            None => self.contested.remove(&key),
        };
        // A site without rules only records that a namespace owns the host.
        let site = Some(merge(&entry.pieces, &entry.owner)).filter(|site| !site.rules.is_empty());
        let change = if let Some(mut site) = site {
            uses.extend(certificate(site.tls.as_ref()).cloned());
            keep_certificate(&mut site, before.as_deref(), &self.certificates);
            uses.extend(certificate(site.tls.as_ref()).cloned());
            match before {
                Some(before) if *before == site => {
                    entry.given = Some(before);
                    None
                }
                _ => {
                    let site = Arc::new(site);
                    entry.given = Some(site.clone());
                    Some(Change::Put(key.clone(), site))
                }
            }
        } else {
            before.map(|_| Change::Remove(key.clone()))
        };
        for hash in uses.difference(&entry.certificates) {
            self.certificates.entry(hash.clone()).or_default().sites.insert(key.clone());
            self.dirty_certificates.insert(hash.clone());
        }
        for hash in entry.certificates.difference(&uses) {
            if let Some(held) = self.certificates.get_mut(hash) {
                held.sites.remove(&key);
            }
            self.dirty_certificates.insert(hash.clone());
        }
        entry.certificates = uses;
        if entry.pieces.is_empty() {
            self.sites.remove(&key);
        }
        change
    }

    fn take_certificate(&mut self, hash: Arc<str>) -> Option<Change<Arc<str>, Arc<Certificate>>> {
        let held = self.certificates.get_mut(&hash)?;
        let wanted = held.newest().filter(|_| !held.sites.is_empty()).cloned();
        let unused = held.secrets.is_empty() && held.sites.is_empty();
        let change = match (&held.given, &wanted) {
            (Some(before), Some(now)) if before == now => None,
            (_, Some(now)) => Some(Change::Put(hash.clone(), now.clone())),
            (Some(_), None) => Some(Change::Remove(hash.clone())),
            (None, None) => None,
        };
        held.given = wanted;
        if unused {
            self.certificates.remove(&hash);
        }
        change
    }

    /// Certificates that a site uses or waits for and that no Secret has delivered.
    pub(super) fn missing_certificates(&self) -> impl Iterator<Item = &Arc<str>> {
        let missing = |held: &Held| held.given.is_none() && !held.sites.is_empty();
        self.certificates.iter().filter(move |(_, held)| missing(held)).map(|(hash, _)| hash)
    }

    /// Hosts that wait for a certificate, each with the consumers that have rules on it.
    pub(super) fn uncertified(&self) -> impl Iterator<Item = (&Host, &ConsumerRef)> {
        let waits = self.missing_certificates().filter_map(|hash| self.certificates.get(hash));
        let keys: BTreeSet<_> = waits.flat_map(|held| &held.sites).collect();
        keys.into_iter().filter_map(|key| self.sites.get_key_value(key)).flat_map(|(key, entry)| {
            entry.pieces.iter().map(move |(part, _)| (&key.host, &part.key.0))
        })
    }

    /// What the plan has for one consumer and is served for another namespace.
    pub(super) fn unserved(&self) -> impl Iterator<Item = Unserved<'_>> {
        let entries = self.contested.iter().filter_map(|key| self.sites.get_key_value(key));
        entries.flat_map(|(key, entry)| {
            entry.others().map(move |consumer| {
                let by = Contested::Host(&key.host, &entry.owner);
                Unserved { consumer, extent: Extent::Host(key.host.clone()), by }
            })
        })
    }

    /// Adds everything in the driver.
    pub(super) fn snapshot(&self, update: &mut Update) {
        let given =
            |(hash, held): (&Arc<str>, &Held)| Some(Change::Put(hash.clone(), held.given.clone()?));
        update.certificates.extend(self.certificates.iter().filter_map(given));
        let given =
            |(key, entry): (&SiteKey, &Entry)| Some(Change::Put(key.clone(), entry.given.clone()?));
        update.sites.extend(self.sites.iter().filter_map(given));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.secrets.is_empty() && self.certificates.is_empty()
    }
}

fn certificate(tls: Option<&SiteTls>) -> Option<&Arc<str>> {
    tls?.certificate.as_ref().map(|certificate| &certificate.hash)
}

/// The rules of all consumers in the host's namespace, the more specific first; and the TLS settings of the first
/// consumer that has any.
fn merge(pieces: &Pieces, owner: &Arc<str>) -> ResolvedSite {
    let sites = || {
        let all = pieces.iter().map(|(part, index)| (&part.key.0, &part.sites[index].1));
        all.filter(|(consumer, _)| consumer.namespace == *owner)
    };
    let tls = sites().find_map(|(_, site)| site.tls.clone());
    let mut rules: Vec<_> = sites()
        .flat_map(|(consumer, site)| site.rules.iter().map(move |rule| (rule, consumer)))
        .map(|(rule, consumer)| (rule.precedence(), rule, consumer))
        .collect();
    // Stable: rules of equal precedence stay in the order of their consumers.
    rules.sort_by(|a, b| a.0.cmp(&b.0));
    let rules = rules.into_iter().map(|(_, rule, consumer)| (rule.clone(), consumer.clone()));
    ResolvedSite { owner: owner.clone(), tls, rules: rules.collect() }
}

/// A renewed certificate may be named before it comes, since Plans and Secrets are watched separately. Until then the
/// host keeps the previous one.
fn keep_certificate(
    site: &mut ResolvedSite,
    before: Option<&ResolvedSite>,
    certificates: &BTreeMap<Arc<str>, Held>,
) {
    let is_here =
        |hash: &Arc<str>| certificates.get(hash).is_some_and(|held| held.newest().is_some());
    let Some(wanted) = certificate(site.tls.as_ref()) else { return };
    if is_here(wanted) {
        return;
    }
    let had = before.and_then(|before| certificate(before.tls.as_ref()));
    if let (Some(had), Some(tls)) = (had.filter(|hash| is_here(hash)), &mut site.tls) {
        tls.certificate = Some(CertificateRef { hash: had.clone() });
    }
}

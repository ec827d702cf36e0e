//! The certificates of all load balancers, and the Ingresses that are told of certificates without room.

use super::certificates::Certificates;
use super::observed::CertificatesSeen;
use bowline_core::relist::Missing;
use bowline_core::update::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CertificateBook {
    certificates: BTreeMap<Arc<str>, Certificates>,
    /// Secrets that the list under way has not delivered yet.
    missing: Missing<(Arc<str>, String)>,
    /// Certificates that have no room on a load balancer, each on the Ingress that it concerns; sorted.
    withheld: BTreeMap<Arc<str>, Vec<Refusal>>,
}

impl CertificateBook {
    pub(super) fn get(&self, lb: &str) -> Option<&Certificates> {
        self.certificates.get(lb)
    }

    pub(super) fn get_mut(&mut self, lb: &str) -> Option<&mut Certificates> {
        self.certificates.get_mut(lb)
    }

    pub(super) fn entry(&mut self, lb: &Arc<str>) -> &mut Certificates {
        self.certificates.entry(Arc::clone(lb)).or_default()
    }

    /// Load balancers with certificates.
    pub(super) fn load_balancers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.certificates.keys()
    }

    /// Whether a load balancer does not have a certificate.
    pub(super) fn lacks(&self, lb: &str, hash: &Arc<str>) -> bool {
        self.certificates.get(lb).is_none_or(|it| it.lacks(hash))
    }

    /// A list of Secrets begins.
    pub(super) fn begin(&mut self) {
        let all = self.certificates.iter().flat_map(|(lb, it)| {
            it.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
        });
        self.missing.begin(all);
    }

    /// A Secret of a load balancer.
    pub(super) fn apply(&mut self, secret: CertificatesSeen) {
        let lb = Arc::clone(&secret.load_balancer);
        self.missing.observe(&(Arc::clone(&lb), secret.name.clone()));
        self.entry(&lb).seen(secret);
    }

    /// A Secret of a load balancer is gone.
    pub(super) fn delete(&mut self, lb: &str, name: &str) {
        if let Some(certificates) = self.certificates.get_mut(lb) {
            certificates.gone(name);
        }
    }

    /// A list of Secrets has ended: the Secrets that it did not deliver.
    pub(super) fn done(&mut self) -> BTreeSet<(Arc<str>, String)> {
        self.missing.done()
    }

    /// Certificates without room, each on the Ingress that it concerns.
    pub(super) fn withheld(&self, lb: &str) -> &[Refusal] {
        self.withheld.get(lb).map_or(&[], Vec::as_slice)
    }

    /// Replaces the refusals for certificates without room. Returns the ones before.
    pub(super) fn withhold(&mut self, lb: &Arc<str>, now: Vec<Refusal>) -> Vec<Refusal> {
        let before = self.withheld.remove(lb).unwrap_or_default();
        if !now.is_empty() {
            self.withheld.insert(Arc::clone(lb), now);
        }
        before
    }
}

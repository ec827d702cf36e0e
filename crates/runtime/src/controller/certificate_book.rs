//! The certificates of all load balancers, and the refusals of Ingresses whose certificate is withheld.
//! It does no I/O.

use super::certificates::Certificates;
use super::observed::CertificatesSeen;
use bowline_core::relist::Missing;
use bowline_core::update::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The certificates and refusals, by load balancer.
#[derive(Debug, Default)]
pub(super) struct CertificateBook {
    certificates: BTreeMap<Arc<str>, Certificates>,
    /// Secrets that the current list has not delivered yet.
    missing: Missing<(Arc<str>, String)>,
    /// By load balancer: the refusals of Ingresses whose certificate is withheld, sorted.
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

    /// Begins a list of Secrets.
    pub(super) fn begin(&mut self) {
        let all = self.certificates.iter().flat_map(|(lb, it)| {
            it.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
        });
        self.missing.begin(all);
    }

    /// Takes in a Secret of a load balancer.
    pub(super) fn apply(&mut self, secret: CertificatesSeen) {
        let lb = Arc::clone(&secret.load_balancer);
        self.missing.observe(&(Arc::clone(&lb), secret.name.clone()));
        self.entry(&lb).seen(secret);
    }

    /// A Secret of a load balancer is deleted.
    pub(super) fn delete(&mut self, lb: &str, name: &str) {
        if let Some(certificates) = self.certificates.get_mut(lb) {
            certificates.gone(name);
        }
    }

    /// Ends a list of Secrets. Returns the Secrets that it did not deliver.
    pub(super) fn done(&mut self) -> BTreeSet<(Arc<str>, String)> {
        self.missing.done()
    }

    /// The refusals of Ingresses whose certificate is withheld.
    pub(super) fn withheld(&self, lb: &str) -> &[Refusal] {
        self.withheld.get(lb).map_or(&[], Vec::as_slice)
    }

    /// Replaces the refusals of Ingresses whose certificate is withheld. Returns the ones before.
    pub(super) fn withhold(&mut self, lb: &Arc<str>, now: Vec<Refusal>) -> Vec<Refusal> {
        let before = self.withheld.remove(lb).unwrap_or_default();
        if !now.is_empty() {
            self.withheld.insert(Arc::clone(lb), now);
        }
        before
    }
}

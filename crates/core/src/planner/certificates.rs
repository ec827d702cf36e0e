//! Which certificates the plan of a load balancer needs: from which Secrets each may be read, and how old the
//! oldest Ingress is that needs it. The output keeps them up to date; the leader's writer reads them.

use crate::key::ObjectKey;
use crate::objects::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A certificate that an Ingress needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    /// Its hash.
    pub(super) hash: Arc<str>,
    /// The Secret that has it.
    pub(super) secret: ObjectKey,
    /// Its size in bytes.
    pub(super) size: usize,
    /// When the Ingress was created.
    pub(super) created: Timestamp,
}

/// A needed certificate: its Secrets and its age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededCertificate {
    /// How many Ingresses need it from each Secret.
    uses: BTreeMap<ObjectKey, usize>,
    /// How many of these Ingresses were created at each time.
    created: BTreeMap<Timestamp, usize>,
    /// The Secrets that have it, sorted.
    secrets: Vec<ObjectKey>,
    size: usize,
}

impl NeededCertificate {
    /// The Secrets that have it, sorted.
    pub fn secrets(&self) -> &[ObjectKey] {
        &self.secrets
    }

    /// The size of its chain and private key, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// When the oldest Ingress that needs it was created.
    pub fn since(&self) -> Timestamp {
        self.created.keys().next().copied().unwrap_or(Timestamp::MAX)
    }

    /// Counts an Ingress of this age that needs it, of this size, from this Secret. True: the Secret is a new source.
    pub fn add(&mut self, secret: &ObjectKey, size: usize, created: Timestamp) -> bool {
        // Equal hashes mean equal bytes.
        self.size = size;
        *self.created.entry(created).or_default() += 1;
        let uses = self.uses.entry(secret.clone()).or_default();
        *uses += 1;
        if *uses > 1 {
            return false;
        }
        let at = self.secrets.partition_point(|other| other < secret);
        self.secrets.insert(at, secret.clone());
        true
    }

    /// Undoes one `add`. True: no Ingress needs it from this Secret any more.
    fn remove(&mut self, secret: &ObjectKey, created: Timestamp) -> bool {
        count_down(&mut self.created, &created);
        let last = count_down(&mut self.uses, secret);
        if last {
            self.secrets.retain(|other| other != secret);
        }
        last
    }
}

/// Counts one down. True: it was the last.
fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(key);
    }
    last
}

/// The needed certificates, by hash.
pub type NeededCertificates = BTreeMap<Arc<str>, NeededCertificate>;

/// An Ingress needs a certificate. True: the Secret is a new source.
pub(super) fn need(all: &mut NeededCertificates, it: &Use) -> bool {
    all.entry(Arc::clone(&it.hash)).or_default().add(&it.secret, it.size, it.created)
}

/// An Ingress no longer needs a certificate. True: no Ingress needs it from this Secret any more.
pub(super) fn release(all: &mut NeededCertificates, it: &Use) -> bool {
    let Some(needed) = all.get_mut(&it.hash) else { return false };
    let last = needed.remove(&it.secret, it.created);
    if needed.uses.is_empty() {
        all.remove(&it.hash);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_as_old_as_the_oldest_ingress_that_needs_it() {
        let (mut all, secret) = (NeededCertificates::new(), ObjectKey::new("shop", "tls"));
        let of = |created| Use { hash: "a".into(), secret: secret.clone(), size: 7, created };
        assert!(need(&mut all, &of(20)));
        assert!(!need(&mut all, &of(10)));
        assert!(!need(&mut all, &of(10)));
        assert_eq!((all["a"].since(), all["a"].secrets()), (10, &[secret.clone()][..]));
        assert_eq!(all["a"].size(), 7);
        assert!(!release(&mut all, &of(10)));
        assert!(!release(&mut all, &of(10)));
        assert_eq!(all["a"].since(), 20);
        assert!(release(&mut all, &of(20)));
        assert!(all.is_empty());
    }
}

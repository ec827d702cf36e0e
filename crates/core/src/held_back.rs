//! Fragments that wait for certificates. An agent that reads a Plan should find the certificates that the Plan names,
//! so what a consumer wants next waits until these are handed out or refused, a second at most. Only that consumer
//! waits: the Plan keeps what it has for that consumer, and goes on with all others. Pure; the leader's writer of
//! Plans calls it.

use crate::clock::Uptime;
use crate::key::ConsumerRef;
use crate::plan::Fragment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a consumer waits for its certificates. Then its hosts without one fail their handshakes, or
/// keep the certificate that they had, and the rest of the consumer is served.
pub const LONGEST: Duration = Duration::from_secs(1);

/// What consumers of a load balancer want and do not have yet.
#[derive(Clone, Debug, Default)]
pub struct HeldBack {
    waiting: BTreeMap<ConsumerRef, Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    parts: Vec<Arc<Fragment>>,
    change: u64,
    /// Since when a leader has waited. What the consumer wants meanwhile does not prolong the wait.
    since: Option<Uptime>,
}

/// What a consumer wants as of a change, and what may be written now.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// Its fragments.
    pub parts: Vec<Arc<Fragment>>,
    /// The change with which they were planned.
    pub change: u64,
}

impl HeldBack {
    /// Takes what a consumer wants as of a change. True: it names a certificate that is missing, and waits.
    pub fn hold(
        &mut self,
        consumer: &ConsumerRef,
        parts: &[Arc<Fragment>],
        change: u64,
        lacks: impl Fn(&Arc<str>) -> bool,
    ) -> bool {
        let before = self.waiting.remove(consumer);
        let held = is_lacking(parts, lacks);
        if held {
            let since = before.and_then(|before| before.since);
            let waiting = Waiting { parts: parts.to_vec(), change, since };
            self.waiting.insert(consumer.clone(), waiting);
        }
        held
    }

    /// Returns the consumers that have their certificates, have waited long enough, or must not wait. The wait of a
    /// consumer begins with the first call, which only a leader makes.
    pub fn take(
        &mut self,
        lacks: impl Fn(&Arc<str>) -> bool,
        may_wait: impl Fn(&ConsumerRef) -> bool,
        now: Uptime,
    ) -> Vec<Ready> {
        let ready = self.waiting.extract_if(.., |consumer, waiting| {
            let since = *waiting.since.get_or_insert(now);
            let over = now.saturating_sub(since) >= LONGEST || !may_wait(consumer);
            over || !is_lacking(&waiting.parts, &lacks)
        });
        let ready = ready.map(|(consumer, it)| {
            let Waiting { parts, change, .. } = it;
            Ready { consumer, parts, change }
        });
        ready.collect()
    }

    /// When the first consumer has waited long enough.
    pub fn until(&self) -> Option<Uptime> {
        self.waiting.values().filter_map(|it| it.since).min().map(|since| since + LONGEST)
    }

    /// The first change that waits.
    pub fn first_change(&self) -> Option<u64> {
        self.waiting.values().map(|it| it.change).min()
    }

    /// Whether no consumer waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Whether fragments name a certificate that is missing.
fn is_lacking(parts: &[Arc<Fragment>], lacks: impl Fn(&Arc<str>) -> bool) -> bool {
    let sites = parts.iter().flat_map(|part| &part.sites);
    let named = sites.filter_map(|site| site.tls.as_ref()?.certificate.as_ref());
    named.into_iter().any(|it| lacks(&it.hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ConsumerKind;
    use crate::plan::{CertificateRef, ENTRY_WEB, Host, Site, SiteTls};

    fn consumer(name: &str) -> ConsumerRef {
        let (kind, uid) = (ConsumerKind::Ingress, name.into());
        ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid }
    }

    /// A fragment with a host that has this certificate.
    fn parts(name: &str, hash: &str) -> Vec<Arc<Fragment>> {
        let certificate = Some(CertificateRef { hash: hash.into() });
        let tls = Some(SiteTls { certificate, redirect: true });
        let host = Host::Exact("shop.example".into());
        let site = Site { entry: ENTRY_WEB.into(), host, tls, rules: Vec::new() };
        let (listeners, pools) = (Vec::new(), Vec::new());
        let consumer = consumer(name);
        vec![Arc::new(Fragment {
            consumer,
            part: 0,
            claimed: false,
            listeners,
            sites: vec![site],
            pools,
        })]
    }

    fn ready(name: &str, hash: &str, change: u64) -> Ready {
        Ready { consumer: consumer(name), parts: parts(name, hash), change }
    }

    #[test]
    fn only_the_consumer_that_lacks_a_certificate_waits_until_it_is_there() {
        let (mut held, now) = (HeldBack::default(), Uptime::default());
        let lacks = |hash: &Arc<str>| **hash == *"new";
        assert!(!held.hold(&consumer("a"), &parts("a", "old"), 1, lacks));
        assert!(held.hold(&consumer("b"), &parts("b", "new"), 2, lacks));
        assert_eq!((held.first_change(), held.until()), (Some(2), None), "no leader has asked");
        assert_eq!(held.take(lacks, |_| true, now), []);
        assert_eq!(held.until(), Some(now + LONGEST));
        assert_eq!(held.take(|_| false, |_| true, now), [ready("b", "new", 2)]);
        assert!(held.is_empty() && held.until().is_none() && held.first_change().is_none());
    }

    #[test]
    fn a_consumer_that_changes_all_the_time_waits_no_longer_than_any_other() {
        let (mut held, now) = (HeldBack::default(), Uptime::default());
        let lacks = |_: &Arc<str>| true;
        for change in 1..=4 {
            assert!(held.hold(&consumer("a"), &parts("a", &change.to_string()), change, lacks));
            let at = now + LONGEST / 5 * u32::try_from(change).unwrap();
            assert_eq!(held.take(lacks, |_| true, at), []);
        }
        let first = now + LONGEST / 5;
        assert_eq!(held.take(lacks, |_| true, first + LONGEST), [ready("a", "4", 4)]);
    }

    #[test]
    fn a_consumer_that_may_not_wait_is_written_at_once() {
        let (mut held, now) = (HeldBack::default(), Uptime::default());
        for name in ["a", "b"] {
            assert!(held.hold(&consumer(name), &parts(name, "new"), 1, |_| true));
        }
        let may_wait = |it: &ConsumerRef| *it.name == *"a";
        assert_eq!(held.take(|_| true, may_wait, now), [ready("b", "new", 1)]);
    }

    #[test]
    fn a_consumer_that_wants_something_without_the_certificate_does_not_wait_any_more() {
        let mut held = HeldBack::default();
        let lacks = |hash: &Arc<str>| **hash == *"new";
        assert!(held.hold(&consumer("a"), &parts("a", "new"), 1, lacks));
        assert!(!held.hold(&consumer("a"), &[], 2, lacks));
        assert!(held.is_empty());
    }
}

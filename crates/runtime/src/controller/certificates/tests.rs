//! What is read and written, step by step, and which certificates each leader hands out.

use super::*;
use bowline_core::shard::Items;
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeSet;

fn needed(hashes: &[&str]) -> NeededCertificates {
    let mut needed = NeededCertificates::new();
    hashes.iter().for_each(|hash| need(&mut needed, hash, "shop", &format!("tls-{hash}"), 0));
    needed
}

/// An Ingress of this age needs a certificate from this Secret.
fn need(needed: &mut NeededCertificates, hash: &str, namespace: &str, name: &str, age: i64) {
    needed.entry(hash.into()).or_default().add(&ObjectKey::new(namespace, name), size(hash), age);
}

/// The size of a certificate whose hash does not end in a size.
const SMALL: usize = 10;

fn size(hash: &str) -> usize {
    hash.rsplit('-').next().and_then(|it| it.parse().ok()).unwrap_or(SMALL)
}

/// A certificate of the size in its hash.
fn content(hash: &str) -> (Arc<str>, Arc<Certificate>) {
    let chain = "x".repeat(size(hash)).into();
    (hash.into(), Arc::new(Certificate { chain, key: "".into() }))
}

/// A Secret of load balancer `lb` with these certificates, owned by the load balancer with this uid.
fn secret(index: u32, version: &str, owner: &str, items: &Stored) -> CertificatesSeen {
    let rooms = items.iter().filter_map(|(hash, it)| Some((hash.clone(), it.hash?)));
    CertificatesSeen {
        name: names::certificates_secret("lb", index),
        load_balancer: "lb".into(),
        version: version.to_owned(),
        owner: Some(owner.to_owned()),
        sizes: items.iter().map(|(hash, it)| (hash.clone(), it.size)).collect(),
        rooms: rooms.collect(),
    }
}

/// The content of a Secret that holds certificate `a` of Secret `tls-a`.
fn with_a() -> Stored {
    [("a".into(), Stamp { hash: Some(room("shop", "tls-a", SMALL)), size: SMALL })].into()
}

fn room(namespace: &str, name: &str, size: usize) -> Room {
    Room { place: certificate_rooms::SecretHash::of(&ObjectKey::new(namespace, name)), size }
}

fn as_needed(certificates: &NeededCertificates) -> Needed<'_> {
    Needed { certificates, revision: 1, alone: false }
}

#[test]
fn at_rest_nothing_is_gone_through_until_something_else_is_needed() {
    let (mut certificates, one) = (Certificates::default(), needed(&["a"]));
    certificates.seen(secret(0, "1", "uid", &with_a()));
    let two = needed(&["a", "b"]);
    let next = |certificates: &mut Certificates, needed, revision| {
        let needed = Needed { certificates: needed, revision, alone: false };
        certificates.next("lb", Some("uid"), needed, true, Uptime::default())
    };
    assert!(next(&mut certificates, &one, 1).is_none());
    // With the same revision, other certificates are not even looked at.
    assert!(next(&mut certificates, &two, 1).is_none());
    let fetch = next(&mut certificates, &two, 2);
    assert!(matches!(fetch, Some(CertificateStep::Fetch(_))), "{fetch:?}");
}

#[test]
fn one_that_has_no_room_is_not_read_and_holds_nothing_up() {
    let mut certificates = Certificates::default();
    let padded = format!("007-{}", 2 * certificate_rooms::LARGEST);
    let mut all: Vec<_> = (0..100).map(|n| format!("{n:03}-1000")).collect();
    all[7].clone_from(&padded);
    let needed = needed(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let now = Uptime::default();
    let mut fetches = 0;
    let mut versions = 1..;
    loop {
        match certificates.next("lb", Some("uid"), as_needed(&needed), true, now) {
            Some(CertificateStep::Fetch(wanted)) => {
                fetches += 1;
                assert!(wanted.iter().all(|(hash, _)| **hash != *padded));
                let read = wanted.iter().map(|(hash, _)| content(hash));
                certificates.fetched(read.collect(), Vec::new(), now);
            }
            Some(CertificateStep::Write(write)) => {
                assert!(!write.added.contains_key(&*padded));
                certificates.wrote(write.write, versions.next().map(|it: u32| it.to_string()));
            }
            Some(CertificateStep::Later(at)) => panic!("{at:?}"),
            None => break,
        }
    }
    assert_eq!(fetches, 1);
    assert!(certificates.take_withheld_changed() && !certificates.take_withheld_changed());
    assert_eq!(certificates.withheld().keys().map(|it| &**it).collect::<Vec<_>>(), [&padded]);
    assert!(needed.keys().all(|hash| !certificates.lacks(hash)));
}

#[test]
fn no_secret_is_written_that_no_agent_reads() {
    let mut certificates = Certificates::default();
    let now = Uptime::default();
    // All Secrets are full of certificates that are not needed any more and that Plans still refer to.
    for index in 0..certificate_rooms::SECRETS {
        let old =
            (format!("old-{index}").into(), Stamp { hash: None, size: certificate_rooms::SECRET });
        certificates.seen(secret(index, "1", "uid", &[old].into()));
    }
    let needed = needed(&["new"]);
    certificates.fetched([content("new")].into(), Vec::new(), now);
    let next = certificates.next("lb", Some("uid"), as_needed(&needed), false, now);
    assert!(matches!(next, Some(CertificateStep::Later(at)) if at > now), "{next:?}");
    // The Plan is written, and nothing refers to the old certificates any more.
    let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
    let Some(CertificateStep::Write(write)) = next else { panic!("{next:?}") };
    assert!(write.write.index() < certificate_rooms::SECRETS, "{write:?}");
}

#[test]
fn what_is_not_found_is_looked_for_again_ever_less_often() {
    let (mut certificates, needed) = (Certificates::default(), needed(&["a"]));
    let mut now = Uptime::default();
    for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
        let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
        let Some(CertificateStep::Fetch(wanted)) = next else { panic!("{next:?}") };
        certificates.fetched(Fetched::new(), wanted, now);
        let until = now + Duration::from_secs(wait);
        let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
        assert!(matches!(next, Some(CertificateStep::Later(at)) if at == until), "{next:?}");
        now = until;
    }
}

#[test]
fn what_was_deleted_and_cannot_be_found_is_not_taken_for_written() {
    let (mut certificates, needed) = (Certificates::default(), needed(&["a"]));
    let now = Uptime::default();
    let secret = || secret(0, "1", "uid", &with_a());
    certificates.seen(secret());
    assert!(certificates.next("lb", Some("uid"), as_needed(&needed), true, now).is_none());
    certificates.gone(&secret().name);
    let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
    let Some(CertificateStep::Fetch(wanted)) = next else { panic!("{next:?}") };
    certificates.fetched(Fetched::new(), wanted, now);
    let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
    assert!(matches!(next, Some(CertificateStep::Later(_))), "{next:?}");
    assert!(certificates.lacks(&"a".into()));
}

#[test]
fn a_secret_that_belongs_to_a_deleted_load_balancer_is_given_to_the_new_one() {
    let (mut certificates, needed) = (Certificates::default(), needed(&["a"]));
    certificates.seen(secret(0, "1", "old", &with_a()));
    let now = Uptime::default();
    let next = certificates.next("lb", Some("new"), as_needed(&needed), true, now);
    let Some(CertificateStep::Write(write)) = next else { panic!("{next:?}") };
    let owned = super::super::writer::owned(&write.name, "lb", "new");
    let patch = write.patch("1", &owned);
    assert_eq!(
        patch,
        json!({
            "metadata": {
                "resourceVersion": "1",
                "annotations": {"bowline.dev/rooms": format!("a={}", room("shop", "tls-a", 10))},
                "labels": owned.labels,
                "ownerReferences": owned.owner_references,
            },
            "data": {},
        })
    );
    certificates.wrote(write.write, Some("2".to_owned()));
    assert!(certificates.next("lb", Some("new"), as_needed(&needed), true, now).is_none());
}

/// The content of one Secret.
type Stored = Items<Arc<str>, Option<Room>>;

/// The Secrets of load balancer `lb` in the API, and which users' certificates cannot be read.
#[derive(Clone, Debug, Default)]
struct Cluster {
    secrets: BTreeMap<u32, (u64, Stored)>,
    version: u64,
    /// The last revision of the needed certificates.
    revision: u64,
    unreadable: BTreeSet<Arc<str>>,
}

impl Cluster {
    /// A new leader, which knows what the API holds.
    fn leader(&self) -> Certificates {
        let mut certificates = Certificates::default();
        for (index, (version, items)) in &self.secrets {
            certificates.seen(secret(*index, &version.to_string(), "uid", items));
        }
        certificates
    }

    /// Carries out the leader's steps until it only waits.
    fn settle(&mut self, leader: &mut Certificates, certificates: &NeededCertificates) {
        let now = Uptime::default();
        self.revision += 1;
        let needed = Needed { certificates, revision: self.revision, alone: false };
        loop {
            match leader.next("lb", Some("uid"), needed, true, now) {
                Some(CertificateStep::Fetch(wanted)) => {
                    let (missed, found): (Vec<_>, Vec<_>) =
                        wanted.into_iter().partition(|(hash, _)| self.unreadable.contains(hash));
                    let read = found.into_iter().map(|(hash, _)| content(&hash));
                    leader.fetched(read.collect(), missed, now);
                }
                Some(CertificateStep::Write(write)) => self.write(leader, write),
                Some(CertificateStep::Later(_)) | None => return,
            }
        }
    }

    /// Carries out a write.
    fn write(
        &mut self,
        leader: &mut Certificates,
        CertificatesWrite { write, .. }: CertificatesWrite,
    ) {
        self.version += 1;
        let (index, items) = (write.index(), write.items().cloned());
        let version = items.is_some().then(|| self.version.to_string());
        match items {
            Some(items) => drop(self.secrets.insert(index, (self.version, items))),
            None => drop(self.secrets.remove(&index)),
        }
        leader.wrote(write, version);
    }

    fn holds(&self, hash: &str) -> bool {
        self.secrets.values().any(|(_, items)| items.contains_key(hash))
    }
}

/// Certificates of the largest size in a namespace, needed by Ingresses of this age.
fn largest(needed: &mut NeededCertificates, namespace: &str, number: usize, age: i64) {
    for n in 0..number {
        let hash = format!("{namespace}-{n:03}-{}", certificate_rooms::LARGEST);
        need(needed, &hash, namespace, &format!("tls-{n:03}"), age);
    }
}

/// A load balancer with no room beyond the namespaces' own shares, and its leader.
fn full() -> (Cluster, Certificates, NeededCertificates) {
    let (mut cluster, mut needed) = (Cluster::default(), NeededCertificates::new());
    for namespace in ["evil-1", "evil-2", "shop"] {
        largest(&mut needed, namespace, 200, 0);
    }
    let mut leader = cluster.leader();
    cluster.settle(&mut leader, &needed);
    needed.retain(|hash, _| cluster.holds(hash));
    cluster.settle(&mut leader, &needed);
    assert!(leader.withheld().is_empty());
    (cluster, leader, needed)
}

/// Renews the last certificate of namespace `shop` while an older tenant waits for room. Returns what is needed then,
/// and the hashes before and after.
fn renewal(mut needed: NeededCertificates) -> (NeededCertificates, Arc<str>, Arc<str>) {
    let old = needed.keys().next_back().unwrap().clone();
    let secret = needed[&old].secrets()[0].clone();
    needed.remove(&old);
    let new = format!("shop-new-{}", certificate_rooms::LARGEST - 7);
    need(&mut needed, &new, "shop", &secret.name, 0);
    largest(&mut needed, "aaa", 10, -1);
    (needed, old, new.into())
}

#[test]
fn a_renewal_has_its_room_before_an_older_one_that_waits_whichever_leader_reads_it() {
    let (cluster, leader, needed) = full();
    let (needed, old, new) = renewal(needed);
    for mut leader in [leader, cluster.leader()] {
        let mut cluster = cluster.clone();
        cluster.settle(&mut leader, &needed);
        assert!(cluster.holds(&new) && !cluster.holds(&old));
        let waits: Vec<_> = leader.withheld().keys().map(|hash| &hash[..4]).collect();
        assert_eq!(waits, ["aaa-"; 7]);
    }
}

#[test]
fn a_renewal_that_cannot_be_read_yet_keeps_its_room_over_a_change_of_leaders() {
    let (mut cluster, mut leader, needed) = full();
    let (needed, old, new) = renewal(needed);
    cluster.unreadable.insert(new.clone());
    for _ in 0..2 {
        cluster.settle(&mut leader, &needed);
        assert!(cluster.holds(&old) && !cluster.holds(&new));
        leader = cluster.leader();
    }
    cluster.unreadable.clear();
    cluster.settle(&mut leader, &needed);
    assert!(cluster.holds(&new) && !cluster.holds(&old));
}

#[test]
fn the_next_leader_reads_the_rooms_that_a_write_records() {
    let (mut certificates, needed) = (Certificates::default(), needed(&["a", "b"]));
    let now = Uptime::default();
    certificates.fetched([content("a"), content("b")].into(), Vec::new(), now);
    let next = certificates.next("lb", Some("uid"), as_needed(&needed), true, now);
    let Some(CertificateStep::Write(write)) = next else { panic!("{next:?}") };
    let mut metadata = super::super::writer::owned(&write.name, "lb", "uid");
    metadata.annotations = Some(write.annotations());
    let seen = CertificatesSeen::of(&Secret { metadata, ..Secret::default() });
    let rooms = ["a", "b"].map(|it| (it.into(), room("shop", &format!("tls-{it}"), 10)));
    assert_eq!(seen.rooms, rooms.into());
}

/// How many steps it takes until a certificate is handed out, when another tenant's certificates change after every
/// step.
fn steps_until(hash: &str, number: usize, readable: bool) -> usize {
    let (mut cluster, mut leader, mut needed) = full();
    // One certificate's room is free, and one certificate waits for it.
    needed.pop_last();
    need(&mut needed, hash, "shop", "waits", 0);
    let now = Uptime::default();
    let mut fast = NeededCertificates::new();
    for step in 1..1_000 {
        needed.retain(|it, _| !fast.contains_key(it));
        fast.clear();
        for n in 0..number {
            need(&mut fast, &format!("fast-{step}-{n}-300"), "fast", &format!("tls-{n}"), -1);
        }
        needed.extend(fast.clone());
        cluster.revision += 1;
        let all = Needed { certificates: &needed, revision: cluster.revision, alone: false };
        match leader.next("lb", Some("uid"), all, true, now) {
            Some(CertificateStep::Fetch(wanted)) => {
                let changed = |hash: &Arc<str>| !readable && hash.starts_with("fast");
                let (missed, found): (Vec<_>, Vec<_>) =
                    wanted.into_iter().partition(|(hash, _)| changed(hash));
                let read = found.iter().map(|(hash, _)| content(hash));
                leader.fetched(read.collect(), missed, now);
            }
            Some(CertificateStep::Write(write)) => cluster.write(&mut leader, write),
            next => panic!("{next:?}"),
        }
        if cluster.holds(hash) {
            return step;
        }
    }
    panic!("not within 1,000 steps")
}

#[test]
fn certificates_that_change_faster_than_they_are_read_hold_up_no_other_tenants() {
    let hash = format!("waits-{}", certificate_rooms::LARGEST);
    // Three kinds of steps: read, write what leaves, write what is added.
    for (number, readable) in [(1, false), (400, false), (1, true), (400, true)] {
        let steps = steps_until(&hash, number, readable);
        assert!(steps <= 6, "{steps} steps with {number} certificates, readable: {readable}");
    }
}

#[test]
fn a_certificate_waits_for_one_write_of_a_tenant_that_changes_a_hundred() {
    let (mut cluster, mut needed) = (Cluster::default(), NeededCertificates::new());
    largest(&mut needed, "evil", 100, 0);
    largest(&mut needed, "shop", 1, 0);
    let mut leader = cluster.leader();
    leader.fetched(
        needed.keys().map(|hash| content(hash)).collect(),
        Vec::new(),
        Uptime::default(),
    );
    let mut written = Vec::new();
    for _ in 0..2 {
        let next = leader.next("lb", Some("uid"), as_needed(&needed), true, Uptime::default());
        let Some(CertificateStep::Write(write)) = next else { panic!("{next:?}") };
        written.push(write.added.keys().any(|hash| hash.starts_with("shop")));
        cluster.write(&mut leader, write);
    }
    assert_eq!(written, [false, true]);
}

#[test]
fn a_certificate_is_read_after_one_write_of_a_tenant_that_changes_a_hundred() {
    let (mut cluster, mut needed) = (Cluster::default(), NeededCertificates::new());
    largest(&mut needed, "evil", 100, 0);
    let (mut leader, now) = (cluster.leader(), Uptime::default());
    leader.fetched(needed.keys().map(|hash| content(hash)).collect(), Vec::new(), now);
    let mut steps = Vec::new();
    while !steps.contains(&"shop is written") {
        let next = leader.next("lb", Some("uid"), as_needed(&needed), true, now);
        steps.push(match next {
            Some(CertificateStep::Fetch(wanted)) => {
                let read = wanted.iter().map(|(hash, _)| content(hash));
                leader.fetched(read.collect(), Vec::new(), now);
                "read"
            }
            Some(CertificateStep::Write(write)) => {
                let shops = write.added.keys().any(|hash| hash.starts_with("shop"));
                cluster.write(&mut leader, write);
                if shops { "shop is written" } else { "evil is written" }
            }
            next => panic!("{next:?}"),
        });
        // Some of evil's certificates are already written when shop's certificate appears.
        largest(&mut needed, "shop", 1, 0);
    }
    assert_eq!(steps, ["evil is written", "read", "evil is written", "shop is written"]);
}

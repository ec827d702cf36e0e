//! Tests of the Plan objects of one load balancer.

use super::*;
use bowline_core::plan::{Listener, ListenerProtocol, Serves};
use serde_json::json;

fn consumer() -> ConsumerRef {
    ConsumerRef { name: "edge".into(), uid: "1".into(), ..no_consumer() }
}

fn fragment() -> Fragment {
    Fragment {
        consumer: consumer(),
        part: 0,
        claimed: false,
        listeners: Vec::new(),
        sites: Vec::new(),
        pools: Vec::new(),
    }
}

fn seen(version: &str, owner: &str, unreadable: bool) -> PlanSeen {
    PlanSeen {
        name: "edge-0".to_owned(),
        load_balancer: "edge".into(),
        version: version.to_owned(),
        owner: Some(owner.to_owned()),
        fragments: vec![fragment()],
        unread: Vec::new(),
        hash: PlanHash::of(&fragment()),
        driver: None,
        unreadable,
    }
}

/// The fragments of the next write, and the version that it replaces.
fn next(plans: &mut Plans, uid: &str) -> Option<(Vec<Fragment>, Option<String>)> {
    let write = plans.next(&"edge".into(), Some(uid), Uptime::default())?;
    Some((write.object(uid).spec.fragments, write.version))
}

#[test]
fn what_changes_while_it_is_written_and_back_again_is_unwritten() {
    let (mut plans, lb, now) = (Plans::default(), Arc::from("edge"), Uptime::default());
    let listener = Listener {
        address: [192, 0, 2, 1].into(),
        port: 80,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Pool("pool".into()),
    };
    let other = Fragment { listeners: vec![listener], ..fragment() };
    let write = |plans: &mut Plans, version: &str, fragment, change| {
        plans.want(&consumer(), &[Arc::new(fragment)], change);
        let write = plans.next(&lb, Some("uid"), now).unwrap().write;
        (write, Some(version.to_owned()))
    };
    let (first, version) = write(&mut plans, "1", fragment(), 1);
    assert_eq!(plans.first_unwritten(), Some(1));
    plans.wrote(first, version, None);
    assert_eq!(plans.first_unwritten(), None);
    let (second, version) = write(&mut plans, "2", other, 2);
    plans.want(&consumer(), &[Arc::new(fragment())], 3);
    assert_eq!(plans.first_unwritten(), None);
    plans.wrote(second, version, None);
    assert_eq!(plans.first_unwritten(), Some(3));
}

#[test]
fn a_consumer_that_lacks_a_certificate_keeps_what_it_has_and_all_others_go_on() {
    let (mut plans, lb, now) = (Plans::default(), Arc::from("edge"), Uptime::default());
    let with = |hash: &str, port| {
        let tls = json!({"certificate": {"hash": hash}, "redirect": true});
        let site = json!({"entry": "web", "host": "a.example", "tls": tls, "rules": []});
        let sites = vec![serde_json::from_value(site).unwrap()];
        Arc::new(Fragment { sites, ..fragment_at(port) })
    };
    let lacks = |hash: &Arc<str>| **hash == *"new";
    let of_other = |port| Arc::new(Fragment { consumer: other(), ..fragment_at(port) });
    plans.want_certified(&consumer(), &[with("old", 80)], 1, lacks);
    plans.want_certified(&other(), &[of_other(81)], 1, lacks);
    written(&mut plans).unwrap();
    assert!(plans.is_settled() && plans.first_unwritten().is_none());
    plans.want_certified(&consumer(), &[with("new", 90)], 2, lacks);
    plans.want_certified(&other(), &[of_other(91)], 3, lacks);
    plans.release(lacks, now);
    let write = plans.next(&lb, Some("uid"), now).unwrap();
    let fragments = write.object("uid").spec.fragments;
    assert_eq!(fragments, [(*with("old", 80)).clone(), (*of_other(91)).clone()]);
    plans.wrote(write.write, Some("2".to_owned()), None);
    assert_eq!((plans.first_unwritten(), plans.is_settled()), (Some(2), false));
    let until = plans.held_back_until().unwrap();
    plans.release(lacks, until);
    let write = plans.next(&lb, Some("uid"), until).unwrap();
    let fragments = write.object("uid").spec.fragments;
    assert_eq!(fragments, [(*with("new", 90)).clone(), (*of_other(91)).clone()]);
    plans.wrote(write.write, Some("3".to_owned()), None);
    assert!(plans.is_settled() && plans.first_unwritten().is_none());
}

#[test]
fn a_leader_that_begins_takes_no_consumer_out_that_lacks_a_certificate() {
    let (mut plans, now) = (Plans::default(), Uptime::default());
    let site = json!({"entry": "web", "host": "a.example", "rules": [],
        "tls": {"certificate": {"hash": "new"}, "redirect": true}});
    let sites = vec![serde_json::from_value(site).unwrap()];
    let new = Fragment { sites, ..fragment() };
    plans.want_certified(&consumer(), &[Arc::new(new.clone())], 1, |_| true);
    plans.seen(seen("1", "uid", false));
    assert!(plans.release(|_| true, now));
    assert_eq!(next(&mut plans, "uid"), Some((vec![new], Some("1".to_owned()))));
}

#[test]
fn what_a_former_leader_planned_and_nobody_wants_is_unwritten_until_it_is_gone() {
    let (mut plans, lb, now) = (Plans::default(), Arc::from("edge"), Uptime::default());
    plans.seen(seen("1", "uid", false));
    plans.doubt(&[consumer()].into(), 3);
    assert_eq!(plans.first_unwritten(), Some(3));
    let write = plans.next(&lb, Some("uid"), now).unwrap().write;
    plans.wrote(write, None, None);
    assert_eq!(plans.first_unwritten(), None);
}

#[test]
fn a_plan_with_something_that_cannot_be_read_is_written_anew() {
    let mut plans = Plans::default();
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    plans.seen(seen("1", "uid", false));
    assert!(plans.is_settled());
    plans.seen(seen("2", "uid", true));
    assert_eq!(next(&mut plans, "uid"), Some((vec![fragment()], Some("2".to_owned()))));
    plans.seen(seen("3", "uid", false));
    assert!(plans.is_settled());
}

fn fragment_at(port: u16) -> Fragment {
    let listener = Listener {
        address: [192, 0, 2, 1].into(),
        port,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Pool("pool".into()),
    };
    Fragment { listeners: vec![listener], ..fragment() }
}

fn other() -> ConsumerRef {
    ConsumerRef { name: "web".into(), uid: "2".into(), ..no_consumer() }
}

/// A Plan with this hash, with one fragment that can be read and one of `other` that cannot.
fn newer(version: &str, hash: PlanHash) -> PlanSeen {
    let raw = json!({"consumer": other(), "listeners": [{"protocol": "QUIC"}]});
    let unread = vec![Unread { item: Some((other(), 0)), raw }];
    PlanSeen { unread, hash, ..seen(version, "uid", false) }
}

fn foreign_hash() -> PlanHash {
    PlanHash::of(&fragment()).plus(format!("{:064x}", 77).parse().unwrap())
}

/// The next write: the readable fragments' consumers, the unread fragments as they are passed on,
/// and the hash.
fn written(plans: &mut Plans) -> Option<(Vec<Arc<str>>, Vec<serde_json::Value>, PlanHash)> {
    let write = plans.next(&"edge".into(), Some("uid"), Uptime::default())?;
    let spec = write.object("uid").spec;
    let names = spec.fragments.iter().map(|it| it.consumer.name.clone()).collect();
    let raw = spec.unread.into_iter().map(|it| it.raw).collect();
    plans.wrote(
        write.write,
        Some(write.version.map_or(1, |it| it.parse::<u32>().unwrap() + 1).to_string()),
        None,
    );
    Some((names, raw, spec.hash))
}

#[test]
fn what_a_newer_leader_wrote_stays_until_its_consumer_wants_something_else_or_leaves() {
    let of_other = || Fragment { consumer: other(), ..fragment() };
    let mut plans = Plans::default();
    plans.seen(newer("1", foreign_hash()));
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    // While a leader takes in what exists, it may plan an item more than once.
    let half = Fragment { part: 0, listeners: Vec::new(), ..of_other() };
    plans.want(&other(), &[Arc::new(half)], 1);
    plans.want(&other(), &[Arc::new(of_other())], 1);
    assert_eq!(written(&mut plans), None);
    assert!(plans.is_settled());
    let planned = PlanHash::of(&fragment()).plus(PlanHash::of(&of_other()));
    assert_eq!(plans.with_foreign(planned), foreign_hash());
    assert_eq!(plans.hash(), foreign_hash());
    // A neighbour changes: the unread fragment is written with it, unchanged.
    let changed = Fragment { part: 0, sites: Vec::new(), ..fragment_at(81) };
    plans.want(&consumer(), &[Arc::new(changed.clone())], 2);
    let (names, raw, hash) = written(&mut plans).unwrap();
    assert_eq!(
        (names, raw),
        (vec!["edge".into()], vec![newer("1", foreign_hash()).unread[0].raw.clone()])
    );
    let without = foreign_hash().minus(PlanHash::of(&fragment()));
    assert_eq!(hash, without.plus(PlanHash::of(&changed)));
    // Its consumer wants something else: this version's fragment replaces the unread one.
    let anew = Fragment { consumer: other(), ..fragment_at(82) };
    plans.want(&other(), &[Arc::new(anew.clone())], 3);
    let (names, raw, hash) = written(&mut plans).unwrap();
    assert_eq!((names.len(), raw), (2, vec![]));
    assert_eq!(hash, PlanHash::of(&changed).plus(PlanHash::of(&anew)));
    assert_eq!(plans.with_foreign(hash), hash);
}

#[test]
fn what_a_newer_leader_wrote_is_planned_anew_when_an_agent_serves_nothing_of_it() {
    let own = Fragment { consumer: other(), ..fragment() };
    let strange = ConsumerRef { name: "strange".into(), ..other() };
    let mut plans = Plans::default();
    let mut seen = newer("1", foreign_hash());
    // Nothing can be planned for a consumer that this version does not know.
    let raw = json!({"consumer": {"kind": "Gateway", "name": "g"}});
    seen.unread.push(Unread { item: None, raw: raw.clone() });
    plans.seen(seen);
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    plans.want(&other(), &[Arc::new(own.clone())], 1);
    assert_eq!(written(&mut plans), None, "an older leader that leads for a moment");
    assert!(plans.has_foreign());
    assert_eq!(plans.plan_anew(&[consumer(), strange].into(), 2), BTreeSet::new());
    assert_eq!(written(&mut plans), None, "no agent needs it");
    assert_eq!(plans.plan_anew(&[other()].into(), 2), [other()].into());
    assert_eq!(plans.first_unwritten(), Some(2));
    let planned = PlanHash::of(&fragment()).plus(PlanHash::of(&own));
    let expected = plans.with_foreign(planned);
    let (names, kept, hash) = written(&mut plans).unwrap();
    assert_eq!((names.len(), kept), (2, vec![raw]));
    assert_eq!((hash, plans.hash()), (expected, expected));
    assert_eq!(plans.first_unwritten(), None);
    // The newer version leads again: what it writes stays, because agents serve what they could read
    // last.
    plans.seen(newer("7", foreign_hash()));
    assert_eq!(written(&mut plans), None);
}

#[test]
fn an_edit_by_hand_from_before_this_leader_is_undone_too() {
    let mut plans = Plans::default();
    let own = Fragment { consumer: other(), ..fragment() };
    plans.seen(newer("1", PlanHash::of(&fragment()).plus(PlanHash::of(&own))));
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    plans.want(&other(), &[Arc::new(own)], 1);
    let (names, raw, _) = written(&mut plans).unwrap();
    assert_eq!((names.len(), raw), (2, vec![]));
}

#[test]
fn what_nobody_can_read_goes_with_its_consumer_and_an_edit_by_hand_is_undone() {
    let mut plans = Plans::default();
    plans.seen(newer("1", foreign_hash()));
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    // Its consumer wants nothing any more, so it is removed.
    let (names, raw, _) = written(&mut plans).unwrap();
    assert_eq!((names.len(), raw), (1, vec![]));
    // A person edits what this version wrote. The recorded hash is still this version's.
    let mut plans = Plans::default();
    let own = Fragment { consumer: other(), ..fragment() };
    let hash = PlanHash::of(&fragment()).plus(PlanHash::of(&own));
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    plans.want(&other(), &[Arc::new(own)], 1);
    plans.seen(newer("1", hash));
    let (names, raw, _) = written(&mut plans).unwrap();
    assert_eq!((names.len(), raw), (2, vec![]));
}

#[test]
fn a_plan_that_belongs_to_a_deleted_load_balancer_is_written_again_once() {
    let mut plans = Plans::default();
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    plans.seen(seen("1", "old", false));
    assert_eq!(next(&mut plans, "old"), None);
    assert_eq!(next(&mut plans, "new"), Some((vec![fragment()], Some("1".to_owned()))));
    let (now, wait) = (Uptime::default(), std::time::Duration::from_secs(9));
    plans.refused("edge-0", now + wait);
    assert_eq!(next(&mut plans, "new"), None);
    let write = plans.next(&"edge".into(), Some("new"), now + wait).unwrap();
    plans.wrote(write.write, Some("2".to_owned()), None);
    assert_eq!(next(&mut plans, "new"), None);
}

#[test]
fn an_object_that_names_another_driver_than_the_source_needs_is_written_again_once() {
    let (mut plans, lb, now) = (Plans::default(), Arc::from("edge"), Uptime::default());
    let haproxy = Some(Carrier::Haproxy);
    plans.seen(seen("1", "uid", false));
    assert!(plans.next_driver(&lb, haproxy).is_none(), "it is not planned yet");
    plans.want(&consumer(), &[Arc::new(fragment())], 1);
    assert!(plans.next(&lb, Some("uid"), now).is_none());
    let write = plans.next_driver(&lb, haproxy).unwrap();
    assert_eq!((write.name.as_str(), write.version.as_deref()), ("edge-0", Some("1")));
    assert_eq!(write.object("uid").spec.fragments, [fragment()]);
    plans.wrote(write.write, Some("2".to_owned()), haproxy);
    assert!(plans.next_driver(&lb, haproxy).is_none());
    plans.seen(PlanSeen { driver: Some("haproxy".into()), ..seen("3", "uid", false) });
    assert!(plans.next_driver(&lb, haproxy).is_none());
    // The load balancer has another source now, and then one without an agent.
    assert!(plans.next_driver(&lb, Some(Carrier::Nginx)).is_some());
    let write = plans.next_driver(&lb, None).unwrap();
    // The API answers with the same version where a write changes nothing.
    plans.wrote(write.write, Some("3".to_owned()), None);
    assert!(plans.next_driver(&lb, None).is_none());
    let write = plans.next_driver(&lb, haproxy).unwrap();
    plans.refused(&write.name, now + Uptime::from_secs(1));
    assert!(plans.next_driver(&lb, haproxy).is_none());
}

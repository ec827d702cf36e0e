//! Tests what `doctor` finds in installations, and that it finds nothing where nothing is wrong.

use super::super::doctor::{Diagnosis, Installation, Rights};
use super::super::list::ListError;
use super::*;
use std::collections::BTreeSet;

/// An installation in which nothing is wrong.
fn sound() -> Installation {
    let mut lists = settled();
    annotate(&mut lists.leases[0], names::ANNOTATION_VERSION, "0.1.0+abc");
    let hash = lists.plans[0].spec.hash.to_string();
    let entry = json!({"agent": "two", "renewed": "2030-01-01T00:00:05.000000Z", "lastsSeconds": 15,
        "hash": hash, "version": "0.1.0+abc"});
    annotate(&mut lists.leases[1], &names::agent_entry("two"), &entry.to_string());
    let address = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "Address", "metadata": {"name": "192.0.2.7"},
        "spec": {"pool": "public", "holders": [{"kind": "Service", "namespace": "demo", "name": "hello",
            "uid": "hello", "loadBalancer": "local"}]},
    });
    lists.addresses = vec![object(address)];
    Installation {
        system: "bowline-system".to_owned(),
        version: "0.1.0+abc".to_owned(),
        kinds: Some(bowline_api::crds::all()),
        leases: lists.leases.clone(),
        pools: Some(vec![pool("public", &["192.0.2.0/28"])]),
        facts: Ok(facts(lists)),
        hidden: BTreeSet::new(),
        rights: Rights::Known([("bowline-controller".to_owned(), Vec::new())].into()),
        server_ahead: Some(0),
        now: now(),
    }
}

fn pool(name: &str, addresses: &[&str]) -> bowline_api::AddressPool {
    object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": name},
        "spec": {"addresses": addresses},
    }))
}

/// The same with other lists.
pub(super) fn with(change: impl FnOnce(&mut Lists)) -> Installation {
    let mut lists = settled();
    annotate(&mut lists.leases[0], names::ANNOTATION_VERSION, "0.1.0+abc");
    change(&mut lists);
    Installation { leases: lists.leases.clone(), facts: Ok(facts(lists)), ..sound() }
}

/// What is wrong with it: the lines that say so, with what helps.
pub(super) fn wrong(installation: &Installation) -> String {
    let text = Diagnosis::of(installation).text();
    let words = joined(&text);
    assert_eq!(Diagnosis::of(installation).is_wrong(), words.contains("WRONG"), "{text}");
    text
}

#[track_caller]
pub(super) fn finds(installation: &Installation, message: &str, remedy: &str) {
    let text = wrong(installation);
    let found = joined(&text);
    assert!(found.contains(&format!("WRONG {message} What helps: {remedy}")), "{text}");
}

#[test]
fn a_sound_installation_has_every_check_and_nothing_wrong() {
    assert_eq!(
        wrong(&sound()),
        "\
ok     Kinds      all 9 are installed, of this version
ok     Rights     bowline-controller may do what they need
ok     Leader     one leads, last seen 2 s ago
ok     Agents     1 load balancer with live agents
ok     Versions   all are of 0.1.0+abc
ok     Pools      1 AddressPool, none overlap
ok     Addresses  1 address on load balancers, all with a live agent
ok     Speakers   none runs, and no Advertisement asks for one
ok     IpMode     the kube-proxies are of 1.30 or later, as far as Nodes tell
ok     Clocks     they agree, as far as Leases show

Nothing is wrong.
"
    );
}

#[test]
fn an_agent_that_is_missing_is_started_with_the_driver_that_its_load_balancer_needs() {
    let mut lists = settled();
    lists.leases.truncate(1);
    lists.load_balancers[0] = object(json!({
        "metadata": {"name": "local", "uid": "l"},
        "spec": {
            "bareMetalLoadBalancer": {"type": "Haproxy", "serviceName": "haproxy"},
            "addresses": ["127.0.0.1"], "allowedNamespaces": {"from": "All"},
        },
    }));
    let alone = Installation { facts: Ok(facts(lists)), ..sound() };
    let remedy =
        "start it: bowline agent --load-balancer local --driver haproxy, or kubectl get pods";
    finds(&alone, "Agents load balancer local has no agent: nothing carries its traffic", remedy);
}

#[test]
fn kinds_that_are_missing_or_of_another_version_are_named() {
    let mut kinds = bowline_api::crds::all();
    kinds.retain(|it| it.spec.names.kind != "Plan");
    let lacking = Installation { kinds: Some(kinds.clone()), ..sound() };
    finds(&lacking, "Kinds the cluster lacks Plan", "kubectl apply -f deploy/crds");
    // As a server that knows an older schema, and adds defaults.
    let text = serde_json::to_string(&bowline_api::crds::all()).expect("JSON");
    let mut older: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let pool = older.iter_mut().find(|it| it["spec"]["names"]["kind"] == "AddressPool");
    let schema =
        &mut pool.expect("it is there")["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = schema["properties"]["spec"]["properties"].as_object_mut().expect("fields");
    assert!(spec.remove("reuseAfter").is_some());
    let kinds = older.into_iter().map(object).collect();
    let other = Installation { kinds: Some(kinds), ..sound() };
    finds(
        &other,
        "Kinds AddressPool: the cluster has another version than this program",
        "kubectl apply -f deploy/crds",
    );
    let mut newer = bowline_api::crds::all();
    newer[0].spec.preserve_unknown_fields = Some(false);
    newer[0].spec.versions[0].deprecated = Some(false);
    assert!(wrong(&Installation { kinds: Some(newer), ..sound() }).contains("ok     Kinds"));
}

#[test]
fn a_cluster_without_bowline_is_told_what_comes_first() {
    let bare = Installation {
        kinds: Some(Vec::new()),
        facts: Err(ListError::NotInstalled("LoadBalancer".to_owned())),
        pools: None,
        leases: Vec::new(),
        ..sound()
    };
    let text = joined(&wrong(&bare));
    assert!(text.contains("WRONG Leader this cluster has no LoadBalancer: "), "{text}");
    assert!(text.contains("What helps: install Bowline (docs/install.md)"), "{text}");
}

#[test]
fn rights_that_a_process_lacks_are_named() {
    let lacking = vec!["watch secrets".to_owned(), "patch leases.coordination.k8s.io".to_owned()];
    let rights = Rights::Known([("bowline-controller".to_owned(), lacking)].into());
    finds(
        &Installation { rights, ..sound() },
        "Rights ServiceAccount bowline-controller may not watch secrets, patch leases.coordination.k8s.io",
        "helm upgrade",
    );
    let rights = Rights::Unknown("you may not ask".to_owned());
    assert!(
        wrong(&Installation { rights, ..sound() }).contains("?      Rights     you may not ask")
    );
}

#[test]
fn what_may_not_be_listed_or_does_not_answer_is_unknown_and_not_wrong() {
    let blind = |hidden: &[&'static str]| {
        let mut none = with(|lists| {
            lists.leases.clear();
            lists.load_balancers.clear();
        });
        none.hidden = hidden.iter().copied().collect();
        wrong(&none)
    };
    let leases = blind(&["leases"]);
    for check in ["Leader  ", "Agents  ", "Versions", "Addresses"] {
        let line = format!("?      {check:<9}  you may not list leases");
        assert!(leases.contains(&line), "{line}: {leases}");
    }
    assert!(leases.ends_with("Nothing is wrong.\n"), "{leases}");
    let balancers = blind(&["loadbalancers.bowline.dev"]);
    assert!(balancers.contains("?      Agents     you may not list loadbalancers"), "{balancers}");
    assert!(balancers.contains("WRONG  Leader"), "leases are known: {balancers}");
    let silent = ListError::Unreachable("timed out".to_owned());
    let text = wrong(&Installation { facts: Err(silent), ..sound() });
    assert!(text.contains("?      Leader     the cluster does not answer (timed out)"), "{text}");
    assert!(!text.contains("install Bowline"), "{text}");
}

#[test]
fn a_leader_that_is_gone_is_told_with_when_it_was_last_seen() {
    let none = with(|lists| drop(lists.leases.remove(0)));
    finds(&none, "Leader no controller leads", "kubectl -n bowline-system get pods");
    let silent = with(|lists| {
        let time = "2029-12-31T23:50:10Z".parse().expect("a time");
        lists.leases[0].spec.as_mut().expect("a spec").renew_time = Some(MicroTime(time));
    });
    finds(&silent, "Leader one led and was last seen 10 min ago", "kubectl -n bowline-system");
    let alone = with(|lists| lists.leases[0].spec = Some(object(json!({}))));
    assert!(!wrong(&alone).contains("WRONG"), "without an election nobody leads");
    assert!(wrong(&alone).contains("?      Leader     controllers run with --leader-elect=false"));
}

#[test]
fn a_load_balancer_without_a_live_agent_and_its_addresses_are_named() {
    let mut none = with(|lists| {
        lists.leases.truncate(1);
        let Ok(facts) = sound().facts else { panic!("it is sound") };
        lists.addresses = facts.addresses;
    });
    let start = "start it: bowline agent --load-balancer local";
    finds(&none, "Agents load balancer local has no agent: nothing carries its traffic", start);
    let back = "bring its agent back: bowline agent --load-balancer local";
    finds(&none, "Addresses no live agent of local serves 192.0.2.7", back);
    none = with(|lists| {
        let Ok(facts) = sound().facts else { panic!("it is sound") };
        lists.addresses = facts.addresses;
        lists.addresses[0].spec.holders[0].load_balancer = Some("gone".to_owned());
    });
    finds(&none, "Addresses load balancer \"gone\" does not exist and has 192.0.2.7", "wait for");
}

#[test]
fn agents_of_another_version_than_the_leader_are_counted_and_named() {
    let of = |version: Option<&str>| {
        with(|lists| {
            let renewed = "2030-01-01T00:00:05.000000Z";
            let mut entry = json!({"agent": "two", "renewed": renewed, "lastsSeconds": 15});
            if let Some(version) = version {
                entry["version"] = json!(version);
            }
            annotate(&mut lists.leases[1], &names::agent_entry("two"), &entry.to_string());
        })
    };
    let remedy = "upgrade what is older";
    finds(&of(Some("0.0.9")), "Versions two of 0.0.9, the leader of 0.1.0+abc", remedy);
    finds(&of(Some("0.1.0+def")), "Versions two of 0.1.0+def, the leader of 0.1.0+abc", remedy);
    finds(&of(None), "Versions two of an unknown version, the leader of 0.1.0+abc", remedy);
    assert!(!wrong(&of(Some("0.1.0"))).contains("WRONG"), "its commit is not known");
    let newer = Installation { version: "0.2.0".to_owned(), ..sound() };
    assert!(
        wrong(&newer).contains("?      Versions   this program is of 0.2.0"),
        "{}",
        wrong(&newer)
    );
}

#[test]
fn pools_that_overlap_or_cannot_be_read_are_named_and_many_are_counted() {
    let pools = |all: Vec<bowline_api::AddressPool>| Installation { pools: Some(all), ..sound() };
    let two = pools(vec![pool("a", &["192.0.2.0/28"]), pool("b", &["192.0.2.8-192.0.2.9"])]);
    finds(
        &two,
        "Pools AddressPools a and b overlap in 192.0.2.0-192.0.2.15: the younger one grants no new addresses",
        "take the addresses out of spec.addresses",
    );
    let bad = wrong(&pools(vec![pool("a", &["nonsense"])]));
    assert!(bad.contains("WRONG  Pools      AddressPool a: "), "{bad}");
    let many = (0..10).map(|number| pool(&format!("p{number}"), &["192.0.2.0/28"])).collect();
    let text = wrong(&pools(many));
    assert_eq!(text.matches("WRONG").count(), 5, "{text}");
    assert!(joined(&text).contains("(and 40 more like this)"), "{text}");
}

#[test]
fn clocks_that_differ_are_told_from_the_server_and_from_leases_of_the_future() {
    let behind = Installation { server_ahead: Some(90), ..sound() };
    let ntp = "synchronize it by NTP";
    finds(&behind, "Clocks this machine's clock is 90 s behind the API server's", ntp);
    let ahead = with(|lists| {
        let time = "2030-01-01T00:01:10Z".parse().expect("a time");
        lists.leases[0].spec.as_mut().expect("a spec").renew_time = Some(MicroTime(time));
    });
    finds(&ahead, "Clocks the clock of one is 60 s ahead", ntp);
    let unknown = Installation { server_ahead: None, ..sound() };
    assert!(wrong(&unknown).contains("?      Clocks"), "{}", wrong(&unknown));
}

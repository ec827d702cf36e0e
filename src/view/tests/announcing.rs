//! Tests what `explain`, `status` and `doctor` say of announcements.

use super::addresses::{address, alone, holder};
use super::doctor::{finds, with, wrong};
use super::*;
use bowline_core::report::speaker::{Session, SpeakerReport};

fn kind<T: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value) -> T {
    object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": spec,
    }))
}

/// The Lease of the speaker of node a, which tells router tor of these addresses.
fn speaker(up: bool, told: &[&str], agents: &[&str]) -> Lease {
    let session = Session { up, routes: 1, reason: (!up).then(|| "refused".into()) };
    let told = told.iter().map(|it| (it.parse().expect("an address"), ["tor".into()].into()));
    let sessions = [("tor".into(), session)].into();
    let report = SpeakerReport::new("a".into(), "0.1.0+abc".into(), sessions, told, [])
        .hearing(agents.iter().map(|it| (*it).into()));
    let text = serde_json::to_string(&report).expect("JSON");
    object(json!({
        "metadata": {"name": "bowline-speaker-a", "annotations": {names::ANNOTATION_SPEAKER: text}},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2030-01-01T00:00:05.000000Z"},
    }))
}

const AT: &str = "203.0.113.2";

/// A Service with an address alone, and an Advertisement of its pool to the router tor.
fn announced(leases: impl IntoIterator<Item = Lease>) -> Lists {
    let held = address(AT, "public", json!([holder("hello", None)]), json!({"state": "Active"}));
    let mut lists = alone(json!({}), json!([]), vec![held]);
    lists.pools =
        Some(vec![kind("AddressPool", "public", json!({"addresses": ["203.0.113.0/24"]}))]);
    lists.advertisements =
        vec![kind("Advertisement", "public", json!({"addressPools": ["public"], "bgp": {}}))];
    let router = json!({"peerAddress": "192.0.2.254", "peerASN": 1, "myASN": 2});
    lists.peers = vec![kind("BGPPeer", "tor", router)];
    lists.leases.extend(leases);
    lists
}

/// What is said of the Service and of its address.
#[track_caller]
fn both(lists: &Lists, wanted: &[&str]) {
    for (subject, namespace, name) in
        [(Subject::Service, "demo", "hello"), (Subject::Address, "", AT)]
    {
        let text = explained(lists.clone(), subject, namespace, name);
        for wanted in wanted {
            assert!(joined(&text).contains(wanted), "{wanted}: {text}");
        }
    }
}

#[test]
fn an_address_is_explained_with_the_nodes_and_peers_that_announce_it() {
    let lists = announced([speaker(true, &[AT], &[])]);
    both(&lists, &["Announced by node a, by BGP to tor", "Problems none"]);
    assert_eq!(
        explained(lists.clone(), Subject::Address, "", AT),
        "\
Address 203.0.113.2 of pool public: Active

  Held by      Service demo/hello
  Announced by node a, by BGP to tor

  Problems     none
"
    );
    let key = ObjectKey::new("", AT);
    let explanation = Explanation::of(&facts(lists), Subject::Address, &key).expect("it exists");
    let json: Value = serde_json::from_str(&explanation.json().expect("JSON")).expect("JSON");
    assert_eq!(json["kind"], "AddressExplanation");
    let announcing = json!({"speakers": 1, "addresses": [{"address": AT, "bgp": {"a": ["tor"]}}]});
    assert_eq!((&json["announcing"], &json["problems"]), (&announcing, &json!([])));
}

#[test]
fn that_no_node_announces_an_address_is_a_problem_with_a_remedy() {
    let down = announced([speaker(false, &[AT], &[])]);
    let remedy = "What helps: see why the sessions are down";
    both(&down, &["Announced by no node", "- SessionsDown: no session with a peer", remedy]);
    let mut bare = announced([speaker(true, &[], &[])]);
    bare.advertisements.clear();
    let remedy = "What helps: create an Advertisement";
    both(&bare, &["- NotAdvertised: no Advertisement covers 203.0.113.2", remedy]);
    let mut elsewhere = announced([speaker(true, &[], &[])]);
    elsewhere.peers[0].spec.node_selector = Some(object(json!({"matchLabels": {"rack": "r2"}})));
    both(
        &elsewhere,
        &["- NoPeer: 203.0.113.2 is announced by BGP", "What helps: create a BGPPeer"],
    );
    let mut empty = announced([speaker(true, &[], &[])]);
    empty.slices.clear();
    both(
        &empty,
        &["- NotServed: node \"a\" does not serve 203.0.113.2", "What helps: see that Pods"],
    );
}

#[test]
fn without_speakers_only_an_address_that_is_to_be_announced_is_a_problem() {
    let wanted = announced([]);
    let problem = "- NoSpeaker: no speaker runs that could announce 203.0.113.2";
    both(&wanted, &["Announced by no speaker runs", problem, "What helps: run `bowline speaker`"]);
    let mut quiet = announced([]);
    quiet.advertisements.clear();
    both(&quiet, &["Announced by no speaker runs", "Problems none"]);
}

/// A Service on the load balancer `local`, which has an address of a pool.
fn carried(agents: &[&str], told: &[&str]) -> Lists {
    let mut lists =
        Lists { services: settled().services, ..announced([speaker(true, told, agents)]) };
    annotate(&mut lists.leases[0], names::ANNOTATION_DEFAULT_LOAD_BALANCER, "local");
    lists.load_balancers[0].spec.addresses = vec![AT.parse().expect("an address")];
    let mut holder = holder("hello", None);
    holder["loadBalancer"] = json!("local");
    lists.addresses = vec![address(AT, "public", json!([holder]), json!({}))];
    lists
}

#[test]
fn the_address_of_a_load_balancer_is_announced_where_its_agent_says_that_it_is_open() {
    let of = |lists: Lists| joined(&explained(lists, Subject::Service, "demo", "hello"));
    let shut = of(carried(&["local"], &[]));
    let unserved =
        "- NotServed: node \"a\" does not serve 203.0.113.2: no agent of load balancer \"local\"";
    assert!(shut.contains(unserved), "{shut}");
    let mut without_peer = carried(&["local"], &[]);
    without_peer.peers.clear();
    let without_peer = of(without_peer);
    assert!(without_peer.contains("- NoPeer: 203.0.113.2"), "{without_peer}");
    let open = of(carried(&["local"], &[AT]));
    assert!(open.contains("Announced by node a, by BGP to tor"), "{open}");
    assert!(!open.contains("NotServed"), "{open}");
}

#[test]
fn the_own_address_of_a_load_balancer_is_explained_without_an_address_object() {
    let own = |agents: &[&str], told: &[&str]| {
        let mut lists = carried(agents, told);
        lists.addresses.clear();
        lists.advertisements[0] = kind("Advertisement", "all", json!({"bgp": {}}));
        joined(&explained(lists, Subject::Address, "", AT))
    };
    let open = own(&["local"], &[AT]);
    assert!(open.contains("Held by LoadBalancer local"), "{open}");
    assert!(open.contains("Announced by node a, by BGP to tor"), "{open}");
    let without_agent = own(&[], &[]);
    let why =
        "- NotServed: node \"a\" does not serve 203.0.113.2: no agent of load balancer \"local\"";
    assert!(without_agent.contains(why), "{without_agent}");
    let of_another = own(&["other"], &[]);
    assert!(of_another.contains(why), "{of_another}");
}

#[test]
fn doctor_finds_kube_proxies_that_do_not_know_ip_mode() {
    let with = |version: &str, reason: &str| {
        installed(Some(speaker(true, &[], &[])), |lists| {
            let mut holder = holder("hello", None);
            holder["loadBalancer"] = json!("local");
            lists.addresses = vec![address(AT, "public", json!([holder]), json!({}))];
            lists.nodes = vec![object(json!({
                "metadata": {"name": "a"},
                "status": {
                    "nodeInfo": {
                        "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                        "kubeProxyVersion": version, "kubeletVersion": version, "machineID": "",
                        "operatingSystem": "", "osImage": "", "systemUUID": "",
                    },
                    "conditions": [{"type": "NetworkUnavailable", "status": "False", "reason": reason}],
                },
            }))];
        })
    };
    let said = "IpMode kube-proxy before 1.30 does not know ipMode: Proxy, on node a";
    finds(&with("v1.29.9", ""), said, "connections of Pods and nodes there");
    let new = joined(&wrong(&with("v1.31.0", "")));
    assert!(new.contains("ok IpMode the kube-proxies are of 1.30"), "{new}");
    let cilium = joined(&wrong(&with("v1.31.0", "CiliumIsUp")));
    assert!(cilium.contains("IpMode Cilium runs on node a"), "{cilium}");
}

#[test]
fn a_load_balancer_says_who_announces_it_where_an_advertisement_names_it_or_a_node_announces_it() {
    let of = |lists: Lists| joined(&explained(lists, Subject::LoadBalancer, "", "local"));
    let open = of(carried(&["local"], &[AT]));
    assert!(open.contains("Announced by node a, by BGP to tor"), "{open}");
    let mut unnamed = carried(&[], &[]);
    assert!(!of(unnamed.clone()).contains("Announced"));
    unnamed.advertisements[0].spec.load_balancers = vec!["local".to_owned()];
    let named = of(unnamed);
    assert!(named.contains("Announced by no node Problem NotServed: node \"a\""), "{named}");
}

#[test]
fn the_status_has_a_line_about_announcing_where_speakers_run_or_should() {
    let status = |lists: Lists| joined(&Status::of(&facts(lists)).text());
    let told = status(announced([speaker(true, &[AT], &[])]));
    let line = "Announcing: 1 of 1 address announced by 1 speaker, 1 of 1 BGP sessions up";
    assert!(told.contains(line), "{told}");
    let down = status(announced([speaker(false, &[AT], &[])]));
    let line = "Announcing: 0 of 1 address announced by 1 speaker, 0 of 1 BGP sessions up";
    assert!(down.contains(line), "{down}");
    let none = status(announced([]));
    assert!(none.contains("Announcing: no speaker runs, and Advertisements ask for one"), "{none}");
    assert!(!status(lists()).contains("Announcing"));
}

/// An installation whose only findings are about speakers.
fn installed(
    lease: Option<Lease>,
    change: impl FnOnce(&mut Lists),
) -> super::super::doctor::Installation {
    with(|lists| {
        let announced = announced([]);
        lists.advertisements = announced.advertisements;
        lists.peers = announced.peers;
        lists.pools = announced.pools;
        lists.leases.extend(lease);
        change(lists);
    })
}

#[test]
fn doctor_finds_what_keeps_speakers_from_announcing() {
    let up = || Some(speaker(true, &[], &[]));
    let fine = wrong(&installed(up(), |_| ()));
    assert!(fine.contains("ok     Speakers   0 of 0 addresses announced by 1 speaker"), "{fine}");
    let none = installed(None, |_| ());
    finds(
        &none,
        "Speakers Advertisements or BGPPeers exist, and no speaker runs: nothing is announced",
        "run speakers",
    );
    let down = installed(Some(speaker(false, &[], &[])), |_| ());
    finds(&down, "Speakers BGPPeer tor has no session on any node: node a: refused", "see why");
    let missing = installed(up(), |lists| {
        lists.advertisements[0].spec.address_pools = vec!["gone".to_owned()];
    });
    let said = "Speakers Advertisement public names what does not exist: AddressPool gone";
    finds(&missing, said, "correct its spec");
    let unlabelled = installed(up(), |lists| {
        lists.advertisements[0].spec.address_pool_selector =
            Some(object(json!({"matchLabels": {"tier": "edge"}})));
        lists.advertisements[0].spec.address_pools.clear();
    });
    let said = "Speakers addressPoolSelector of Advertisement public selects no AddressPool";
    finds(&unlabelled, said, "correct its spec");
    let elsewhere = installed(up(), |lists| {
        lists.nodes = vec![object(json!({"metadata": {"name": "b", "labels": {"rack": "r2"}}}))];
        lists.advertisements[0].spec.node_selector =
            Some(object(json!({"matchLabels": {"rack": "r2"}})));
    });
    let said = "Speakers Advertisement public selects nodes without a speaker: b";
    finds(&elsewhere, said, "run a speaker there");
    let silent = installed(up(), |lists| {
        let time = "2029-12-31T23:50:10Z".parse().expect("a time");
        let speaker = lists.leases.last_mut().expect("a Lease");
        speaker.spec.as_mut().expect("a spec").renew_time = Some(MicroTime(time));
    });
    finds(
        &silent,
        "Speakers the speaker of node \"a\" was last seen 10 min ago",
        "see on the node",
    );
    let other = installed(up(), |lists| {
        annotate(&mut lists.leases[0], names::ANNOTATION_VERSION, "0.2.0");
    });
    let text = wrong(&other);
    assert!(joined(&text).contains("the speaker of a of 0.1.0+abc, the leader of 0.2.0"), "{text}");
}

#[test]
fn doctor_finds_agents_that_the_speaker_of_their_node_does_not_hear() {
    let entry = json!({"agent": "two", "renewed": "2030-01-01T00:00:05.000000Z", "lastsSeconds": 15,
        "version": "0.1.0+abc", "node": "a"});
    let agent = |lists: &mut Lists| {
        annotate(&mut lists.leases[1], &names::agent_entry("two"), &entry.to_string());
    };
    let unheard = installed(Some(speaker(true, &[], &[])), agent);
    let said = "Speakers agents of local do not reach the speaker of node a";
    finds(&unheard, said, "both have to have the folder /run/bowline");
    let heard = wrong(&installed(Some(speaker(true, &[], &["local"])), agent));
    assert!(heard.contains("ok     Speakers"), "{heard}");
}

//! Tests of the BGPPeers made from MetalLB's, as whole values.

use super::super::announce::{Announcing, announcing};
use super::super::kinds::{BFDProfile, BGPPeer as Theirs};
use super::old_peer;
use serde_json::{Value, json};

fn theirs(name: &str, spec: Value) -> Theirs {
    serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer",
        "metadata": {"name": name, "namespace": "metallb-system"}, "spec": spec,
    }))
    .unwrap()
}

fn profile(spec: Value) -> BFDProfile {
    serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "BFDProfile",
        "metadata": {"name": "fast", "namespace": "metallb-system"}, "spec": spec,
    }))
    .unwrap()
}

/// Name and spec of what is made, and what is lost.
fn all(peers: Vec<Theirs>, profiles: Vec<BFDProfile>) -> (Value, Vec<String>) {
    let announcing_ = Announcing { peers, profiles, ..Announcing::default() };
    let made = announcing(&announcing_, "metallb-system", "lb");
    let spec = |it: &crate::bgp_peer::BGPPeer| (it.metadata.name.clone().unwrap(), json!(it.spec));
    let objects = Value::Object(made.peers.iter().map(spec).collect());
    (objects, made.losses.iter().map(ToString::to_string).collect())
}

fn base(more: Value) -> Value {
    let mut spec = json!({"peerAddress": "192.0.2.1", "peerASN": 64513, "myASN": 64512});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn becomes(more: Value) -> (Value, Vec<String>) {
    let (made, losses) = all(vec![theirs("tor", base(more))], vec![]);
    (made["tor"].clone(), losses)
}

/// What a peer with nothing but the necessary becomes.
fn plain() -> Value {
    json!({
        "peerAddress": "192.0.2.1", "peerPort": 179, "peerASN": 64513, "myASN": 64512, "ttlSecurity": false,
        "listen": false, "holdTime": "1m30s", "connectTime": "10s", "ebgpMultiHop": false,
        "gracefulRestart": {"enabled": true, "restartTime": "2m"},
    })
}

fn plain_with(more: Value) -> Value {
    let mut spec = plain();
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[test]
fn a_plain_peer_has_the_defaults_of_both() {
    let written_out = json!({
        "peerPort": 179, "disableMP": false, "dualStackAddressFamily": false, "ebgpMultiHop": false,
        "passwordSecret": {}, "enableGracefulRestart": false, "localASN": 0,
    });
    for more in [json!({}), written_out] {
        assert_eq!(becomes(more), (plain(), vec![]));
    }
}

#[test]
fn everything_that_a_peer_can_say_is_taken_over() {
    let spec = json!({
        "interface": "eth1", "dynamicASN": "external", "myASN": 64512, "localASN": 4_200_000_000_u32,
        "peerPort": 1179, "holdTime": "9s", "keepaliveTime": "2s", "connectTime": "1s", "routerID": "192.0.2.9",
        "vrf": "blue", "bfdProfile": "fast", "dualStackAddressFamily": true, "enableGracefulRestart": true,
        "nodeSelectors": [{"matchLabels": {"rack": "a"}}],
    });
    let fast = profile(json!({
        "receiveInterval": 100, "transmitInterval": 1000, "detectMultiplier": 5, "minimumTtl": 250,
        "echoInterval": 50, "echoMode": false, "passiveMode": false,
    }));
    let (made, losses) = all(vec![theirs("tor", spec)], vec![fast]);
    assert_eq!(losses, Vec::<String>::new());
    assert_eq!(
        made["tor"],
        json!({
            "interface": "eth1", "peerPort": 1179, "peerASN": "external", "myASN": 4_200_000_000_u32,
            "routerID": "192.0.2.9", "vrf": "blue", "ttlSecurity": false, "listen": false,
            "nodeSelector": {"matchLabels": {"rack": "a"}},
            "holdTime": "9s", "keepaliveTime": "2s", "connectTime": "1s", "ebgpMultiHop": false,
            "gracefulRestart": {"enabled": true, "restartTime": "2m"},
            "bfd": {"receiveInterval": "100ms", "transmitInterval": "1s", "detectMultiplier": 5, "echo": false, "minimumTTL": 250},
        })
    );
    let (made, losses) = becomes(json!({"sourceAddress": "192.0.2.8", "ebgpMultiHop": true}));
    assert_eq!(losses, Vec::<String>::new());
    assert_eq!(made, plain_with(json!({"sourceAddress": "192.0.2.8", "ebgpMultiHop": true})));
}

#[test]
fn the_time_that_is_missing_follows_from_the_other() {
    let (made, losses) = becomes(json!({"keepaliveTime": "5s"}));
    assert_eq!(
        (made["holdTime"].clone(), made["keepaliveTime"].clone()),
        (json!("15s"), json!("5s"))
    );
    assert_eq!(losses, Vec::<String>::new());
    let (made, _) = becomes(json!({"holdTime": "3m0s"}));
    assert_eq!(
        (made["holdTime"].clone(), made["keepaliveTime"].clone()),
        (json!("3m"), Value::Null)
    );
    let (made, losses) = becomes(json!({"holdTime": "30s", "keepaliveTime": "20s"}));
    assert_eq!(made["keepaliveTime"], Value::Null);
    assert_eq!(
        losses,
        ["BGPPeer tor: keepaliveTime: 20s is more than a third of holdTime; a third is used"]
    );
}

#[test]
fn the_oldest_version_writes_no_time_as_zero() {
    let spec = base(json!({"holdTime": "0s", "keepaliveTime": "0s"}));
    let object = json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "BGPPeer", "metadata": {"name": "tor"}, "spec": spec,
    });
    let peer = old_peer(serde_json::from_value(object).unwrap()).unwrap();
    let (made, losses) = all(vec![peer], vec![]);
    assert_eq!((made["tor"].clone(), losses), (plain(), vec![]));
    let (made, _) = becomes(json!({"holdTime": "0s"}));
    assert_eq!(made["holdTime"], json!("0s"));
}

#[test]
fn a_session_stays_one_session_of_a_node_whatever_its_selectors_are() {
    let selectors = json!([{"matchLabels": {"rack": "a"}}, {"matchLabels": {"edge": "yes"}}]);
    let peers = vec![theirs("tor", base(json!({"nodeSelectors": selectors})))];
    let (made, losses) = all(peers, vec![]);
    assert_eq!(losses, Vec::<String>::new());
    let edge = json!({
        "matchLabels": {"edge": "yes"},
        "matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["a"]}],
    });
    let expected = json!({
        "tor-1": plain_with(json!({"nodeSelector": {"matchLabels": {"rack": "a"}}})),
        "tor-2": plain_with(json!({"nodeSelector": edge})),
    });
    assert_eq!(made, expected);
}

#[test]
fn a_number_never_takes_the_name_of_another_peer() {
    let selectors = json!([{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}]);
    let peers = vec![
        theirs("tor", base(json!({"nodeSelectors": selectors}))),
        theirs("tor-1", base(json!({"peerAddress": "192.0.2.2"}))),
    ];
    let (made, losses) = all(peers, vec![]);
    assert_eq!(made["tor-1"]["peerAddress"], json!("192.0.2.2"));
    let why = "BGPPeer tor: the name tor-1 is taken by another BGPPeer; nothing is made for it";
    assert_eq!(losses, [why]);
}

#[test]
fn a_password_is_named_with_the_command_that_copies_it_and_is_itself_nowhere() {
    let (made, losses) =
        becomes(json!({"passwordSecret": {"name": "tor-key", "namespace": "elsewhere"}}));
    assert_eq!(made, plain_with(json!({"passwordSecretRef": {"name": "tor-key"}})));
    let command = "BGPPeer tor: passwordSecret: the password is not copied, and there is no session without it: run  \
        kubectl get secret tor-key -n metallb-system -o go-template='{{.data.password | base64decode}}' | kubectl \
        create secret generic tor-key -n lb --type kubernetes.io/basic-auth --from-file=password=/dev/stdin";
    assert_eq!(losses, [command]);

    let peer = theirs("tor", base(json!({"password": "Sesame!"})));
    assert!(!format!("{peer:?}").contains("Sesame"));
    let (made, losses) = all(vec![peer], vec![]);
    assert_eq!(made["tor"], plain_with(json!({"passwordSecretRef": {"name": "tor"}})));
    let command = "BGPPeer tor: password: the password is not copied, and there is no session without it: run  \
        kubectl get bgppeers.metallb.io tor -n metallb-system -o jsonpath={.spec.password} | kubectl create secret \
        generic tor -n lb --type kubernetes.io/basic-auth --from-file=password=/dev/stdin";
    assert_eq!(losses, [command]);
}

#[test]
fn text_in_a_command_can_be_nothing_but_a_name() {
    for name in ["a;reboot", "$(reboot)", "a b", "A", "-n", "a\nb", "..", "a/../b", "\u{1b}[2J"] {
        let (made, losses) = becomes(json!({"passwordSecret": {"name": name}}));
        assert_eq!(made, Value::Null, "{name:?}");
        let why =
            format!("passwordSecret {name:?} is not the name of a Secret; nothing is made for it");
        assert_eq!(losses, [format!("BGPPeer tor: {why}")]);
    }
}

#[test]
fn what_has_no_place_here_is_left_out_and_told() {
    let losses = |more: Value| becomes(more).1;
    for (more, says) in [
        (json!({"disableMP": true}), "disableMP: true is left out: a session carries the families"),
        (
            json!({"routerID": "::1"}),
            "routerID: \"::1\" is not written as an IPv4 address; the first one",
        ),
        (
            json!({"sourceAddress": "2001:db8::1"}),
            "sourceAddress: \"2001:db8::1\" is of another family",
        ),
        (json!({"sourceAddress": "eth0"}), "sourceAddress: \"eth0\" is no address; the kernel"),
        (json!({"holdTime": "2s"}), "holdTime: \"2s\" cannot be used; 90s is used"),
        (json!({"keepaliveTime": "500ms"}), "keepaliveTime: \"500ms\" cannot be used; a third"),
        (json!({"connectTime": "soon"}), "connectTime: \"soon\" cannot be used; 10s is"),
        (
            json!({"bfdProfile": "none"}),
            "bfdProfile: \"none\": there is no such BFDProfile; the peer has no BFD",
        ),
    ] {
        let told = losses(more.clone());
        assert!(
            matches!(&told[..], [one] if one.starts_with(&format!("BGPPeer tor: {says}"))),
            "{more}: {told:?}"
        );
    }
    let spec = json!({
        "echoMode": true, "echoInterval": 10, "passiveMode": true, "receiveInterval": 1, "detectMultiplier": 256,
    });
    let (made, told) =
        all(vec![theirs("tor", base(json!({"bfdProfile": "fast"})))], vec![profile(spec)]);
    let bfd = json!({
        "receiveInterval": "300ms", "transmitInterval": "300ms", "detectMultiplier": 3, "echo": false, "minimumTTL": 254,
    });
    assert_eq!(made["tor"]["bfd"], bfd);
    let fields: Vec<_> = told.iter().map(|it| it.split(' ').nth(2).unwrap()).collect();
    let expected = ["echoMode:", "passiveMode:", "receiveInterval:", "detectMultiplier:"];
    assert_eq!(fields, expected.map(|it| format!("bfdProfile.{it}")));
    let unnumbered = json!({
        "interface": "eth1", "peerASN": 1, "myASN": 2, "ebgpMultiHop": true, "sourceAddress": "192.0.2.8",
    });
    let (made, told) = all(vec![theirs("tor", unnumbered)], vec![]);
    assert_eq!(
        (&made["tor"]["ebgpMultiHop"], &made["tor"]["sourceAddress"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_peer_that_cannot_be_read_is_not_made() {
    for (more, says) in [
        (json!({"peerAddress": ""}), "it has neither peerAddress nor interface"),
        (json!({"interface": "eth1"}), "it has both peerAddress and interface"),
        (
            json!({"peerAddress": "tor.example.com"}),
            "peerAddress \"tor.example.com\" is no address",
        ),
        (json!({"peerAddress": "fe80::1%eth0"}), "peerAddress \"fe80::1%eth0\" is no address"),
        (json!({"peerAddress": "0.0.0.0"}), "spec.peerAddress: 0.0.0.0 is no address of a machine"),
        (json!({"peerASN": 0}), "it has neither peerASN nor dynamicASN"),
        (json!({"dynamicASN": "internal"}), "it has both peerASN and dynamicASN"),
        (
            json!({"peerASN": 0, "dynamicASN": "any"}),
            "dynamicASN \"any\" is neither internal nor external",
        ),
        (json!({"peerASN": 1_u64 << 32}), "peerASN 4294967296 is no AS number"),
        (json!({"myASN": 0}), "myASN 0 is no AS number"),
        (json!({"peerPort": 65536}), "peerPort 65536 is no TCP port"),
        (
            json!({"nodeSelectors": [{"matchExpressions": [{"key": "a", "operator": "Lt"}]}]}),
            "its nodeSelectors cannot",
        ),
        (
            json!({"password": "a", "passwordSecret": {"name": "a"}}),
            "it has both password and passwordSecret",
        ),
    ] {
        let (made, told) = becomes(more.clone());
        assert_eq!(made, Value::Null, "{more}");
        assert!(
            matches!(&told[..], [one] if one.starts_with(&format!("BGPPeer tor: {says}"))),
            "{more}: {told:?}"
        );
    }
}

//! Tests of the Advertisements made from MetalLB's, as whole values.

use super::*;
use serde_json::{Value, json};

fn object<T: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value) -> T {
    let metadata = json!({"name": name, "namespace": "metallb-system"});
    let object = json!({"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn l2(spec: Value) -> Announcing {
    Announcing { l2: vec![object("L2Advertisement", "first", spec)], ..Announcing::default() }
}

fn bgp(spec: Value) -> Announcing {
    Announcing { bgp: vec![object("BGPAdvertisement", "first", spec)], ..Announcing::default() }
}

/// Name and spec of what is made, and what is lost.
fn becomes(theirs: &Announcing) -> (Value, Vec<String>) {
    let made = announcing(theirs, "metallb-system", "bowline-system");
    let spec = |it: &Advertisement| (it.metadata.name.clone().unwrap(), json!(it.spec));
    let objects = Value::Object(made.advertisements.iter().map(spec).collect());
    (objects, made.losses.iter().map(ToString::to_string).collect())
}

#[test]
fn an_advertisement_that_says_nothing_announces_everything_and_says_where_it_is_from() {
    let mut theirs =
        bgp(json!({"aggregationLength": 32, "aggregationLengthV6": 128, "localPref": 0}));
    theirs.l2 = l2(json!({})).l2;
    let made = announcing(&theirs, "metallb-system", "bowline-system");
    assert_eq!(made.losses, []);
    let annotations = json!({"bowline.dev/imported-from": "metallb.io/metallb-system/first"});
    assert_eq!(
        serde_json::to_value(made.advertisements).unwrap(),
        json!([
            {
                "apiVersion": "bowline.dev/v1alpha1", "kind": "Advertisement",
                "metadata": {"name": "first-l2", "annotations": &annotations}, "spec": {"l2": {}},
            },
            {
                "apiVersion": "bowline.dev/v1alpha1", "kind": "Advertisement",
                "metadata": {"name": "first-bgp", "annotations": annotations},
                "spec": {"bgp": {"aggregationLength": 32, "aggregationLengthV6": 128, "prepend": 0}},
            },
        ])
    );
}

#[test]
fn everything_that_an_advertisement_can_say_is_taken_over() {
    let covers = json!({
        "ipAddressPools": ["p", "q", "p"], "ipAddressPoolSelectors": [{"matchLabels": {"a": "b"}}],
        "serviceSelectors": [{"matchLabels": {"c": "d"}}], "nodeSelectors": [{"matchLabels": {"e": "f"}}],
    });
    let with = |more: Value| {
        let mut spec = covers.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let ours = |more: Value| {
        let mut spec = json!({
            "addressPools": ["p", "q"], "addressPoolSelector": {"matchLabels": {"a": "b"}},
            "serviceSelector": {"matchLabels": {"c": "d"}}, "nodeSelector": {"matchLabels": {"e": "f"}},
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let theirs = l2(with(json!({
        "interfaces": ["eth1", "eth1"],
        "preferredNodeSelectors": [{"weight": 5, "preference": {"matchLabels": {"g": "h"}}}],
    })));
    let expected = json!({"first-l2": ours(json!({
        "l2": {"interfaces": ["eth1"], "preferredNodeSelector": {"matchLabels": {"g": "h"}}},
    }))});
    assert_eq!(becomes(&theirs), (expected, vec![]));
    let theirs = bgp(with(json!({
        "aggregationLength": 24, "aggregationLengthV6": 64, "localPref": 7, "peers": ["tor"],
        "communities": ["65000:100", "large:1:2:3", "0100:1"],
    })));
    let expected = json!({"first-bgp": ours(json!({
        "bgp": {
            "peers": ["tor"], "aggregationLength": 24, "aggregationLengthV6": 64, "localPref": 7, "prepend": 0,
            "communities": ["100:1", "65000:100", "large:1:2:3"],
        },
    }))});
    assert_eq!(becomes(&theirs), (expected, vec![]));
}

#[test]
fn selectors_of_which_one_must_match_are_an_advertisement_each() {
    let theirs = l2(json!({
        "ipAddressPools": ["p"],
        "ipAddressPoolSelectors": [{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}],
        "nodeSelectors": [{"matchLabels": {"host": "x"}}, {"matchLabels": {"host": "y"}}],
    }));
    let nodes =
        json!({"matchExpressions": [{"key": "host", "operator": "In", "values": ["x", "y"]}]});
    let expected = json!({
        "first-l2-1": {
            "addressPools": ["p"], "addressPoolSelector": {"matchLabels": {"a": "1"}}, "nodeSelector": &nodes, "l2": {},
        },
        "first-l2-2": {"addressPoolSelector": {"matchLabels": {"b": "1"}}, "nodeSelector": &nodes, "l2": {}},
    });
    assert_eq!(becomes(&theirs), (expected, vec![]));
}

#[test]
fn a_selector_of_all_pools_beside_named_ones_still_means_all_pools() {
    let theirs = l2(json!({"ipAddressPools": ["p"], "ipAddressPoolSelectors": [{}]}));
    let expected =
        json!({"first-l2": {"addressPools": ["p"], "addressPoolSelector": {}, "l2": {}}});
    assert_eq!(becomes(&theirs), (expected, vec![]));
    let theirs = l2(json!({"ipAddressPoolSelectors": [{}]}));
    assert_eq!(becomes(&theirs), (json!({"first-l2": {"l2": {}}}), vec![]));
}

#[test]
fn communities_are_found_by_the_names_that_metallb_gives_them() {
    let mut theirs = bgp(json!({"communities": ["vpn-only", "65000:1"]}));
    let names = json!({"communities": [{"name": "vpn-only", "value": "large:1:2:3"}, {"name": "x", "value": "y"}]});
    theirs.communities = vec![object("Community", "names", names)];
    let (made, losses) = becomes(&theirs);
    assert_eq!(losses, Vec::<String>::new());
    assert_eq!(made["first-bgp"]["bgp"]["communities"], json!(["65000:1", "large:1:2:3"]));
}

#[test]
fn a_route_is_not_announced_without_a_community_that_it_should_have() {
    let mut theirs = bgp(json!({"communities": ["x"]}));
    theirs.communities = vec![object(
        "Community",
        "names",
        json!({"communities": [{"name": "x", "value": "65536:1"}]}),
    )];
    let known = "is neither ASN:NUMBER, nor large:ASN:NUMBER:NUMBER, nor the name of a community in a Community object";
    let lost = format!(
        "BGPAdvertisement first: communities: \"65536:1\" (community \"x\") {known}; nothing is made for it"
    );
    assert_eq!(becomes(&theirs), (json!({}), vec![lost]));
    theirs.communities.clear();
    let lost =
        format!("BGPAdvertisement first: communities: \"x\" {known}; nothing is made for it");
    assert_eq!(becomes(&theirs), (json!({}), vec![lost]));
}

#[test]
fn peers_that_became_several_are_all_named_and_missing_ones_still_mean_no_peer() {
    let selectors = json!([{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}]);
    let mut theirs = bgp(json!({"peers": ["tor", "broken", "missing"]}));
    let peer = |name: &str, address: &str| {
        let spec =
            json!({"peerAddress": address, "peerASN": 1, "myASN": 2, "nodeSelectors": &selectors});
        object("BGPPeer", name, spec)
    };
    theirs.peers = vec![peer("tor", "192.0.2.1"), peer("broken", "nowhere")];
    let (made, _) = becomes(&theirs);
    assert_eq!(made["first-bgp"]["bgp"]["peers"], json!(["tor-1", "tor-2", "broken", "missing"]));
}

#[test]
fn what_has_no_place_here_is_told_and_what_could_announce_more_is_not_made() {
    let lost = |theirs: &Announcing| becomes(theirs).1;
    let weights = json!([{"weight": 1, "preference": {}}, {"weight": 9, "preference": {"matchLabels": {"a": "b"}}}]);
    let theirs = l2(json!({"preferredNodeSelectors": weights}));
    let why = "there is one preference here: the first with the highest weight of 2 is used";
    assert_eq!(lost(&theirs), [format!("L2Advertisement first: preferredNodeSelectors: {why}")]);
    assert_eq!(
        becomes(&theirs).0["first-l2"]["l2"]["preferredNodeSelector"],
        json!({"matchLabels": {"a": "b"}})
    );
    let theirs = bgp(json!({"aggregationLength": 33, "aggregationLengthV6": 0}));
    let told = [
        "BGPAdvertisement first: aggregationLength: 33 is not between 1 and 32; 32 is used",
        "BGPAdvertisement first: aggregationLengthV6: 0 is not between 1 and 128; 128 is used",
    ];
    assert_eq!(lost(&theirs), told);
    let gt = json!([{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]);
    for field in ["ipAddressPoolSelectors", "serviceSelectors", "nodeSelectors"] {
        let (made, told) = becomes(&l2(json!({field: &gt})));
        assert_eq!(made, json!({}), "{field}");
        assert_eq!(
            told,
            [format!(
                "L2Advertisement first: {field}: a selector cannot be read; nothing is made for it"
            )]
        );
    }
    let many = |key: &str| {
        (0..6).map(|n| json!({"matchLabels": {format!("{key}{n}"): "1"}})).collect::<Value>()
    };
    let theirs = l2(json!({"serviceSelectors": many("s"), "nodeSelectors": many("n")}));
    let why = "its selectors have more than 32 combinations: make fewer selectors; nothing is made for it";
    assert_eq!(becomes(&theirs), (json!({}), vec![format!("L2Advertisement first: {why}")]));
}

#[test]
fn labels_are_copied_only_if_an_advertisement_selects_by_them() {
    let theirs = l2(json!({"ipAddressPoolSelectors": [
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]},
    ]}));
    let keys = selecting_labels(&theirs);
    assert_eq!(keys, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    let mut pool: super::super::IPAddressPool =
        object("IPAddressPool", "p", json!({"addresses": ["192.0.2.0/28"]}));
    let labels = [("a", "1"), ("argocd.argoproj.io/instance", "metallb")];
    pool.metadata.labels =
        Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let (made, _) = super::super::pool(&pool, &keys);
    assert_eq!(json!(made.unwrap().metadata.labels), json!({"a": "1"}));
}

#[test]
fn hostile_text_is_refused_or_stays_text() {
    for text in crate::convert::testing::HOSTILE {
        let mut theirs =
            bgp(json!({"communities": [text], "peers": [text], "ipAddressPools": [text]}));
        theirs.l2 = l2(json!({"interfaces": [text], "ipAddressPools": [text]})).l2;
        let made = announcing(&theirs, "metallb-system", "bowline-system");
        for it in &made.advertisements {
            assert_eq!(it.spec.address_pools, [(*text).to_owned()], "{text:?}");
        }
        for loss in &made.losses {
            assert!(!loss.to_string().contains(|it: char| it.is_control()), "{loss}");
        }
    }
}

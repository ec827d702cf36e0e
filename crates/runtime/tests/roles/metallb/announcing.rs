//! Tests the import of what announces addresses in MetalLB.

use super::{NAMESPACE, definitions, import, install};
use crate::support::{cluster, create};
use bowline_api::advertisement::Advertisement;
use bowline_api::bgp_peer::BGPPeer;
use bowline_runtime::metallb::{Kept, Taken};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

async fn theirs(client: &Client, kind: &str, version: &str, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": format!("metallb.io/{version}"), "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    create(client, object).await;
}

async fn install_all(client: &Client) {
    install(client).await;
    for definition in [
        definitions::l2_advertisement(),
        definitions::bgp_advertisement(),
        definitions::bgp_peer("v1beta2"),
        definitions::community(),
        definitions::bfd_profile(),
    ] {
        create(client, definition).await;
    }
}

async fn peers(client: &Client) -> Value {
    let all = Api::<BGPPeer>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    Value::Object(all.items.iter().map(|it| (it.name_any(), json!(it.spec))).collect())
}

async fn advertisements(client: &Client) -> Value {
    let all = Api::<Advertisement>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    Value::Object(all.items.iter().map(|it| (it.name_any(), json!(it.spec))).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_announces_addresses_is_taken_over_once_and_again_changes_nothing() {
    let cluster = cluster().await;
    let client = cluster.client();
    install_all(&client).await;
    let hosts = json!([
        {"matchLabels": {"kubernetes.io/hostname": "a"}}, {"matchLabels": {"kubernetes.io/hostname": "b"}},
    ]);
    let peer = json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "holdTime": "1m30s",
        "passwordSecret": {"name": "tor"}, "bfdProfile": "fast", "nodeSelectors": &hosts,
    });
    theirs(&client, "BGPPeer", "v1beta2", "tor", peer).await;
    theirs(
        &client,
        "BFDProfile",
        "v1beta1",
        "fast",
        json!({"receiveInterval": 100, "echoMode": true}),
    )
    .await;
    let names = json!({"communities": [{"name": "local", "value": "65535:65281"}]});
    theirs(&client, "Community", "v1beta1", "names", names).await;
    let bgp = json!({"ipAddressPools": ["first"], "communities": ["local"], "peers": ["tor"], "localPref": 200});
    theirs(&client, "BGPAdvertisement", "v1beta1", "default", bgp).await;
    let l2 = json!({"interfaces": ["eth1"], "nodeSelectors": &hosts});
    theirs(&client, "L2Advertisement", "v1beta1", "default", l2).await;

    let first = import(&client, NAMESPACE).await.unwrap().unwrap();
    assert_eq!(first.peers.created, ["tor"]);
    assert_eq!(first.advertisements.created, ["default-l2", "default-bgp"]);
    let told: Vec<_> = first.losses.iter().map(ToString::to_string).collect();
    let has = |text: &str| told.iter().any(|it| it.starts_with(text));
    assert!(has("BGPPeer tor: passwordSecret: the password is not copied"), "{told:?}");
    assert!(has("BGPPeer tor: bfdProfile.echoMode: true is left out"), "{told:?}");
    assert_eq!(told.len(), 3, "and one entry of a pool: {told:?}");
    let nodes = json!({
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a", "b"]}],
    });
    let made = (peers(&client).await, advertisements(&client).await);
    assert_eq!(
        made.0,
        json!({"tor": {
            "peerAddress": "192.0.2.1", "peerPort": 179, "peerASN": 64513, "myASN": 64512,
            "ttlSecurity": false, "listen": false, "nodeSelector": &nodes, "holdTime": "1m30s",
            "connectTime": "10s", "ebgpMultiHop": false, "passwordSecretRef": {"name": "tor"},
            "gracefulRestart": {"enabled": true, "restartTime": "2m"},
            "bfd": {
                "receiveInterval": "100ms", "transmitInterval": "300ms", "detectMultiplier": 3, "echo": false,
                "minimumTTL": 254,
            },
        }})
    );
    assert_eq!(
        made.1,
        json!({
            "default-l2": {"nodeSelector": nodes, "l2": {"interfaces": ["eth1"]}},
            "default-bgp": {"addressPools": ["first"], "bgp": {
                "peers": ["tor"], "aggregationLength": 32, "aggregationLengthV6": 128, "localPref": 200,
                "prepend": 0, "communities": ["no-export"],
            }},
        })
    );
    let again = import(&client, NAMESPACE).await.unwrap().unwrap();
    let kept = |names: &[&str]| Taken {
        created: vec![],
        kept: names.iter().map(|name| ((*name).to_owned(), Kept::Same)).collect(),
    };
    assert_eq!(again.peers, kept(&["tor"]));
    assert_eq!(again.advertisements, kept(&["default-l2", "default-bgp"]));
    assert_eq!((peers(&client).await, advertisements(&client).await), made);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_advertisement_or_peer_that_an_administrator_made_is_never_overwritten() {
    let cluster = cluster().await;
    let client = cluster.client();
    install_all(&client).await;
    let own = |kind: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "bowline.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let peer = json!({"myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.7"});
    create(&client, own("BGPPeer", "tor", peer)).await;
    create(
        &client,
        own("Advertisement", "default-l2", json!({"addressPools": ["mine"], "l2": {}})),
    )
    .await;
    let peer = json!({"myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1"});
    theirs(&client, "BGPPeer", "v1beta2", "tor", peer).await;
    theirs(&client, "L2Advertisement", "v1beta1", "default", json!({})).await;
    let done = import(&client, NAMESPACE).await.unwrap().unwrap();
    assert_eq!(done.peers.kept, [("tor".to_owned(), Kept::Differs)]);
    assert_eq!(done.advertisements.kept, [("default-l2".to_owned(), Kept::Differs)]);
    assert_eq!(peers(&client).await["tor"]["peerAddress"], json!("192.0.2.7"));
    assert_eq!(advertisements(&client).await["default-l2"]["addressPools"], json!(["mine"]));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_the_api_refuses_is_told_and_the_others_are_made() {
    let cluster = cluster().await;
    let client = cluster.client();
    install_all(&client).await;
    let l2 = |interface: &str| json!({"interfaces": [interface]});
    theirs(&client, "L2Advertisement", "v1beta1", "bad", l2("eth1; reboot\n")).await;
    theirs(&client, "L2Advertisement", "v1beta1", "good", l2("eth1")).await;
    let done = import(&client, NAMESPACE).await.unwrap().unwrap();
    assert_eq!(done.advertisements.created, ["good-l2"]);
    let told: Vec<_> = done.losses.iter().map(ToString::to_string).collect();
    let refused =
        told.iter().find(|it| it.starts_with("Advertisement bad-l2 is refused by the API: \""));
    assert!(refused.is_some_and(|it| !it.contains('\n')), "{told:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_of_a_release_that_has_only_the_first_version_are_found() {
    let cluster = cluster().await;
    let client = cluster.client();
    install(&client).await;
    create(&client, definitions::bgp_peer("v1beta1")).await;
    let peer = json!({"myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1", "holdTime": "0s"});
    theirs(&client, "BGPPeer", "v1beta1", "tor", peer).await;
    let done = import(&client, NAMESPACE).await.unwrap().unwrap();
    assert_eq!(done.peers.created, ["tor"]);
    assert_eq!(peers(&client).await["tor"]["holdTime"], json!("1m30s"));
    cluster.shutdown().await;
}

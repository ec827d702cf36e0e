//! Tests how secrets reach the agents of a load balancer: certificates from a user's Secret, also when they are
//! removed, and the cookie secret.

use crate::support::{
    Recorder, cluster, controller_options, create, eventually, load_balancer, service, start_agent,
    start_controller,
};
use bowline_api::{LoadBalancer, names};
use bowline_core::update::{Change, CookieSecret};
use bowline_runtime::{AgentOptions, ControllerOptions};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::api::networking::v1::Ingress;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn certificate() -> Value {
    let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "shop", "namespace": "default"},
        "data": {
            "tls.crt": ByteString(made.cert.pem().into_bytes()),
            "tls.key": ByteString(made.signing_key.serialize_pem().into_bytes()),
        },
    })
}

/// The hashes that the agent's Secret holds; None: there is no Secret.
async fn held(client: &Client) -> Option<BTreeSet<String>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "bowline-system");
    let secret = api.get_opt("bowline-tls-edge-0").await.unwrap()?;
    Some(secret.data.unwrap_or_default().into_keys().collect())
}

/// The hashes of the certificates that a driver has.
fn given(driver: &Recorder) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    for update in driver.updates.lock().unwrap().iter() {
        for change in &update.certificates {
            match change {
                Change::Put(hash, _) => given.insert(hash.to_string()),
                Change::Remove(hash) => given.remove(&**hash),
            };
        }
    }
    given
}

/// Waits until agent and Secret have the same single certificate, other than `before`.
async fn arrives(client: &Client, driver: &Recorder, before: Option<&str>) -> String {
    eventually("the certificate", || async {
        let (held, given) = (held(client).await.unwrap_or_default(), given(driver));
        let one = held.first().filter(|hash| held.len() == 1 && Some(hash.as_str()) != before);
        match one {
            Some(hash) if held == given => Ok(hash.clone()),
            _ => Err(format!("in the Secret {held:?}, at the driver {given:?}")),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_reaches_the_agent_is_exchanged_and_is_not_kept() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, certificate()).await;
    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "bowline"}, "spec": {"controller": "bowline.dev/ingress"}}),
    )
    .await;
    let backend = json!({"service": {"name": "web", "port": {"number": 8080}}});
    create(
        &client,
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {
                "ingressClassName": "bowline",
                "tls": [{"hosts": ["shop.example"], "secretName": "shop"}],
                "rules": [{"host": "shop.example", "http":
                    {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
            },
        }),
    )
    .await;
    let controller = start_controller(client.clone(), controller_options("a"));
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    let first = arrives(&client, &driver, None).await;
    // No update had a site that refers to a missing certificate.
    for update in driver.updates.lock().unwrap().iter() {
        for change in &update.sites {
            let Change::Put(_, site) = change else { continue };
            let wanted = site.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
            let wanted = wanted.map(|it| it.hash.to_string());
            assert_eq!(wanted.as_deref(), Some(first.as_str()));
        }
    }
    create(&client, certificate()).await;
    let second = arrives(&client, &driver, Some(&first)).await;
    assert_ne!(first, second);
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), "default");
    ingresses.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("nothing kept", || async {
        match (held(&client).await, given(&driver)) {
            (None, given) if given.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

/// A certificate of a namespace for a host of its own, with some thousand bytes of names in it, and the Ingress
/// that uses it.
fn tenant(namespace: &str, name: &str, names: usize, copies: usize) -> [Value; 2] {
    let host = format!("{name}.{namespace}.example");
    let padding = (0..names).map(|n| format!("{n:03}.{}.example", "x".repeat(50)));
    let all: Vec<_> = std::iter::once(host.clone()).chain(padding).collect();
    let made = rcgen::generate_simple_self_signed(all).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": {
            "tls.crt": ByteString(made.cert.pem().repeat(copies).into_bytes()),
            "tls.key": ByteString(made.signing_key.serialize_pem().into_bytes()),
        },
    });
    let backend = json!({"service": {"name": "web", "port": {"number": 8080}}});
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "ingressClassName": "bowline",
            "tls": [{"hosts": [host], "secretName": name}],
            "rules": [{"host": host, "http":
                {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        },
    });
    [secret, ingress]
}

/// Waits until an Event with this reason is written for an Ingress.
async fn told(client: &Client, namespace: &str, name: &str, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    eventually(&format!("{namespace}/{name} is told {reason}"), || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about = |it: &&Event| it.involved_object.name.as_deref() == Some(name);
        let found = all.iter().filter(about).find(|it| it.reason.as_deref() == Some(reason));
        found.and_then(|it| it.message.clone()).ok_or_else(|| format!("{} events", all.len()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_namespace_cannot_keep_the_certificates_of_another_from_arriving() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "bowline"}, "spec": {"controller": "bowline.dev/ingress"}}),
    )
    .await;
    for namespace in ["evil", "shop"] {
        create(
            &client,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        )
        .await;
        create(
            &client,
            json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "namespace": namespace},
                "spec": {"ports": [{"port": 8080}]}}),
        )
        .await;
    }
    // More than one Secret of the previous version could hold, and more than one namespace may have.
    let mut padded = 0;
    for number in 0..215 {
        let [secret, ingress] = tenant("evil", &format!("evil-{number:03}"), 130, 3);
        padded += secret["data"]["tls.crt"].as_str().unwrap().len() / 4 * 3;
        create(&client, secret).await;
        create(&client, ingress).await;
    }
    assert!(padded > 215 * 33 * 1024, "{padded}");
    let [secret, ingress] = tenant("evil", "huge", 105, 6);
    create(&client, secret).await;
    create(&client, ingress).await;
    let controller = start_controller(client.clone(), controller_options("a"));
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    let message = told(&client, "evil", "evil-214", "TooManyCertificates").await;
    assert!(message.contains("namespace evil has "), "{message}");
    let message = told(&client, "evil", "huge", "TooManyCertificates").await;
    assert!(message.contains("at most 40 KiB are possible"), "{message}");
    let events: Api<Event> = Api::namespaced(client.clone(), "evil");
    eventually("all of it has come or is told", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let told = |it: &&Event| it.reason.as_deref() == Some("TooManyCertificates");
        let (come, told) = (given(&driver).len(), all.iter().filter(told).count());
        if come > 150 && come + told == 216 { Ok(()) } else { Err(format!("{come} and {told}")) }
    })
    .await;
    let before = given(&driver);

    // Another namespace gets its certificates in, and later their successors.
    for _ in 0..2 {
        let others = || given(&driver).difference(&before).cloned().collect::<BTreeSet<_>>();
        let first = others();
        for number in 0..5 {
            let [secret, ingress] = tenant("shop", &format!("shop-{number}"), 0, 1);
            create(&client, secret).await;
            create(&client, ingress).await;
        }
        eventually("five of another namespace", || async {
            let now = others();
            let new = now.difference(&first).count();
            if new == 5 && now.len() == 5 { Ok(()) } else { Err(format!("{new} {}", now.len())) }
        })
        .await;
        assert!(before.is_subset(&given(&driver)), "what was there stays");
    }
    // A certificate that is removed makes room for one that waits.
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), "evil");
    let number = given(&driver).len();
    ingresses.delete("evil-000", &DeleteParams::default()).await.unwrap();
    eventually("the next one", || async {
        let now = given(&driver);
        let new = now.difference(&before).count();
        if new == 6 && now.len() == number { Ok(()) } else { Err(format!("{new} {}", now.len())) }
    })
    .await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

/// The cookie secret of a driver.
fn signs_with(driver: &Recorder) -> Option<CookieSecret> {
    let updates = driver.updates.lock().unwrap();
    updates.iter().rev().find_map(|update| update.cookie_secret.clone())
}

/// Waits until the drivers have the same cookie secret, other than `before`.
async fn sign_alike(drivers: &[&Recorder], before: Option<&CookieSecret>) -> CookieSecret {
    eventually("one cookie secret", || async {
        let all: Vec<_> = drivers.iter().map(|driver| signs_with(driver)).collect();
        match &all[0] {
            Some(one) if before != Some(one) && all.iter().all(|it| it.as_ref() == Some(one)) => {
                Ok(one.clone())
            }
            _ => Err(format!("{all:?}")),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_agents_of_a_load_balancer_sign_cookies_alike_also_after_a_restart() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    let controllers = ["a", "b"].map(|identity| {
        // Both write: one creates the Secret, and the other keeps it.
        let options = ControllerOptions { election: false, ..controller_options(identity) };
        start_controller(client.clone(), options)
    });
    let drivers = [(); 3].map(|()| Recorder::default());
    let agent =
        |driver: &Recorder| start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    let [first, second] = [agent(&drivers[0]), agent(&drivers[1])];
    let secret = sign_alike(&[&drivers[0], &drivers[1]], None).await;
    first.stop().await;
    let third = agent(&drivers[2]);
    eventually("an update", || async {
        let updates = drivers[2].updates.lock().unwrap();
        if updates.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    })
    .await;
    // The first update has the secret: cookies are never signed with another one.
    assert_eq!(drivers[2].updates.lock().unwrap()[0].cookie_secret.as_ref(), Some(&secret));
    // If the Secret is deleted, another one is created.
    let api: Api<Secret> = Api::namespaced(client.clone(), "bowline-system");
    api.delete("bowline-cookies-edge", &DeleteParams::default()).await.unwrap();
    sign_alike(&[&drivers[1], &drivers[2]], Some(&secret)).await;
    // The Secret is deleted with the load balancer.
    let balancers: Api<LoadBalancer> = Api::all(client.clone());
    balancers.delete("edge", &DeleteParams::default()).await.unwrap();
    eventually("no Secret", || async {
        match api.get_metadata_opt("bowline-cookies-edge").await.unwrap() {
            None => Ok(()),
            Some(found) => Err(format!("{:?}", found.metadata)),
        }
    })
    .await;
    for agent in [second, third] {
        agent.stop().await;
    }
    for controller in controllers {
        controller.stop().await;
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_another_type_in_the_way_is_told_of_and_made_when_it_is_gone() {
    let cluster = cluster().await;
    let client = cluster.client();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bowline-system"}});
    create(&client, namespace).await;
    let name = "bowline-cookies-edge";
    let metadata = json!({"name": name, "namespace": "bowline-system"});
    let other =
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata});
    create(&client, other).await;
    create(&client, load_balancer("127.0.0.1")).await;
    let controller = start_controller(client.clone(), controller_options("a"));
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let event = eventually("an Event", || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let found = all.iter().find(|event| event.reason.as_deref() == Some("NameTaken"));
        found.cloned().ok_or_else(|| format!("{all:?}"))
    })
    .await;
    assert_eq!(event.involved_object.name.as_deref(), Some("edge"));
    let message = "Secret bowline-cookies-edge has the name of one of Bowline's Secrets, and another type: delete it";
    assert_eq!(event.message.as_deref(), Some(message));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "bowline-system");
    assert_eq!(secrets.get(name).await.unwrap().type_.as_deref(), Some("Opaque"));
    secrets.delete(name, &DeleteParams::default()).await.unwrap();
    eventually("a Secret of ours", || async {
        let found = secrets.get_opt(name).await.unwrap().and_then(|it| it.type_);
        let ours = found.as_deref() == Some(names::SECRET_TYPE_COOKIES);
        if ours { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    controller.stop().await;
    cluster.shutdown().await;
}

//! Tests real connections through the built-in proxy, from a Service and from an Ingress, in one
//! process.

use crate::support::{
    cluster, controller_options, create, eventually, start_agent, start_controller,
};
use bowline_core::member_rules::MemberRules;
use bowline_drivers::builtin::Builtin;
use bowline_proxy::{Options, Proxy};
use bowline_runtime::AgentOptions;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A member that answers every request with its name.
async fn member(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let _ = socket.read(&mut buffer).await;
                let length = name.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{name}"
                );
                let _ = socket.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

async fn get(address: SocketAddr, host: &str, path: &str) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect(address).await.map_err(text)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.map_err(text)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.map_err(text)?;
    Ok(answer)
}

async fn answers(address: SocketAddr, host: &str, path: &str, body: &str) {
    eventually("the answer", || async {
        let answer = get(address, host, path).await?;
        if answer.ends_with(body) { Ok(()) } else { Err(answer) }
    })
    .await;
}

/// A port that is free now.
async fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

fn service(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port}]},
    })
}

fn slice(service: &str, member: SocketAddr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-1"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": member.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [member.ip()], "conditions": {"ready": true}}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_a_services_address_reaches_its_member_and_follows_it() {
    let cluster = cluster().await;
    let client = cluster.client();
    let (blue, green) = (member("blue").await, member("green").await);
    let (port, http, https) = (free().await, free().await, free().await);
    create(
        &client,
        json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
            "metadata": {"name": "edge"},
            "spec": {"builtin": {}, "addresses": ["127.0.0.1"], "httpPort": http,
                "httpsPort": https, "allowedNamespaces": {"from": "All"}},
        }),
    )
    .await;
    let controller = start_controller(client.clone(), controller_options("a"));
    let proxy = Arc::new(Proxy::new(Options::default()));
    let members = MemberRules { loopback: true, ..MemberRules::default() };
    let options = AgentOptions { members, ..AgentOptions::new("edge") };
    let agent = start_agent(client.clone(), options, Builtin::new(proxy));
    create(&client, slice("web", blue)).await;
    create(&client, service("web", port)).await;
    let front = SocketAddr::from(([127, 0, 0, 1], port));
    answers(front, "x", "/", "blue").await;
    create(&client, slice("web", green)).await;
    answers(front, "x", "/", "green").await;

    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "bowline"}, "spec": {"controller": "bowline.dev/ingress"}}),
    )
    .await;
    let backend = json!({"service": {"name": "web", "port": {"number": port}}});
    create(
        &client,
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"ingressClassName": "bowline", "rules": [{"host": "shop.example", "http":
                {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]},
        }),
    )
    .await;
    let front = SocketAddr::from(([127, 0, 0, 1], http));
    answers(front, "shop.example", "/", "green").await;
    assert!(get(front, "other.example", "/").await.unwrap().starts_with("HTTP/1.1 404"));
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

//! What users write never becomes a directive: objects full of attacks go the whole way, from the API's
//! types to the file of the HAProxy template, which is then read as HAProxy reads it.

use crate::tokens::directives;
use bowline_api::convert;
use bowline_core::exposed::view::{Cluster, Machine, Settings};
use bowline_core::exposed::{Event, Exposed, Kind, Object};
use bowline_drivers::template::{ServerNames, Template, data};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// What a user may write: attacks, pieces of attacks, and what is fine.
fn written() -> impl Strategy<Value = String> {
    let whole = prop::sample::select(vec![
        "shop.example",
        "a.example",
        "~^(a|b)\\.example$",
        "web",
        "http",
        "tcp",
        "",
        "a\n  bind :81",
        "a\r\nserver evil 203.0.113.1:80",
        "a b",
        "a\tb",
        "a#b",
        "a;b",
        "a\"b",
        "a'b",
        "a\\",
        "~a\\",
        "~a\\\n",
        "~^a$ or { always_true }",
        "a}\nfrontend evil {",
        "{{ .Services }}",
        "{% for x in Services %}",
        "a\0b",
        "%[lua.evil]",
        "\n  lua-load /tmp/evil.lua",
        "include /etc/passwd",
        "${HOME}",
        "~\"${HOME}\"",
        "~[a\n]",
        "~\\x0a",
        "~a{2}",
        "é",
        "\u{2028}bind :81",
        "~.*",
        "*.example",
    ]);
    let pieces = prop::collection::vec(
        prop::sample::select(vec![
            "a", "b.c", "~", "^", "$", "\\", "\n", " ", "\t", "#", "\"", "'", "{", "}", ";", "\0",
            "(", ")", "|", "[", "]", "*", "-", ".", ",", "%", "`", "bind", "server",
        ]),
        0..6,
    );
    prop_oneof![whole.prop_map(str::to_owned), pieces.prop_map(|pieces| pieces.concat())]
}

fn object() -> impl Strategy<Value = (Value, Value)> {
    let texts = prop::collection::vec(written(), 8);
    (texts, 0u16..3, any::<bool>(), 0usize..40).prop_map(|(t, port, ranges, number)| {
        let name = if number % 4 == 0 { t[0].clone() } else { format!("web{number}") };
        let namespace = if number % 7 == 0 { t[1].clone() } else { "shop".to_owned() };
        let ranges = if ranges { json!(["192.0.2.0/24", "198.51.100.0/24"]) } else { json!([]) };
        let modes = json!({"http": t[2], t[3].clone(): "tcp"}).to_string();
        let modes = if number % 3 == 0 { json!(modes) } else { json!(t[4]) };
        let service = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("uid{number}"),
                "annotations": {
                    "kube2lb/external-domains": format!("{},{}", t[5], t[6]),
                    "kube2lb/port-mode": modes,
                    "kube2lb/backend-timeout": if number % 2 == 0 { "{\"http\":500}" } else { &t[3] },
                },
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerSourceRanges": ranges,
                "ports": [{"name": "http", "port": 80 + port, "protocol": "TCP"}],
            },
        });
        let slice = json!({
            "metadata": {
                "name": format!("{name}-1"), "namespace": namespace,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "targetRef": {"name": t[7]}},
                {"addresses": ["10.0.0.2"]},
            ],
        });
        (service, slice)
    })
}

/// What a template is given of these objects, and the names of Services.
fn seen(objects: Vec<(Value, Value)>, nodes: Vec<String>) -> (Cluster, Arc<ServerNames>) {
    let names = Arc::new(ServerNames::new("").unwrap());
    let mut exposed = Exposed::new();
    for (service, slice) in objects {
        let service: Service = serde_json::from_value(service).unwrap();
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        if let Some(service) = convert::exposed(&service) {
            exposed.handle(Event::Apply(Object::Service(service)));
        }
        exposed.handle(Event::Apply(Object::Slice(convert::slice(&slice))));
    }
    for node in nodes {
        exposed.handle(Event::Apply(Object::Node(node.into())));
    }
    for kind in [Kind::Service, Kind::Slice, Kind::Node] {
        exposed.handle(Event::Done(kind));
    }
    let settings = Settings {
        domain: "local".into(),
        default_mode: "http".into(),
        default_address: "192.0.2.1".parse().unwrap(),
        source_ranges: true,
        machine: Machine::default(),
    };
    let view = exposed.view(&settings, |entry| names.generated(entry, "local"));
    (view.cluster, names)
}

/// What the template must say of a cluster, directive by directive.
fn expected(cluster: &Cluster, names: &ServerNames) -> Vec<Vec<String>> {
    let mut lines: Vec<String> = [
        "global",
        "maxconn 4096",
        "defaults",
        "mode http",
        "option dontlognull",
        "option redispatch",
        "retries 3",
        "timeout connect 3s",
        "timeout client 30s",
        "timeout server 30s",
        "timeout tunnel 1h",
    ]
    .map(str::to_owned)
    .into();
    for port in &cluster.ports {
        lines.push(format!("frontend frontend_{port}"));
        lines.push(format!("bind {}:{}", port.ip, port.port));
        lines.push(
            if *port.mode == *"http" { "option forwardfor if-none" } else { "mode tcp" }.to_owned(),
        );
        for entry in cluster.services.iter().filter(|entry| entry.port == *port) {
            if *port.mode != *"http" {
                lines.push(format!("default_backend backend_{entry}"));
                continue;
            }
            let made = names.generated(entry, "local");
            let external = entry.external.iter().map(ToString::to_string);
            for name in made.into_iter().chain(external) {
                let how = match (name.strip_prefix('~'), name.strip_prefix('*')) {
                    (Some(regexp), _) => format!("reg {regexp}"),
                    (_, Some(end)) => format!("end {}", end.to_lowercase()),
                    _ => format!("str {}", name.to_lowercase()),
                };
                lines.push(format!("acl svc_{entry} req.hdr(host),field(1,:),lower -m {how}"));
            }
            lines.push(format!("use_backend backend_{entry} if svc_{entry}"));
        }
    }
    for entry in &cluster.services {
        lines.push(format!("backend backend_{entry}"));
        lines.push("balance leastconn".to_owned());
        let http = *entry.port.mode == *"http";
        if !http {
            lines.push("mode tcp".to_owned());
        }
        let ranges: Vec<_> = entry.source_ranges.iter().map(ToString::to_string).collect();
        if !ranges.is_empty() {
            let rule = if http { "http-request deny" } else { "tcp-request content reject" };
            lines.push(format!("{rule} unless {{ src {} }}", ranges.join(" ")));
        }
        if entry.timeout_ms > 0 {
            lines.push(format!("timeout server {}", entry.timeout_ms));
        }
        for endpoint in &entry.endpoints {
            let name = endpoint.name.replace(['.', ':'], "_");
            lines.push(format!("server {name} {endpoint} check inter 5s"));
        }
    }
    lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_file_has_exactly_the_directives_that_the_cluster_asks_for(
        objects in prop::collection::vec(object(), 0..6),
        nodes in prop::collection::vec(written(), 0..3),
    ) {
        let (cluster, names) = seen(objects, nodes);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/template/haproxy.cfg.tmpl");
        let template = Template::read(&file, &names).unwrap();
        let text = template.render(&data::cluster(&cluster)).unwrap();
        prop_assert_eq!(directives(&text), Some(expected(&cluster, &names)), "{}", text);
    }
}

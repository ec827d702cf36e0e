//! What users write never becomes a directive: objects full of attacks go the whole way, from the API's
//! types to the files of the example templates and of one for nginx, which are then read as HAProxy, Caddy
//! and nginx read them. And so do plans.

use crate::haproxy_tokens::words;
use crate::nginx_tokens;
use bowline_api::convert;
use bowline_core::exposed::view::{Cluster, Entry, Machine, Settings};
use bowline_core::exposed::{Event, Exposed, Kind, Object};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::member_rules::MemberRules;
use bowline_core::plan::{Action, Host, PathKind, PathMatch, Rule, ValueKind, ValueMatch};
use bowline_core::update::{ResolvedSite, SiteKey};
use bowline_drivers::desired::Desired;
use bowline_drivers::template::{Knows, ServerNames, Subject, Template, data};
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
        "~-i",
        "~-f",
        "~--",
        "~a++",
        "~(?i)a",
        "~[a-\\d]",
    ]);
    let pieces = prop::collection::vec(
        prop::sample::select(vec![
            "a", "b.c", "~", "^", "$", "\\", "\n", " ", "\t", "#", "\"", "'", "{", "}", ";", "\0",
            "(", ")", "|", "[", "]", "*", "-", ".", ",", "%", "`", "bind", "server", "~-", "?",
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
        members: MemberRules::default(),
    };
    let view = exposed.view(&settings, |entry| names.generated(entry, "local"));
    (view.cluster, names)
}

/// The names of a Service: those that are made, and those that it asks for.
fn all_names(entry: &Entry, names: &ServerNames) -> Vec<String> {
    let external = entry.external.iter().map(ToString::to_string);
    names.generated(entry, "local").into_iter().chain(external).collect()
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
            }
        }
        if *port.mode != *"http" {
            continue;
        }
        lines.push("http-request set-var(txn.host) req.hdr(host),field(1,:),lower".to_owned());
        // Names before wildcards, and regular expressions last.
        for kind in ["str", "end"] {
            for entry in cluster.services.iter().filter(|entry| entry.port == *port) {
                for name in all_names(entry, names) {
                    let (how, text) = match name.strip_prefix('*') {
                        _ if name.starts_with('~') => continue,
                        Some(end) => ("end", end.to_lowercase()),
                        None => ("str", name.to_lowercase()),
                    };
                    if how == kind {
                        lines.push(format!(
                            "use_backend backend_{entry} if {{ var(txn.host) -m {how} -- {text} }}"
                        ));
                    }
                }
            }
        }
        for expression in cluster.expressions.iter().filter(|it| it.port == *port) {
            let (entry, text) = (expression.entry(), &expression.name[1..]);
            lines.push(format!(
                "use_backend backend_{entry} if {{ var(txn.host) -m reg -- {text} }}"
            ));
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

/// The lines of a Caddyfile, each as its words. None: one of them is more than a word.
fn caddy_lines(text: &str) -> Option<Vec<String>> {
    let plain = |word: &str| {
        let brace = word == "{" || word == "}";
        brace || !word.contains(['"', '`', '\\', '#', '{', '}', '\0'])
    };
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = lines.filter(|words| !words.is_empty());
    lines.map(|words| words.iter().all(|word| plain(word)).then(|| words.join(" "))).collect()
}

fn expected_of_caddy(cluster: &Cluster, names: &ServerNames) -> Vec<String> {
    let mut lines: Vec<String> = ["{", "auto_https off", "}"].map(str::to_owned).into();
    for entry in cluster.services.iter().filter(|entry| *entry.port.mode == *"http") {
        for name in all_names(entry, names) {
            if name.starts_with('~') {
                continue;
            }
            lines.push(format!("http://{name}:{} {{", entry.port.port));
            lines.push(format!("bind {}", entry.port.ip));
            let ranges: Vec<_> = entry.source_ranges.iter().map(ToString::to_string).collect();
            if !ranges.is_empty() {
                lines.push(format!("@stranger not remote_ip {}", ranges.join(" ")));
                lines.push("abort @stranger".to_owned());
            }
            if entry.endpoints.is_empty() {
                lines.push("respond 503".to_owned());
            } else {
                let dialled = entry.endpoints.iter().map(|it| format!("[{}]:{}", it.ip, it.port));
                let endpoints: Vec<_> = dialled.collect();
                lines.push(format!("reverse_proxy {} {{", endpoints.join(" ")));
                lines.push("lb_policy least_conn".to_owned());
                if entry.timeout_ms > 0 {
                    lines.push("transport http {".to_owned());
                    lines.push(format!("response_header_timeout {}ms", entry.timeout_ms));
                    lines.push("}".to_owned());
                }
                lines.push("}".to_owned());
            }
            lines.push("}".to_owned());
        }
    }
    lines
}

/// A server of nginx for each Service, by Jinja.
const NGINX: &str = "\
{% for s in Services %}
server {
    listen {{ s.Port.IP }}:{{ s.Port.Port }};
    server_name{% for name in ServerNames(s, Domain) %} {{ name }}{% endfor %};
    {% for range in s.SourceRanges %}allow {{ range }};{% endfor %}
    # {{ s }}
    {% for e in s.Endpoints %}mirror /{{ e.Name }}/{{ e }};{% endfor %}
}
{% endfor %}";

fn expected_of_nginx(cluster: &Cluster, names: &ServerNames) -> Vec<nginx_tokens::Directive> {
    let directive = |words: Vec<String>| nginx_tokens::Directive { words, block: None };
    let servers = cluster.services.iter().map(|entry| {
        let listen = format!("{}:{}", entry.port.ip, entry.port.port);
        let mut block = vec![directive(vec!["listen".to_owned(), listen])];
        let names = all_names(entry, names).into_iter();
        block.push(directive(std::iter::once("server_name".to_owned()).chain(names).collect()));
        block.extend(
            entry
                .source_ranges
                .iter()
                .map(|range| directive(vec!["allow".to_owned(), range.to_string()])),
        );
        block.extend(entry.endpoints.iter().map(|endpoint| {
            directive(vec!["mirror".to_owned(), format!("/{}/{endpoint}", endpoint.name)])
        }));
        nginx_tokens::Directive { words: vec!["server".to_owned()], block: Some(block) }
    });
    servers.collect()
}

fn example(name: &str, names: &Arc<ServerNames>) -> Template {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/template").join(name);
    Template::read(&file, names).unwrap()
}

/// A rule of a plan with texts of users, for one of four Ingresses.
fn rule() -> impl Strategy<Value = (Rule, ConsumerRef)> {
    (prop::collection::vec(written(), 4), 0u8..4).prop_map(|(texts, number)| {
        let text = |at: usize| -> Arc<str> { texts[at].as_str().into() };
        let rule = Rule {
            path: PathMatch { kind: PathKind::Prefix, value: format!("/{}", texts[0]).into() },
            method: (number == 1).then(|| text(1)),
            headers: vec![ValueMatch { name: text(2), kind: ValueKind::Exact, value: text(3) }],
            query: Vec::new(),
            action: Action::Respond(404),
        };
        let consumer = ConsumerRef {
            kind: ConsumerKind::Ingress,
            namespace: "shop".into(),
            name: format!("ingress{number}").into(),
            uid: format!("uid{number}").into(),
        };
        (rule, consumer)
    })
}

/// A line for each rule of a plan.
const RULES: &str = "{{ range .Plan.sites }}{{ $host := .host }}{{ range .rules }}\
{{ .consumer.name }} {{ $host }} {{ .path.value }} {{ if .method }}{{ .method }}{{ else }}-{{ end }}{{ range .headers }} {{ .name }}={{ .value }}{{ end }}
{{ end }}{{ end }}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_file_has_exactly_the_directives_that_the_cluster_asks_for(
        objects in prop::collection::vec(object(), 0..6),
        nodes in prop::collection::vec(written(), 0..3),
    ) {
        let (cluster, names) = seen(objects, nodes);
        let given = data::cluster(&cluster);
        let haproxy = example("haproxy.cfg.tmpl", &names).render(&given).unwrap();
        prop_assert_eq!(words(&haproxy), expected(&cluster, &names), "{}", haproxy);
        let caddy = example("Caddyfile.tmpl", &names).render(&given).unwrap();
        prop_assert_eq!(caddy_lines(&caddy), Some(expected_of_caddy(&cluster, &names)), "{}", caddy);
        let nginx = Template::new(Path::new("nginx.conf.j2"), NGINX.to_owned(), &names).unwrap();
        let nginx = nginx.render(&given).unwrap();
        prop_assert_eq!(nginx_tokens::directives(&nginx), Ok(expected_of_nginx(&cluster, &names)), "{}", nginx);
    }

    #[test]
    fn a_plan_has_a_line_for_each_rule_that_a_template_may_see(
        rules in prop::collection::vec(rule(), 0..6),
    ) {
        let host: Host = "shop.example".parse().unwrap();
        let site = ResolvedSite { owner: "shop".into(), tls: None, rules };
        let mut plan = Desired::default();
        plan.sites.insert(SiteKey { entry: "web".into(), host }, Arc::new(site));
        let (subject, told) = Subject::planned(&plan, "local", &Knows::default());
        let names = Arc::new(ServerNames::new("").unwrap());
        let template = Template::new(Path::new("t.tmpl"), RULES.to_owned(), &names).unwrap();
        let text = template.render(&subject.data()).unwrap();
        let left = subject.plan.iter().flat_map(|plan| plan.sites.values());
        let left = left.flat_map(|site| site.rules.iter());
        let expected: Vec<Vec<String>> = left
            .map(|(rule, consumer)| {
                let header = format!("{}={}", rule.headers[0].name, rule.headers[0].value);
                let method = rule.method.as_deref().filter(|it| !it.is_empty()).unwrap_or("-");
                let words =
                    [&*consumer.name, "shop.example", &*rule.path.value, method, &header];
                words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect()
            })
            .collect();
        prop_assert_eq!(words(&text), expected, "{}\n{:?}", text, told);
    }
}

//! Tests templates with the plan of one load balancer: the data that they get, and the driver's
//! reports.

use super::*;
use crate::Driver as _;
use bowline_core::plan::{
    Action, CertificateRef, Host, Listener, ListenerProtocol, PathKind, PathMatch, Pool, Rule,
    Serves, ServicePortRef, SiteTls, WeightedPool,
};
use bowline_core::update::{
    Certificate, Change, ListenerKey, Member, MemberChange, MemberState, ResolvedListener,
    ResolvedSite, SiteKey, Update,
};

fn consumer(kind: ConsumerKind, name: &str) -> ConsumerRef {
    ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid: name.into() }
}

fn pool(name: &str, ranges: &[&str]) -> Arc<Pool> {
    Arc::new(Pool {
        source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        ..Pool::new(
            name,
            ServicePortRef {
                namespace: "shop".into(),
                name: name.into(),
                port: "".into(),
                protocol: Transport::Tcp,
            },
        )
    })
}

fn listener(port: u16, name: &str) -> Change<ListenerKey, Arc<ResolvedListener>> {
    let listener = Listener {
        address: "192.0.2.7".parse().unwrap(),
        port,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Pool(name.into()),
    };
    let consumer = consumer(ConsumerKind::Service, name);
    Change::Put(ListenerKey::of(&listener), Arc::new(ResolvedListener { consumer, listener }))
}

fn rule(path: &str, ingress: &str) -> (Rule, ConsumerRef) {
    let rule = Rule {
        path: PathMatch { kind: PathKind::Prefix, value: path.into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: "web".into(), weight: 1 }]),
    };
    (rule, consumer(ConsumerKind::Ingress, ingress))
}

fn update() -> Update {
    let member = |last| Member {
        address: ([10, 0, 0, last], 80).into(),
        weight: 1,
        state: MemberState::Ready,
    };
    let site = ResolvedSite {
        owner: "shop".into(),
        tls: None,
        rules: vec![rule("/a", "good"), rule("/b;\"\n{", "hostile")],
    };
    let host: Host = "shop.example".parse().unwrap();
    Update {
        complete: true,
        pools: ["db", "web"]
            .map(|name| Change::Put(name.into(), pool(name, &[])))
            .into_iter()
            .chain([Change::Put("closed".into(), pool("closed", &["192.0.2.0/24"]))])
            .collect(),
        members: vec![MemberChange {
            pool: "db".into(),
            members: [member(1), member(2)].into(),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
        }],
        sites: vec![Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))],
        listeners: vec![listener(3306, "db"), listener(443, "closed")],
        ..Update::default()
    }
}

#[tokio::test]
async fn a_load_balancers_plan_is_given_whole_but_for_what_a_template_must_not_see() {
    let template = "{{ range .Services }}{{ . }}{{ range .Endpoints }} {{ . }}{{ end }}\n{{ end }}\
                    {{ range .Plan.sites }}{{ $host := .host }}{{ range .rules }}{{ $host }}\
                    {{ .path.value }}\n{{ end }}{{ end }}";
    let stage = Stage::new(template);
    let mut driver = Templates::new(stage.publisher(None, &[stage.counter()]), "local", SETTLE);
    let report = driver.apply(&update()).await.unwrap();
    let out = "db_shop_3306_tcp_tcp 10.0.0.1:80 10.0.0.2:80\nshop.example/a\n";
    assert_eq!((stage.read("out").as_str(), stage.read("count").as_str()), (out, "x\n"));
    let told: Vec<_> =
        report.refused.iter().map(|r| (&*r.consumer.name, r.problem.reason)).collect();
    assert_eq!(told, [("closed", Reason::NotSupported), ("hostile", Reason::BadValue)]);
    assert!(driver.apply(&update()).await.unwrap().waiting);
    assert!(!driver.changed().await.expect("a report").waiting);
    assert_eq!(stage.read("count"), "x\n");
}

#[tokio::test]
async fn a_burst_of_updates_is_one_notification() {
    let stage = Stage::new(LINES);
    let mut driver = Templates::new(stage.publisher(None, &[stage.counter()]), "local", SETTLE);
    assert!(!driver.apply(&update()).await.unwrap().waiting);
    for port in 4000..4020 {
        let update = Update { listeners: vec![listener(port, "db")], ..Update::default() };
        assert!(driver.apply(&update).await.unwrap().waiting);
    }
    assert_eq!(stage.read("count"), "x\n");
    assert!(!driver.changed().await.expect("a report").waiting);
    assert_eq!((stage.read("count").as_str(), stage.read("out").lines().count()), ("x\nx\n", 21));
}

#[tokio::test]
async fn a_notifier_that_fails_later_is_tried_again_and_the_plan_waits_for_it() {
    let stage = Stage::new(LINES);
    let notify = format!("command:test ! -e {}", stage.path("broken").display());
    let mut driver = Templates::new(stage.publisher(None, &[notify]), "local", SETTLE);
    driver.apply(&update()).await.unwrap();
    std::fs::write(stage.path("broken"), "").unwrap();
    let more = Update { listeners: vec![listener(4000, "db")], ..Update::default() };
    assert!(driver.apply(&more).await.unwrap().waiting);
    assert!(driver.changed().await.expect("a report").waiting);
    std::fs::remove_file(stage.path("broken")).unwrap();
    assert!(!driver.changed().await.expect("a report").waiting);
}

#[tokio::test]
async fn who_needs_what_no_template_asks_for_is_left_out_and_told() {
    let needs = |name: &str, change: fn(&mut Pool)| {
        let mut pool = Pool::clone(&pool(name, &[]));
        change(&mut pool);
        Change::Put(name.into(), Arc::new(pool))
    };
    let persistence = |pool: &mut Pool| {
        let by = bowline_core::plan::PersistenceKey::SourceIp;
        pool.persistence = Some(bowline_core::plan::Persistence { by, timeout_seconds: 60 });
    };
    let site = ResolvedSite {
        owner: "shop".into(),
        tls: Some(bowline_core::plan::SiteTls { certificate: None, redirect: true }),
        rules: vec![rule("/a", "secret")],
    };
    let host: Host = "shop.example".parse().unwrap();
    let update = Update {
        complete: true,
        pools: vec![
            needs("web", |_| {}),
            needs("sticky", persistence),
            needs("proxied", |pool| pool.proxy_protocol = true),
            needs("seen", |pool| pool.snat = false),
        ],
        sites: vec![Change::Put(SiteKey { entry: "web".into(), host }, Arc::new(site))],
        listeners: vec![listener(1, "sticky"), listener(2, "proxied"), listener(3, "seen")],
        ..Update::default()
    };
    let names = async |template: &str| {
        let stage = Stage::new(template);
        let mut driver = Templates::new(stage.publisher(None, &[]), "local", SETTLE);
        let report = driver.apply(&update).await.unwrap();
        let names = report.refused.iter().map(|r| (r.consumer.name.to_string(), r.problem.reason));
        names.collect::<Vec<_>>()
    };
    let all = ["proxied", "seen", "sticky", "secret"];
    let refused: Vec<_> = all.map(|name| (name.to_owned(), Reason::NotSupported)).into();
    assert_eq!(names(LINES).await, refused);
    let knows = "{{ range .Plan.pools }}{{ .persistence }}{{ .proxyProtocol }}{{ .snat }}{{ end }}\
                 {{ range .Plan.sites }}{{ .tls.redirect }}{{ end }}";
    assert_eq!(names(knows).await, []);
}

#[tokio::test]
async fn every_field_of_a_plan_is_there_to_be_asked_for() {
    let stage = Stage::new("{{ ToJson .Plan }}");
    let mut driver = Templates::new(stage.publisher(None, &[]), "local", SETTLE);
    let mut update = update();
    update.sites.truncate(1);
    update.listeners.truncate(1);
    driver.apply(&update).await.unwrap();
    let plan: serde_json::Value = serde_json::from_str(&stage.read("out")).unwrap();
    let expected = serde_json::json!({
        "listeners": [{
            "address": "192.0.2.7", "port": 3306, "protocol": "TCP",
            "serves": {"pool": "db", "entry": null},
        }],
        "pools": [
            pool_of("db", &[json_member(1), json_member(2)]),
            pool_of("web", &[]),
        ],
        "sites": [{
            "entry": "web", "host": "shop.example", "namespace": "shop", "tls": null,
            "rules": [{
                "path": {"kind": "Prefix", "value": "/a"},
                "method": null, "headers": [], "query": [],
                "action": {
                    "forward": [{"pool": "web", "weight": 1}], "redirect": null, "respond": null,
                },
                "consumer": {"kind": "Ingress", "namespace": "shop", "name": "good"},
            }],
        }],
    });
    assert_eq!(plan, expected, "{plan:#}");
}

fn json_member(last: u8) -> serde_json::Value {
    serde_json::json!({
        "address": format!("10.0.0.{last}"), "port": 80, "weight": 1, "draining": false,
    })
}

fn pool_of(name: &str, members: &[serde_json::Value]) -> serde_json::Value {
    serde_json::json!({
        "name": name, "algorithm": "RoundRobin", "backends": {"pods": {}, "nodes": null},
        "service": {"namespace": "shop", "name": name, "port": "", "protocol": "TCP"},
        "persistence": null, "snat": true, "proxyProtocol": false, "speaks": "Http1",
        "sourceRanges": [], "healthCheck": null, "limits": null,
        "timeouts": {"connectMs": null, "backendMs": null, "drainSeconds": null},
        "members": members,
    })
}

#[tokio::test]
async fn an_ingress_that_a_check_refuses_is_found_too() {
    let template = "{{ range .Plan.sites }}{{ range .rules }}{{ .path.value }}\n{{ end }}{{ end }}";
    let stage = Stage::new(template);
    let publisher = stage.publisher(Some("! grep /a {}"), &[]);
    let mut driver = Templates::new(publisher, "local", SETTLE);
    let mut update = update();
    let site = ResolvedSite {
        owner: "shop".into(),
        tls: None,
        rules: vec![rule("/a", "bad"), rule("/b", "good")],
    };
    let host: Host = "shop.example".parse().unwrap();
    let key = SiteKey { entry: "web".into(), host };
    update.sites = vec![Change::Put(key, Arc::new(site))];
    let report = driver.apply(&update).await.unwrap();
    let told = report.refused.iter().filter(|r| r.problem.reason == Reason::RefusedByCheck);
    assert_eq!(told.map(|r| &*r.consumer.name).collect::<Vec<_>>(), ["bad"]);
    assert_eq!(stage.read("out"), "/b\n");
}

/// A certificate that can be written to a file, with its hash.
fn certificate(digit: char) -> (Arc<str>, Arc<Certificate>) {
    let block =
        |label: &str| format!("-----BEGIN {label}-----\nAA{digit}=\n-----END {label}-----\n");
    let certificate =
        Certificate { chain: block("CERTIFICATE").into(), key: block("PRIVATE KEY").into() };
    (digit.to_string().repeat(64).into(), Arc::new(certificate))
}

/// A site with this certificate.
fn secure(host: &str, hash: &Arc<str>) -> Change<SiteKey, Arc<ResolvedSite>> {
    let certificate = Some(CertificateRef { hash: hash.clone() });
    let site = ResolvedSite {
        owner: "shop".into(),
        tls: Some(SiteTls { certificate, redirect: true }),
        rules: vec![rule("/", host)],
    };
    let key = SiteKey { entry: "web".into(), host: host.parse().unwrap() };
    Change::Put(key, Arc::new(site))
}

#[tokio::test]
async fn a_certificate_is_a_file_before_it_is_named_and_until_everybody_knows_it_is_not() {
    let template = "{{ range .Plan.sites }}{{ .host }} {{ .tls.file }}\n{{ end }}";
    let stage = Stage::new(template);
    let folder = stage.path("certs");
    // The notifier reads the files that the output names, and fails if one is missing.
    let all = format!("cut -d' ' -f2 {} | xargs -r cat > /dev/null", stage.path("out").display());
    let notify = format!("command:test ! -e {} && {all}", stage.path("broken").display());
    let certificates = Certificates::open(&folder).unwrap();
    let publisher = stage.publisher(Some("cut -d' ' -f2 {} | xargs -r cat"), &[notify]);
    let driver = Templates::new(publisher, "local", SETTLE);
    let mut driver = driver.with_certificates(Some(certificates));
    let [(first, one), (second, two)] = ['1', '2'].map(certificate);
    let line = |host: &str, hash: &str| format!("{host} {}/{hash}.pem\n", folder.display());
    let files = || {
        let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".pem")?.to_owned()));
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let put = |hash: &Arc<str>, certificate: &Arc<Certificate>| {
        Change::Put(hash.clone(), certificate.clone())
    };
    let begins = Update {
        complete: true,
        certificates: vec![put(&first, &one)],
        pools: vec![Change::Put("web".into(), pool("web", &[]))],
        sites: vec![secure("a.example", &first), secure("b.example", &second)],
        ..Update::default()
    };
    let report = driver.apply(&begins).await.unwrap();
    assert_eq!(report.refused, [], "who waits for a certificate tells of it");
    assert_eq!(stage.read("out"), line("a.example", &first), "a host without one is left out");
    // The certificate is renewed, and a notifier fails.
    std::fs::write(stage.path("broken"), "").unwrap();
    let renewed = Update {
        certificates: vec![put(&second, &two), Change::Remove(first.clone())],
        sites: vec![secure("a.example", &second)],
        ..Update::default()
    };
    assert!(driver.apply(&renewed).await.unwrap().waiting);
    assert!(driver.changed().await.expect("a report").waiting);
    let both = line("a.example", &second) + &line("b.example", &second);
    assert_eq!(stage.read("out"), both);
    assert_eq!(files(), [&*first, &*second].map(str::to_owned).into(), "it may be in use");
    std::fs::remove_file(stage.path("broken")).unwrap();
    assert!(!driver.changed().await.expect("a report").waiting);
    assert_eq!(files(), [second.to_string()].into());
}

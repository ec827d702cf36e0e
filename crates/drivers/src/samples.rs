//! Plans for tests: small builders, and one plan that uses every feature.

use crate::desired::Desired;
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::{
    Action, Algorithm, CertificateRef, HealthCheck, Host, Listener, ListenerProtocol, PathKind,
    PathMatch, Persistence, PersistenceKey, Pool, Redirect, Rule, Serves, ServicePortRef, SiteTls,
    Speaks, Timeouts, Transport, ValueKind, ValueMatch, WeightedPool,
};
use bowline_core::update::{
    Certificate, CookieSecret, ListenerKey, Member, MemberState, ResolvedListener, ResolvedSite,
    SiteKey,
};
use proptest::prelude::*;
use std::sync::Arc;

/// The hash of the certificate in [`everything`].
pub(crate) const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

pub(crate) fn consumer(kind: ConsumerKind, name: &str) -> ConsumerRef {
    let uid = format!("uid-{name}").into();
    ConsumerRef { kind, namespace: "shop".into(), name: name.into(), uid }
}

pub(crate) fn ingress(name: &str) -> ConsumerRef {
    consumer(ConsumerKind::Ingress, name)
}

pub(crate) fn pool(name: &str) -> Pool {
    Pool::new(
        name,
        ServicePortRef {
            namespace: "shop".into(),
            name: "web".into(),
            port: "".into(),
            protocol: Transport::Tcp,
        },
    )
}

pub(crate) fn member(last: u8) -> Member {
    Member { address: ([10, 0, 0, last], 8080).into(), weight: 1, state: MemberState::Ready }
}

pub(crate) fn rule(kind: PathKind, path: &str, action: Action) -> Rule {
    let path = PathMatch { kind, value: path.into() };
    Rule { path, method: None, headers: Vec::new(), query: Vec::new(), action }
}

pub(crate) fn forward(pool: &str) -> Action {
    Action::Forward(vec![WeightedPool { pool: pool.into(), weight: 1 }])
}

pub(crate) fn prefix(path: &str, pool: &str) -> Rule {
    rule(PathKind::Prefix, path, forward(pool))
}

impl Desired {
    pub(crate) fn put_pool(&mut self, pool: Pool, members: &[Member]) {
        self.members.insert(pool.name.clone(), members.into());
        self.pools.insert(pool.name.clone(), Arc::new(pool));
    }

    pub(crate) fn put_site(
        &mut self,
        host: Host,
        tls: Option<SiteTls>,
        by: &str,
        rules: Vec<Rule>,
    ) {
        let mut rules: Vec<_> = rules.into_iter().map(|rule| (rule, ingress(by))).collect();
        rules.sort_by_key(|(rule, _)| rule.precedence());
        let site = ResolvedSite { owner: "shop".into(), tls, rules };
        self.sites.insert(SiteKey { entry: "web".into(), host }, Arc::new(site));
    }

    pub(crate) fn put_listener(
        &mut self,
        at: &str,
        protocol: ListenerProtocol,
        serves: Serves,
        by: ConsumerRef,
    ) {
        let at: std::net::SocketAddr = at.parse().expect("an address");
        let listener = Listener { address: at.ip(), port: at.port(), protocol, serves };
        let key = ListenerKey::of(&listener);
        self.listeners.insert(key, Arc::new(ResolvedListener { consumer: by, listener }));
    }
}

/// An HTTP listener on this port, and a site for this host.
pub(crate) fn web(port: u16, host: &str, rules: Vec<Rule>) -> Desired {
    let mut desired = Desired::default();
    let edge = consumer(ConsumerKind::LoadBalancer, "edge");
    let at = format!("127.0.0.1:{port}");
    desired.put_listener(&at, ListenerProtocol::Http, Serves::Entry("web".into()), edge);
    desired.put_site(host.parse().expect("a host"), None, "web", rules);
    desired
}

/// A plan that uses every feature. The certificate is a real one.
pub(crate) fn everything() -> Desired {
    let mut desired = web(
        8080,
        "shop.example",
        vec![
            prefix("/", "ingress/shop/web/web/http"),
            prefix("/api/", "ingress/shop/web/api/http"),
            rule(PathKind::Exact, "/api", forward("ingress/shop/web/web/http")),
            prefix("/odd;#'\"{}$%\\x", "ingress/shop/web/web/http"),
        ],
    );
    let edge = || consumer(ConsumerKind::LoadBalancer, "edge");
    let entry = || Serves::Entry("web".into());
    desired.put_listener("127.0.0.1:8443", ListenerProtocol::Https, entry(), edge());
    desired.put_listener("[::1]:8443", ListenerProtocol::Https, entry(), edge());
    let service = |name| consumer(ConsumerKind::Service, name);
    let to = |pool: &str| Serves::Pool(pool.into());
    desired.put_listener(
        "127.0.0.1:5432",
        ListenerProtocol::Tcp,
        to("service/shop/db/"),
        service("db"),
    );
    desired.put_listener(
        "127.0.0.1:53",
        ListenerProtocol::Udp,
        to("service/shop/dns/"),
        service("dns"),
    );

    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["shop.example".to_owned(), "*.shop.example".to_owned()];
    let made = rcgen::CertificateParams::new(names)
        .and_then(|it| it.self_signed(&key))
        .expect("a certificate");
    let certificate = Certificate { chain: made.pem().into(), key: key.serialize_pem().into() };
    desired.certificates.insert(HASH.into(), Arc::new(certificate));
    desired.cookie_secret = Some(CookieSecret([7; 32]));
    let tls = |redirect| {
        Some(SiteTls { certificate: Some(CertificateRef { hash: HASH.into() }), redirect })
    };

    desired.put_site(
        Host::Exact("secure.example".into()),
        tls(true),
        "secure",
        vec![prefix("/", "ingress/shop/secure/grpc/grpc")],
    );
    desired.put_site(
        Host::Wildcard("shop.example".into()),
        tls(false),
        "wild",
        vec![prefix("/", "ingress/shop/web/web/http")],
    );
    let split = Action::Forward(vec![
        WeightedPool { pool: "ingress/shop/web/web/http".into(), weight: 3 },
        WeightedPool { pool: "ingress/shop/web/api/http".into(), weight: 1 },
        WeightedPool { pool: "gone".into(), weight: 1 },
    ]);
    let redirect = Redirect {
        scheme: None,
        host: Some("else.example".into()),
        port: None,
        path: Some("/100%".into()),
        status: 302,
    };
    let conditional = Rule {
        method: Some("GET".into()),
        headers: vec![ValueMatch {
            name: "x-tier".into(),
            kind: ValueKind::Exact,
            value: "it's {gold} #1".into(),
        }],
        query: vec![ValueMatch {
            name: "v".into(),
            kind: ValueKind::Regex,
            value: r"[0-9]+\s'x'".into(),
        }],
        ..prefix("/c", "ingress/shop/web/api/http")
    };
    desired.put_site(
        Host::Exact("rules.example".into()),
        None,
        "rules",
        vec![
            conditional,
            rule(PathKind::Regex, "/r/.*", split),
            rule(PathKind::Exact, "/go", Action::Redirect(redirect)),
            rule(PathKind::Prefix, "/teapot", Action::Respond(418)),
            prefix("/", "ingress/shop/web/web/http"),
        ],
    );
    desired.put_site(
        Host::Regex("[a-z]+-(dev|test)\\.example".into()),
        None,
        "regex",
        vec![prefix("/", "ingress/shop/web/web/http")],
    );
    desired.put_site(Host::Any, None, "any", vec![prefix("/", "ingress/shop/web/web/http")]);

    desired.put_pool(pool("ingress/shop/web/web/http"), &[member(1), member(2)]);
    let api = Pool {
        algorithm: Algorithm::LeastConnections,
        persistence: Some(Persistence { by: PersistenceKey::Cookie, timeout_seconds: 3600 }),
        source_ranges: vec![
            "10.0.0.0/8".parse().expect("a range"),
            "fd00::/8".parse().expect("a range"),
        ],
        timeouts: Timeouts { connect_ms: Some(250), backend_ms: Some(1500), drain_seconds: None },
        health_check: Some(HealthCheck {
            http_path: Some("/health?a='b'".into()),
            interval_ms: 5000,
            fall: 3,
            rise: 2,
        }),
        ..pool("ingress/shop/web/api/http")
    };
    desired.put_pool(api, &[member(3), Member { state: MemberState::Draining, ..member(4) }]);
    desired.put_pool(
        Pool { speaks: Speaks::H2c, ..pool("ingress/shop/secure/grpc/grpc") },
        &[member(5)],
    );
    let db = Pool {
        algorithm: Algorithm::SourceIp,
        persistence: Some(Persistence { by: PersistenceKey::SourceIp, timeout_seconds: 60 }),
        snat: false,
        proxy_protocol: true,
        source_ranges: vec!["192.0.2.0/24".parse().expect("a range")],
        ..pool("service/shop/db/")
    };
    let sixth =
        Member { address: "[fd00::6]:5432".parse().expect("an address"), weight: 3, ..member(6) };
    desired.put_pool(db, &[member(6), sixth]);
    desired
}

/// Texts as attackers try to inject them into configuration files.
pub(crate) fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "\n",
        "\r\n",
        "\"",
        "'",
        "{",
        "}",
        "};",
        "#",
        ";",
        "\\",
        "\\\"",
        "\0",
        " ",
        "\t",
        "%",
        "%0a",
        "%22",
        "%24",
        "%00",
        "$",
        "${",
        "$host",
        "${PATH}",
        "$request_uri",
        "lua_need_request_body",
        "content_by_lua_block {",
        "include /etc/passwd;",
        "\nload_module x;\n",
        "alias /;",
        "proxy_pass http://6.6.6.6;",
        "default",
        "include",
        "~",
        "=",
        "@",
        "^~",
        "\u{e4}",
        "\u{2028}",
        "a",
        "b",
        "/",
        ".",
        "..",
        ":",
        "]",
        ",",
        "(",
        ")",
        "*",
        "_",
    ]);
    let short = prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat());
    prop_oneof![20 => short, 1 => Just("x".repeat(5_000))]
}

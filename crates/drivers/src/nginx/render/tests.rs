//! Tests the renderer with a golden file, with nginx's own check, and with texts of users who write directives in place
//! of names.

use super::super::tokens::{Directive, directives};
use super::*;
use crate::samples::{
    HASH, consumer, everything, forward, hostile, ingress, member, pool, prefix, rule, web,
};
use bowline_core::key::ConsumerKind;
use bowline_core::plan::{
    Action, CertificateRef, Host, Limits, PathKind, Persistence, PersistenceKey, Redirect, Rule,
    SiteTls, ValueKind, ValueMatch,
};
use bowline_core::update::{Certificate, Member, MemberState, ResolvedSite, SiteKey};
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

fn program() -> &'static str {
    if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" }
}

pub(super) fn settings(folder: &Path) -> Settings {
    let module = Path::new("/usr/lib/nginx/modules/ngx_stream_module.so");
    Settings {
        folder: folder.into(),
        status_socket: folder.join("status.sock"),
        log_socket: Some(folder.join("log.sock")),
        root: false,
        stream: match module.exists() {
            true => Stream::Module(module.into()),
            false => Stream::BuiltIn,
        },
        shutdown_seconds: 3600,
        files: 1_000,
    }
}

pub(super) fn rendered(desired: &Desired) -> Rendered {
    let module = "/usr/lib/nginx/modules/ngx_stream_module.so".into();
    let settings =
        Settings { stream: Stream::Module(module), ..settings(Path::new("/run/bowline")) };
    render(desired, &Excluded::default(), &settings).expect("settings")
}

/// Writes the files and returns what nginx's check says. Every user can run it: no port is below 1024.
fn nginx_says(desired: &Desired) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted =
        render(desired, &Excluded::default(), &settings(folder.path())).expect("settings").wanted;
    for (name, bytes) in wanted.files() {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    let mut command = Command::new(program());
    command.args(["-e", "stderr", "-t", "-q", "-c"]).arg(folder.path().join("nginx.conf"));
    let output = command.output();
    let output = output.expect(
        "nginx is missing; install it with\n  sudo apt-get install -y nginx libnginx-mod-stream",
    );
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}\n{}", String::from_utf8_lossy(&output.stderr), wanted.config()))
    }
}

/// A plan that uses every feature, at ports that every user can bind.
pub(super) fn sample() -> Desired {
    let mut desired = everything();
    let dns = consumer(ConsumerKind::Service, "dns");
    desired.listeners.retain(|_, it| it.protocol() != ListenerProtocol::Udp);
    desired.put_listener(
        "127.0.0.1:5353",
        ListenerProtocol::Udp,
        Serves::Pool("service/shop/dns/".into()),
        dns,
    );
    desired.put_pool(pool("service/shop/dns/"), &[member(7)]);
    desired
}

#[test]
fn a_consumer_is_held_to_its_requests_over_all_its_pools_and_not_to_bandwidth() {
    let mut desired = everything();
    let who = consumer(ConsumerKind::Ingress, "n");
    for name in ["in/one", "in/two"] {
        let limits = Limits {
            consumer: who.clone(),
            requests_per_second: Some(20),
            bits_per_second: Some(8_000),
        };
        desired.put_site(Host::Exact(name[3..].into()), None, "n", vec![prefix("/", name)]);
        desired.put_pool(Pool { limits: Some(limits), ..pool(name) }, &[member(1)]);
    }
    nginx_says(&desired).unwrap_or_else(|why| panic!("{why}"));
    let rendered = rendered(&desired);
    let tail = &rendered.wanted.tail;
    assert_eq!(tail.matches("limit_req_zone ").count(), 1);
    assert_eq!(tail.matches("burst=20;").count(), 2);
    let told = rendered.refused.iter().find(|it| it.consumer == who && it.extent == Extent::Part);
    assert!(told.is_some(), "{:?}", rendered.refused);
}

#[test]
fn everything_is_rendered_as_the_golden_file_says_and_nginx_accepts_it() {
    nginx_says(&sample()).unwrap_or_else(|why| panic!("{why}"));
    let text = rendered(&sample()).wanted.config();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nginx/render/everything.golden");
    if std::env::var_os("BOWLINE_BLESS").is_some() {
        std::fs::write(&golden, &text).expect("written");
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == expected, "run with BOWLINE_BLESS=1 to accept\n{text}");
}

#[test]
fn what_nginx_cannot_do_is_told_on_the_object_that_asks_for_it() {
    let refused = rendered(&sample()).refused;
    let told: Vec<_> =
        refused.iter().map(|it| (&*it.consumer.name, &*it.problem.message)).collect();
    assert_eq!(
        told,
        [
            ("db", "nginx speaks only version 1 of the PROXY protocol with members"),
            (
                "regex",
                "the host \"~[a-z]+-(dev|test)\\\\.example\" is a regular expression, which is not supported \
                 with nginx"
            ),
            (
                "rules",
                "the rule for \"/c\" on host rules.example matches on the method, which is not supported with \
                 nginx: it is not used"
            ),
            (
                "rules",
                "the rule for \"/r/.*\" on host rules.example is a regular expression, which is not supported \
                 with nginx: it is not used"
            ),
            (
                "web",
                "the rule for \"/odd;#'\\\"{}$%\\\\x\" on host shop.example has a character that cannot be written there: it is not used",
            ),
            (
                "web",
                "nginx does not check members: what one member does not accept is tried with another"
            ),
        ]
    );
}

#[test]
fn without_the_stream_module_tcp_and_udp_are_refused_and_http_is_served() {
    let missing = Settings { stream: Stream::Missing, ..settings(Path::new("/run/bowline")) };
    let rendered = render(&sample(), &Excluded::default(), &missing).expect("settings");
    let told = |name: &str| {
        let found = rendered.refused.iter().find(|it| *it.consumer.name == *name);
        found.map(|it| (it.problem.reason, it.problem.message.contains("libnginx-mod-stream")))
    };
    assert_eq!(told("db"), Some((Reason::NotSupported, true)));
    assert_eq!(told("dns"), Some((Reason::NotSupported, true)));
    let config = rendered.wanted.config();
    assert!(!config.contains("stream {") && config.contains("server_name shop.example;"));
}

/// The servers with this name; for an empty name, the default servers.
fn servers(config: &str, name: &str) -> Vec<Vec<Directive>> {
    let all = directives(config).expect("read");
    let http = all.into_iter().find(|it| it.words == ["http"]).and_then(|it| it.block);
    let servers = http.expect("http").into_iter().filter(|it| it.words == ["server"]);
    let named = |block: &Vec<Directive>| match name {
        "" => block.iter().any(|it| it.words.contains(&"default_server".to_owned())),
        name => block.iter().any(|it| it.words == ["server_name", name]),
    };
    servers.filter_map(|it| it.block).filter(named).collect()
}

/// The paths of a server's locations, and where they lead.
fn locations(server: &[Directive]) -> Vec<(String, String)> {
    let all = server.iter().filter(|it| it.words[0] == "location");
    let leads = |it: &Directive| {
        let last = it.block.iter().flatten().last().map(|it| it.words[1].clone());
        (it.words[1..].concat(), last.unwrap_or_default())
    };
    all.map(leads).collect()
}

#[test]
fn what_a_host_has_no_rule_for_goes_on_to_its_owners_less_specific_rules() {
    let mut desired = web(
        8080,
        "a.x.example",
        vec![prefix("/own", "p"), rule(PathKind::Exact, "/e", forward("p"))],
    );
    desired.put_site(
        Host::Wildcard("x.example".into()),
        None,
        "wild",
        vec![
            rule(PathKind::Exact, "/own/deep", forward("q")),
            prefix("/w/", "q"),
            rule(PathKind::Exact, "/e", forward("q")),
        ],
    );
    desired.put_site(Host::Any, None, "any", vec![prefix("/", "r")]);
    desired.put_site(Host::Exact("other.example".into()), None, "other", vec![prefix("/o", "p")]);
    let key = SiteKey { entry: "web".into(), host: Host::Exact("other.example".into()) };
    let other = ResolvedSite { owner: "somebody".into(), ..(*desired.sites[&key]).clone() };
    desired.sites.insert(key, Arc::new(other));
    for name in ["p", "q", "r"] {
        desired.put_pool(pool(name), &[member(1)]);
    }
    let config = rendered(&desired).wanted.config();
    let of = |name: &str| locations(&servers(&config, name)[0]);
    let all = |list: &[(&str, &str)]| {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    let (p, q, r) = ("http://p", "http://q", "http://r");
    assert_eq!(
        of("a.x.example"),
        all(&[("=/e", p), ("=/own", p), ("=/w", q), ("/", r), ("/own/", p), ("/w/", q)])
    );
    assert_eq!(
        of("~^[^.]+\\.x\\.example$"),
        all(&[("=/e", q), ("=/own/deep", q), ("=/w", q), ("/", r), ("/w/", q)])
    );
    assert_eq!(of("other.example"), all(&[("=/o", p), ("/", "404"), ("/o/", p)]));
    assert_eq!(of(""), all(&[("/", r)]));
}

#[test]
fn a_pool_without_a_ready_member_is_answered_with_503_or_closed() {
    let mut desired = web(8080, "a.example", vec![prefix("/", "p")]);
    let draining = Member { state: MemberState::Draining, ..member(1) };
    desired.put_pool(pool("p"), &[draining]);
    let db = consumer(ConsumerKind::Service, "db");
    desired.put_listener("127.0.0.1:5432", ListenerProtocol::Tcp, Serves::Pool("p".into()), db);
    let config = rendered(&desired).wanted.config();
    assert_eq!(locations(&servers(&config, "a.example")[0]), [("/".to_owned(), "503".to_owned())]);
    assert!(!config.contains("upstream p {"), "{config}");
    nginx_says(&desired).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn names_that_mean_something_to_nginx_are_hosts_like_others() {
    let mut desired = everything();
    let tls =
        Some(SiteTls { certificate: Some(CertificateRef { hash: HASH.into() }), redirect: true });
    for host in ["default", "include", "hostnames", "volatile", "localhost"] {
        desired.put_site(
            Host::Exact(host.into()),
            tls.clone(),
            "odd",
            vec![prefix("/", "ingress/shop/web/web/http")],
        );
    }
    desired.listeners.retain(|key, _| key.port > 1024);
    nginx_says(&desired).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn an_excluded_consumer_is_told_and_the_others_are_as_they_were() {
    let mut desired = web(8080, "a.example", vec![prefix("/", "p")]);
    desired.put_pool(pool("p"), &[member(1)]);
    let alone = rendered(&desired).wanted;
    desired.put_site(Host::Exact("a.example".into()), None, "web", vec![prefix("/", "p")]);
    let bad = (prefix("/bad", "q"), ingress("bad"));
    let key = SiteKey { entry: "web".into(), host: Host::Exact("a.example".into()) };
    let mut site = (*desired.sites[&key]).clone();
    site.rules.insert(0, bad);
    desired.sites.insert(key, Arc::new(site));
    desired.put_pool(pool("q"), &[member(2)]);
    assert_ne!(rendered(&desired).wanted, alone);
    let consumers = BTreeMap::from([(ingress("bad"), "no".to_owned())]);
    let excluded = Excluded { consumers, ..Excluded::default() };
    let rendered =
        render(&desired, &excluded, &settings(Path::new("/run/bowline"))).expect("settings");
    assert_eq!(rendered.wanted, alone);
    let told: Vec<_> =
        rendered.refused.iter().map(|it| (&it.consumer, it.extent.clone())).collect();
    assert_eq!(told, [(&ingress("bad"), Extent::All)]);
}

/// A directive, and the directives in its block with their number.
type Shape = (Vec<String>, Vec<(Vec<String>, usize)>);

/// The directives without users' words: a location by its kind, a redirect by its status.
fn shape(directives: &[Directive]) -> Vec<Shape> {
    let flat = |it: &Directive| -> Vec<String> {
        let kept = match &*it.words[0] {
            "location" => it.words.len() - 1,
            "return" => 2,
            _ => it.words.len(),
        };
        it.words[..kept.min(it.words.len())].to_vec()
    };
    let mut shapes = Vec::new();
    for it in directives {
        let mut inner: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        let mut open: Vec<&Directive> = it.block.iter().flatten().collect();
        while let Some(next) = open.pop() {
            *inner.entry(flat(next)).or_default() += 1;
            open.extend(next.block.iter().flatten());
        }
        shapes.push((flat(it), inner.into_iter().collect()));
    }
    shapes
}

/// All texts that a hostile user can write, in one plan. The mark of the status server differs, but is not from a user.
struct Written<'a> {
    path: &'a str,
    exact: &'a str,
    to: &'a str,
    redirect_host: &'a str,
    pem: &'a str,
}

fn plan(written: &Written<'_>) -> Desired {
    let mut desired = web(
        8080,
        "a.example",
        vec![
            prefix(&format!("/p{}", written.path), "p"),
            rule(PathKind::Exact, &format!("/e{}", written.exact), forward("p")),
        ],
    );
    let redirect = |host: Option<&str>, path: Option<&str>| {
        Action::Redirect(Redirect {
            scheme: None,
            host: host.map(Into::into),
            port: None,
            path: path.map(Into::into),
            status: 302,
        })
    };
    let at = |action| rule(PathKind::Prefix, "/", action);
    desired.put_site(
        Host::Exact("c.example".into()),
        None,
        "c",
        vec![at(redirect(None, Some(&format!("/{}", written.to))))],
    );
    desired.put_site(
        Host::Exact("d.example".into()),
        None,
        "d",
        vec![at(redirect(Some(written.redirect_host), None))],
    );
    let persistence = Some(Persistence { by: PersistenceKey::Cookie, timeout_seconds: 60 });
    desired.put_pool(Pool { persistence, ..pool("p") }, &[member(1)]);
    let certificate = Certificate { chain: written.pem.into(), key: written.pem.into() };
    desired.certificates.insert("ab".repeat(32).into(), Arc::new(certificate));
    desired
}

/// The file without its hashes: the mark, and the hash in the names of zones.
fn unmarked(rendered: &Rendered) -> String {
    let tail = &rendered.wanted.tail;
    let (_, zone) = tail.split_once("zone=requests-").expect("requests are counted");
    let (file, _) = zone.split_once(':').expect("a zone has a size");
    format!("{}mark{}", rendered.wanted.head, tail.replace(file, "file"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// With a harmless word for each hostile text, the same plan has the same directives in each block: so a user's
    /// text adds and changes none. And each accepted text is read back unchanged.
    #[test]
    fn no_text_of_a_user_adds_or_changes_a_directive(
        path in hostile(), exact in hostile(), to in hostile(), redirect_host in hostile(),
        name in hostile(), owner in hostile(), pem in hostile(),
    ) {
        let written = Written { path: &path, exact: &exact, to: &to, redirect_host: &redirect_host, pem: &pem };
        let hostile = rendered(&plan(&written));
        let location = |kind: char, text: &str| {
            let path = super::super::text::unescaped(&format!("/{kind}{text}"))?;
            Word::location(&format!("{path}/")).ok().map(|_| path)
        };
        let ok = |fits: bool| if fits { "ok" } else { "\n" };
        let harmless = rendered(&plan(&Written {
            path: ok(location('p', &path).is_some()),
            exact: ok(location('e', &exact).is_some()),
            to: ok(Word::literal(&format!("/{to}")).is_ok()),
            redirect_host: ok(Word::authority(&redirect_host).is_ok()),
            pem: "ok",
        }));
        let (config, meek) = (unmarked(&hostile), unmarked(&harmless));
        let read = directives(&config).map_err(TestCaseError::fail)?;
        prop_assert_eq!(shape(&read), shape(&directives(&meek).map_err(TestCaseError::fail)?));
        let found = locations(&servers(&config, "a.example")[0]);
        let named = |at: &str| found.iter().any(|(path, _)| path == at);
        if let Some(path) = location('p', &path) {
            let slashed = format!("{}/", path.strip_suffix('/').unwrap_or(&path));
            prop_assert!(named(&slashed), "{} in {:?}", slashed, found);
        }
        if let Some(path) = location('e', &exact) {
            prop_assert!(named(&format!("={path}")), "{} in {:?}", path, found);
        }

        let returned = |name: &str| {
            let server = servers(&config, name).swap_remove(0);
            let location = server.into_iter().rfind(|it| it.words[0] == "location");
            location.and_then(|it| it.block?.pop()).map(|it| it.words[1..].to_vec())
        };
        let sent = |url: String| Some(vec!["302".to_owned(), url]);
        if Word::literal(&format!("/{to}")).is_ok() {
            let to = to.replace('$', super::super::text::DOLLAR);
            let url = format!("${{scheme}}://${{bowline_host}}${{bowline_port}}/{to}${{is_args}}${{args}}");
            prop_assert_eq!(returned("c.example"), sent(url));
        }
        if Word::authority(&redirect_host).is_ok() {
            let url = format!("${{scheme}}://{redirect_host}${{bowline_port}}${{request_uri}}");
            prop_assert_eq!(returned("d.example"), sent(url));
        }

        // Names that cannot be names are refused, whatever they contain.
        let mut named = web(8080, "a.example", vec![prefix("/", "p")]);
        named.put_pool(pool("p"), &[member(1)]);
        let good = unmarked(&rendered(&named));
        let service = consumer(ConsumerKind::Service, "n");
        named.put_listener("127.0.0.1:9090", ListenerProtocol::Tcp, Serves::Pool(name.as_str().into()), service.clone());
        named.put_pool(pool(&name), &[member(2)]);
        if Word::pool(&name).is_err() {
            let with = rendered(&named);
            prop_assert_eq!(unmarked(&with), good.clone());
            prop_assert!(with.refused.iter().any(|it| it.consumer == service));
        }
        named.listeners.retain(|key, _| key.port != 9090);
        let site = ResolvedSite { owner: owner.as_str().into(), tls: None, rules: vec![(prefix("/", "p"), ingress("o"))] };
        let key = |host| SiteKey { entry: "web".into(), host };
        named.sites.insert(key(Host::Exact(name.as_str().into())), Arc::new(site.clone()));
        named.sites.insert(key(Host::Wildcard(owner.as_str().into())), Arc::new(site));
        if Word::host(&name).is_err() && Word::host(&owner).is_err() {
            prop_assert_eq!(unmarked(&rendered(&named)), good);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn nginx_accepts_whatever_is_not_refused(
        path in hostile(), exact in hostile(), to in hostile(), redirect_host in hostile(),
    ) {
        let said = nginx_says(&plan(&Written {
            path: &path, exact: &exact, to: &to, redirect_host: &redirect_host, pem: "",
        }));
        prop_assert!(said.is_ok(), "{:?}", said);
    }
}

#[test]
fn rules_that_look_at_more_than_a_path_are_left_out() {
    let matched = |kind| vec![ValueMatch { name: "x".into(), kind, value: "$host;".into() }];
    let desired = web(
        8080,
        "a.example",
        vec![
            Rule { headers: matched(ValueKind::Exact), ..prefix("/h", "p") },
            Rule { query: matched(ValueKind::Regex), ..prefix("/q", "p") },
        ],
    );
    let rendered = rendered(&desired);
    assert_eq!(
        locations(&servers(&rendered.wanted.config(), "a.example")[0]),
        [("/".to_owned(), "404".to_owned())]
    );
    assert_eq!(rendered.refused.len(), 2);
}

#[test]
fn a_connection_that_shows_a_clients_address_is_kept_for_nobody() {
    let kept = |snat| {
        let mut desired = web(8080, "a.example", vec![prefix("/", "p")]);
        desired.put_pool(Pool { snat, ..pool("p") }, &[member(1)]);
        rendered(&desired).wanted.config().contains("keepalive 32;")
    };
    assert_eq!([true, false].map(kept), [true, false]);
}

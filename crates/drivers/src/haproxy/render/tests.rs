//! The renderer against golden files, against HAProxy's own check, and against people who write
//! directives where names belong.

use super::super::tokens::{map_lines, words};
use super::*;
use crate::samples::{consumer, everything, forward, ingress, member, pool, prefix, rule, web};
use bowline_core::key::ConsumerKind;
use bowline_core::plan::{Host, PathKind, Rule, ValueKind, ValueMatch};
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

pub(in super::super) fn settings(folder: &Path) -> Settings {
    Settings {
        admin_socket: folder.join("admin.sock"),
        peers_socket: folder.join("peers.sock"),
        access_log: true,
    }
}

fn rendered(desired: &Desired) -> Rendered {
    render(desired, &Excluded::default(), &settings(Path::new("/run/bowline"))).expect("settings")
}

/// Writes the files and asks HAProxy what it thinks of them.
fn haproxy_says(wanted: &Wanted) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in wanted.files() {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    let program =
        if Path::new("/usr/sbin/haproxy").exists() { "/usr/sbin/haproxy" } else { "haproxy" };
    let output =
        Command::new(program).args(["-c", "-f"]).arg(folder.path().join("haproxy.cfg")).output();
    let output =
        output.expect("HAProxy is missing; install it with\n  sudo apt-get install -y haproxy");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn everything_is_rendered_as_the_golden_file_says_and_haproxy_accepts_it() {
    let rendered = rendered(&everything());
    haproxy_says(&rendered.wanted)
        .unwrap_or_else(|why| panic!("{why}\n{}", rendered.wanted.config()));
    let files = rendered.wanted.files();
    let shown = files.iter().filter(|(name, _)| !name.ends_with(".pem"));
    let text: String = shown
        .map(|(name, bytes)| format!("==> {name} <==\n{}\n", String::from_utf8_lossy(bytes)))
        .collect();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/haproxy/render/everything.golden");
    if std::env::var_os("BOWLINE_BLESS").is_some() {
        std::fs::write(&golden, &text).expect("written");
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == expected, "run with BOWLINE_BLESS=1 to accept\n{text}");
}

#[test]
fn what_haproxy_cannot_do_is_told_on_the_object_that_asks_for_it() {
    let told: Vec<_> = rendered(&everything())
        .refused
        .into_iter()
        .map(|it| (it.consumer, it.problem.message.to_string()))
        .collect();
    let dns = consumer(ConsumerKind::Service, "dns");
    assert_eq!(told, [(dns, "127.0.0.1:53: HAProxy does not carry UDP here".to_owned())]);
}

#[test]
fn a_new_host_path_or_member_on_a_known_pool_changes_no_section() {
    let before = everything();
    let mut after = before.clone();
    after.put_site(
        Host::Exact("new.example".into()),
        None,
        "new",
        vec![prefix("/new", "ingress/shop/web/web/http")],
    );
    after.put_pool(pool("ingress/shop/web/web/http"), &[member(1), member(9)]);
    let (before, after) = (rendered(&before).wanted, rendered(&after).wanted);
    assert_eq!(before.mark(), after.mark());
    assert_ne!(before, after);
    let mut other = everything();
    other.put_pool(Pool { snat: false, ..pool("ingress/shop/web/web/http") }, &[member(1)]);
    assert_ne!(before.mark(), rendered(&other).wanted.mark());
}

#[test]
fn an_excluded_consumer_is_told_and_the_others_are_as_they_were() {
    let mut desired = web(80, "a.example", vec![prefix("/", "p")]);
    desired.put_pool(pool("p"), &[member(1)]);
    let alone = rendered(&desired).wanted;
    desired.put_site(Host::Exact("b.example".into()), None, "bad", vec![prefix("/", "q")]);
    desired.put_pool(pool("q"), &[member(2)]);
    let consumers = BTreeMap::from([(ingress("bad"), "no".to_owned())]);
    let excluded = Excluded { consumers, ..Excluded::default() };
    let rendered =
        render(&desired, &excluded, &settings(Path::new("/run/bowline"))).expect("settings");
    assert_eq!(rendered.wanted.sections, alone.sections);
    assert_eq!(rendered.wanted.maps["maps/web.prefix.map"], alone.maps["maps/web.prefix.map"]);
    let told: Vec<_> = rendered.refused.iter().map(|it| (&it.consumer, it.extent)).collect();
    assert_eq!(told, [(&ingress("bad"), Extent::All)]);
}

/// What people have tried to get into configuration files.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "\n",
        "\r\n",
        "\"",
        "'",
        "{",
        "}",
        "#",
        ";",
        "\\",
        "\0",
        " ",
        "\t",
        "%",
        "$",
        "${PATH}",
        "%[env(A)]",
        "lua-load /x",
        "\u{e4}",
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
        "-f",
        "--",
        "server x 1.2.3.4",
        "\nbackend x\n  server y 6.6.6.6:1\n",
        "' '",
        "use_backend",
        "\\'",
        "=404",
    ]);
    let short = prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat());
    prop_oneof![20 => short, 1 => Just("x".repeat(20_000))]
}

/// Directives of a file by how often they stand there; words of users are not among them.
fn directives(config: &str) -> BTreeMap<(String, String), usize> {
    let mut seen = BTreeMap::new();
    for line in words(config) {
        let first = line.first().cloned().unwrap_or_default();
        // With their second word, except where that is a name of ours.
        let second = match &*first {
            "server" | "backend" | "frontend" | "bind" | "cookie" | "dynamic-cookie-key"
            | "description" => "",
            _ => line.get(1).map_or("", String::as_str),
        };
        let second = second.split('(').next().unwrap_or_default();
        *seen.entry((first, second.to_owned())).or_default() += 1;
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The same plan with a harmless word for each hostile one has the same directives, line for line:
    /// so a user's text adds none and changes none.
    #[test]
    fn no_text_of_a_user_adds_or_changes_a_directive(
        path in hostile(), exact in hostile(), value in hostile(), expression in hostile(),
        health in hostile(), to in hostile(), owner in hostile(), name in hostile(), pem in hostile(),
    ) {
        let plan = |path: &str, exact: &str, value: &str, expression: &str, health: &str, to: &str, pem: &str| {
            let mut desired = web(80, "a.example", vec![
                prefix(&format!("/{path}"), "p"),
                rule(PathKind::Exact, &format!("/{exact}"), forward("p")),
            ]);
            let matched = |value: &str, kind| ValueMatch { name: "x".into(), kind, value: value.into() };
            desired.put_site(Host::Exact("b.example".into()), None, "b", vec![Rule {
                headers: vec![matched(value, ValueKind::Exact)],
                query: vec![matched(expression, ValueKind::Regex)],
                ..prefix("/b", "p")
            }]);
            desired.put_site(Host::Exact("c.example".into()), None, "c", vec![rule(
                PathKind::Prefix,
                "/",
                Action::Redirect(bowline_core::plan::Redirect {
                    scheme: None, host: None, port: None, path: Some(to.into()), status: 302,
                }),
            )]);
            let check = bowline_core::plan::HealthCheck {
                http_path: Some(health.into()), interval_ms: 1000, fall: 1, rise: 1,
            };
            desired.put_pool(Pool { health_check: Some(check), ..pool("p") }, &[member(1)]);
            let certificate = bowline_core::update::Certificate { chain: pem.into(), key: pem.into() };
            desired.certificates.insert("ab".repeat(32).into(), Arc::new(certificate));
            desired
        };
        let hostile = plan(&path, &exact, &value, &expression, &health, &to, &pem);
        let rendered_hostile = rendered(&hostile);
        // What was refused is refused in the harmless plan too, by leaving it out there.
        let ok = |fits: bool, text: &str| if fits { "ok".to_owned() } else { text.to_owned() };
        let harmless = plan(
            "ok", "ok",
            &ok(Word::pattern(&value).is_ok(), &value),
            &ok(Word::pattern(&format!(r"\A(?:{expression})\z")).is_ok(), &expression),
            &ok(Word::quoted(&health).is_ok(), &health),
            &ok(Word::format(&to).is_ok() && Word::key(&to).is_ok(), &to),
            "ok",
        );
        let (config, wanted) = (rendered_hostile.wanted.config(), &rendered_hostile.wanted);
        prop_assert_eq!(directives(&config), directives(&rendered(&harmless).wanted.config()));
        let files = wanted.files();
        for (file, entries) in &wanted.maps {
            let text = String::from_utf8_lossy(&files[file]).into_owned();
            let read: Vec<_> = map_lines(&text);
            let meant: Vec<_> = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(read, meant);
        }

        // Names that are no names at all are left out, whatever they say.
        let mut named = web(80, "a.example", vec![prefix("/", "p")]);
        named.put_pool(pool("p"), &[member(1)]);
        let good = directives(&rendered(&named).wanted.config());
        named.put_listener("127.0.0.1:90", ListenerProtocol::Tcp, Serves::Pool(name.as_str().into()),
            ingress("n"));
        named.put_pool(pool(&name), &[member(2)]);
        let site = bowline_core::update::ResolvedSite {
            owner: owner.as_str().into(), tls: None, rules: vec![(prefix("/", "p"), ingress("o"))],
        };
        let key = |host| bowline_core::update::SiteKey { entry: "web".into(), host };
        named.sites.insert(key(Host::Exact("d.example".into())), Arc::new(site.clone()));
        named.sites.insert(key(Host::Exact(name.as_str().into())), Arc::new(site.clone()));
        named.sites.insert(key(Host::Wildcard(owner.as_str().into())), Arc::new(site));
        let with = rendered(&named);
        if Word::pool(&name).is_err() {
            prop_assert_eq!(directives(&with.wanted.config()), good);
            prop_assert!(with.refused.iter().any(|it| it.consumer == ingress("n")));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn haproxy_accepts_whatever_is_not_refused(path in hostile(), value in hostile(), health in hostile(), to in hostile()) {
        let mut desired = web(80, "a.example", vec![
            prefix(&format!("/{path}"), "p"),
            Rule {
                headers: vec![ValueMatch { name: "x".into(), kind: ValueKind::Exact, value: value.as_str().into() }],
                ..prefix("/b", "p")
            },
            rule(PathKind::Exact, "/c", Action::Redirect(bowline_core::plan::Redirect {
                scheme: None, host: None, port: None, path: Some(to.as_str().into()), status: 302,
            })),
        ]);
        let check = bowline_core::plan::HealthCheck {
            http_path: Some(health.as_str().into()), interval_ms: 1000, fall: 1, rise: 1,
        };
        desired.put_pool(Pool { health_check: Some(check), ..pool("p") }, &[member(1)]);
        let wanted = rendered(&desired).wanted;
        let said = haproxy_says(&wanted);
        prop_assert!(said.is_ok(), "{:?}\n{}", said, wanted.config());
    }
}

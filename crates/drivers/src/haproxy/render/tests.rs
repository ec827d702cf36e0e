//! Tests the renderer with golden files, with HAProxy's own check, and (`hostile`) with texts of users who write
//! directives in place of names.

mod hostile;

use super::*;
use crate::samples::{consumer, everything, ingress, member, pool, prefix, web};
use bowline_core::key::ConsumerKind;
use bowline_core::plan::{HealthCheck, Host, Limits, Speaks};
use std::path::Path;
use std::process::Command;

pub(in super::super) fn settings(folder: &Path) -> Settings {
    Settings {
        admin_socket: folder.join("admin.sock"),
        peers_socket: folder.join("peers.sock"),
        access_log: true,
        version: Version(2, 6),
        shutdown_seconds: 3600,
        descriptors: 1 << 20,
    }
}

fn rendered(desired: &Desired) -> Rendered {
    render(desired, &Excluded::default(), &settings(Path::new("/run/bowline")), &Held::default())
        .expect("settings")
}

/// Writes the files and returns what HAProxy's check says.
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
fn pools_that_are_alike_share_a_kind_where_haproxy_can_be_told_of_more() {
    let mut desired = everything();
    for name in ["in/one", "in/two"] {
        desired.put_site(Host::Exact(name[3..].into()), None, "n", vec![prefix("/", name)]);
        desired.put_pool(pool(name), &[member(1)]);
    }
    let settings = Settings { version: Version(3, 4), ..settings(Path::new("/run/bowline")) };
    let wanted = render(&desired, &Excluded::default(), &settings, &Held::default())
        .expect("settings")
        .wanted;
    haproxy_says(&wanted).unwrap_or_else(|why| panic!("{why}\n{}", wanted.config()));
    let body = |name: &str| {
        wanted.sections[&Section::Backend(Word::section(name).expect("a name"))].clone()
    };
    assert_eq!(body("in:one"), body("in:two"));
    assert_eq!(body("in:one").text, "");
    let named = "\nbackend in:one from kind:";
    assert!(wanted.config().contains(named), "{}", wanted.config());
}

#[test]
fn a_consumer_is_held_to_its_limits_over_all_its_pools_as_far_as_haproxy_can() {
    let mut desired = everything();
    let who = consumer(ConsumerKind::Ingress, "held");
    for name in ["in/one", "in/two"] {
        let limits = Limits {
            consumer: who.clone(),
            requests_per_second: Some(20),
            bits_per_second: Some(8_000_000),
        };
        desired.put_site(Host::Exact(name[3..].into()), None, "n", vec![prefix("/", name)]);
        desired.put_pool(Pool { limits: Some(limits), ..pool(name) }, &[member(1)]);
    }
    let at = |version| {
        let settings = Settings { version, ..settings(Path::new("/run/bowline")) };
        render(&desired, &Excluded::default(), &settings, &Held::default()).expect("settings")
    };
    let old = at(Version(2, 6));
    haproxy_says(&old.wanted).unwrap_or_else(|why| panic!("{why}\n{}", old.wanted.config()));
    let told: Vec<_> = old.refused.iter().filter(|it| it.consumer == who).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    let config = old.wanted.config();
    assert_eq!(config.matches("\nbackend limit:").count(), 1);
    assert_eq!(config.matches(" ge 20 }\n").count(), 2);
    assert!(!config.contains("bwlim"));

    let new = at(Version(2, 8));
    assert_eq!(new.refused.iter().find(|it| it.consumer == who), None);
    assert_eq!(new.wanted.config().matches("filter bwlim-out held limit 1000000 ").count(), 2);
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
        render(&desired, &excluded, &settings(Path::new("/run/bowline")), &Held::default())
            .expect("settings");
    assert_eq!(rendered.wanted.sections, alone.sections);
    assert_eq!(rendered.wanted.maps["maps/web.prefix.map"], alone.maps["maps/web.prefix.map"]);
    let told: Vec<_> =
        rendered.refused.iter().map(|it| (&it.consumer, it.extent.clone())).collect();
    assert_eq!(told, [(&ingress("bad"), Extent::All)]);
}

#[test]
fn an_expression_that_takes_long_to_match_is_left_out_and_told() {
    let mut desired = web(80, "a.example", vec![prefix("/", "p")]);
    desired.put_pool(pool("p"), &[member(1)]);
    let alone = rendered(&desired).wanted;
    desired.put_pool(pool("q"), &[member(2)]);
    desired.put_site(Host::Regex("(a+)+".into()), None, "slow", vec![prefix("/", "q")]);
    let found = rendered(&desired);
    let told: Vec<_> = found.refused.iter().map(|it| (&it.consumer, &it.extent)).collect();
    assert_eq!(told, [(&ingress("slow"), &Extent::Part)]);
    let message = &found.refused[0].problem.message;
    assert!(message.starts_with("the host \"~(a+)+\" may take too long to match: "), "{message}");
    let text = |wanted: &Wanted| format!("{:?}", wanted.maps);
    assert_eq!(text(&found.wanted), text(&alone));
    assert!(!format!("{:?}", found.wanted.sections).contains("(a+)+"));
    desired.put_site(Host::Regex("([a-z]+-)+x".into()), None, "fine", vec![prefix("/", "q")]);
    assert!(format!("{:?}", rendered(&desired).wanted.sections).contains("([a-z]+-)+x"));
}

#[test]
fn a_path_that_members_are_not_asked_for_is_told() {
    let told = |speaks| {
        let mut desired = web(80, "a.example", vec![prefix("/", "p")]);
        let check =
            HealthCheck { http_path: Some("/up".into()), interval_ms: 1_000, fall: 1, rise: 1 };
        desired.put_pool(Pool { speaks, health_check: Some(check), ..pool("p") }, &[member(1)]);
        let refused = rendered(&desired).refused;
        refused.iter().map(|it| (it.problem.reason, it.extent.clone())).collect::<Vec<_>>()
    };
    assert_eq!(told(Speaks::Http1), []);
    assert_eq!(told(Speaks::H2c), [(Reason::NotSupported, Extent::Part)]);
}

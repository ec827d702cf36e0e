//! Tests the commands for the difference of two plans, and that they leave no difference.

use super::super::descriptor_budget::Held;
use super::super::render::tests::settings;
use super::super::render::{Settings, render};
use super::super::version::Version;
use super::*;
use crate::desired::Desired;
use crate::program::Excluded;
use crate::samples::{everything, forward, ingress, member, pool, prefix, rule};
use bowline_core::plan::{
    Algorithm, HealthCheck, Host, Limits, PathKind, Persistence, PersistenceKey, Pool, Speaks,
    Timeouts,
};
use proptest::prelude::*;
use std::path::Path;

fn wanted(desired: &Desired) -> Wanted {
    wanted_by(desired, false)
}

/// The configuration for an HAProxy that can, or cannot, add backends at run time.
fn wanted_by(desired: &Desired, adds_backends: bool) -> Wanted {
    let version = if adds_backends { Version(3, 4) } else { Version(2, 6) };
    let settings = Settings { version, ..settings(Path::new("/run")) };
    render(desired, &Excluded::default(), &settings, &Held::default()).expect("settings").wanted
}

const POOL: &str = "ingress/shop/web/web/http";

#[test]
fn what_runs_as_wanted_needs_nothing() {
    let wanted = wanted(&everything());
    assert_eq!(diff(&Observed::loaded(&wanted), &wanted), Diff::default());
}

#[test]
fn members_come_before_members_go_and_nothing_is_reloaded() {
    let mut desired = everything();
    let observed = Observed::loaded(&wanted(&desired));
    desired.put_pool(pool(POOL), &[member(2), member(9)]);
    let found = diff(&observed, &wanted(&desired));
    let backend = Word::pool(POOL).expect("a name");
    let section = Section::Backend(backend.clone());
    let options = wanted(&desired).sections[&section].options.clone();
    let expected = vec![
        Command::AddServer {
            backend: backend.clone(),
            address: member(9).address,
            weight: 1,
            options,
        },
        Command::Retire { backend, address: member(1).address },
    ];
    assert_eq!(found, Diff { reload: None, commands: expected });
}

#[test]
fn a_new_host_on_a_known_pool_is_an_entry_and_on_a_new_pool_a_reload() {
    let mut desired = everything();
    let observed = Observed::loaded(&wanted(&desired));
    desired.put_site(Host::Exact("new.example".into()), None, "new", vec![prefix("/", POOL)]);
    let found = diff(&observed, &wanted(&desired));
    assert_eq!((found.reload, found.commands.len()), (None, 2));
    desired.put_site(
        Host::Exact("more.example".into()),
        None,
        "more",
        vec![prefix("/", "ingress/n")],
    );
    desired.put_pool(pool("ingress/n"), &[member(1)]);
    let found = diff(&observed, &wanted(&desired));
    assert_eq!(found.reload.as_deref(), Some("backend ingress:n is new"));
    let text = format!("{:?}", found.commands);
    assert!(text.contains("new.example/") && !text.contains("more.example/"), "{text}");
}

#[test]
fn a_pool_like_others_is_told_where_that_can_be_and_one_of_its_own_is_a_reload() {
    let mut desired = everything();
    desired.put_site(Host::Exact("one.example".into()), None, "n", vec![prefix("/", "in/one")]);
    desired.put_pool(pool("in/one"), &[member(1)]);
    let observed = Observed::loaded(&wanted_by(&desired, true));
    desired.put_site(Host::Exact("two.example".into()), None, "n", vec![prefix("/", "in/two")]);
    desired.put_pool(pool("in/two"), &[member(2)]);
    let wanted = wanted_by(&desired, true);
    let backend = Word::pool("in/two").expect("a name");
    let body = wanted.sections[&Section::Backend(backend.clone())].clone();
    let kind = body.from.expect("it is like the other");
    let found = diff(&observed, &wanted);
    let (address, options, unchecked) = (member(2).address, body.options, body.unchecked);
    let expected = [
        Command::AddBackend { backend: backend.clone(), kind, options: options.clone(), unchecked },
        Command::AddServer { backend, address, weight: 1, options },
    ];
    assert_eq!((found.reload, found.commands.get(..2)), (None, Some(&expected[..])));

    let alone =
        Pool { source_ranges: vec!["10.0.0.0/8".parse().expect("a range")], ..pool("in/two") };
    desired.put_pool(alone, &[member(2)]);
    let found = diff(&observed, &wanted_by(&desired, true));
    assert_eq!(found.reload.as_deref(), Some("backend in:two is new"));
}

#[test]
fn a_pool_that_nothing_leads_to_is_emptied_and_not_reloaded_for() {
    let mut desired = everything();
    let observed = Observed::loaded(&wanted(&desired));
    desired.sites.retain(|key, _| key.host != Host::Exact("secure.example".into()));
    let found = diff(&observed, &wanted(&desired));
    assert_eq!(found.reload, None);
    let text = format!("{:?}", found.commands);
    assert!(text.contains("Retire") && text.contains("Hide"), "{text}");
}

#[test]
fn a_renewed_certificate_is_shown_in_place_of_the_one_before_though_a_reload_is_due() {
    let desired = everything();
    let mut before = wanted(&desired);
    let observed = Observed::loaded(&before);
    let (list, shown) = before.crt_lists.iter().next().expect("a list");
    let (list, (old, host)) = (list.clone(), shown.first().expect("a line").clone());
    let renew = |wanted: &mut Wanted, pem: &str| {
        wanted.certificates.remove(&old);
        wanted.certificates.insert("renewed".into(), pem.into());
        let shown = wanted.crt_lists.get_mut(&list).expect("a list");
        shown.retain(|(hash, _)| *hash != old);
        shown.insert(("renewed".into(), host.clone()));
        let other = Section::Frontend(Word::name("other").expect("a name"));
        wanted.sections.insert(other, Body::default());
    };
    let mut too_long = before.clone();
    renew(&mut before, "a chain and its key");
    let found = diff(&observed, &before);
    assert!(found.reload.is_some(), "another frontend is new");
    let hidden = |found: &Diff| {
        let hides = found.commands.iter().filter_map(|it| match it {
            Command::Hide { file, .. } => Some(file.clone()),
            _ => None,
        });
        hides.collect::<Vec<_>>()
    };
    assert_eq!(hidden(&found), [certificate_file(&old)]);
    renew(&mut too_long, &"x".repeat(20_000));
    assert_eq!(hidden(&diff(&observed, &too_long)), [""; 0], "the reload brings the next one");
}

#[test]
fn a_check_is_given_up_without_a_reload_and_comes_back_without_one_while_haproxy_knows_it() {
    let (mut desired, backend) = (everything(), Word::pool(POOL).expect("a name"));
    desired.put_pool(pool(POOL), &[member(1), member(2)]);
    let all = wanted(&desired);
    let without = |last: u8| {
        let mut wanted = all.clone();
        let servers = wanted.servers.get_mut(&backend).expect("servers");
        servers.unchecked.insert(member(last).address);
        wanted
    };
    let check = |last: u8, on| Command::Check {
        backend: backend.clone(),
        address: member(last).address,
        on,
    };
    let mut observed = Observed::loaded(&all);
    let found = diff(&observed, &without(2));
    assert_eq!(found, Diff { reload: None, commands: vec![check(2, false)] });
    found.commands.iter().for_each(|command| observed.done(command));
    assert_eq!(diff(&observed, &without(2)), Diff::default());
    let found = diff(&observed, &all);
    assert_eq!(found, Diff { reload: None, commands: vec![check(2, true)] });
    // A server that was loaded without a check.
    let observed = Observed::loaded(&without(2));
    assert!(diff(&observed, &all).reload.is_some());
    assert_eq!(diff(&observed, &without(2)), Diff::default());
    let text = without(2).config();
    let line = |last: u8| {
        let named = format!("    server {} ", Word::named(member(last).address));
        let mut lines = text.split(&format!("\nbackend {backend}")).nth(1).into_iter();
        lines.next().and_then(|it| it.lines().find(|line| line.starts_with(&named))).unwrap()
    };
    assert!(line(1).contains(" check ") && !line(2).contains(" check "), "{text}");
}

#[test]
fn every_setting_of_a_pool_that_changes_is_loaded() {
    let range = vec!["10.0.0.0/8".parse().expect("a range")];
    let (interval_ms, fall, rise) = (1_000, 2, 1);
    let check = |path: Option<&str>| {
        let http_path = path.map(Into::into);
        Some(HealthCheck { http_path, interval_ms, fall, rise })
    };
    let persistence = |by| Some(Persistence { by, timeout_seconds: 60 });
    let timeouts =
        |connect_ms, backend_ms| Timeouts { connect_ms, backend_ms, ..Timeouts::default() };
    let limits =
        Limits { consumer: ingress("web"), requests_per_second: Some(5), bits_per_second: None };
    let usual = || pool(POOL);
    let others = [
        ("algorithm", Pool { algorithm: Algorithm::LeastConnections, ..usual() }),
        ("source", Pool { persistence: persistence(PersistenceKey::SourceIp), ..usual() }),
        ("cookie", Pool { persistence: persistence(PersistenceKey::Cookie), ..usual() }),
        ("snat", Pool { snat: false, ..usual() }),
        ("proxy protocol", Pool { proxy_protocol: true, ..usual() }),
        ("speaks", Pool { speaks: Speaks::H2c, ..usual() }),
        ("ranges", Pool { source_ranges: range, ..usual() }),
        ("connect", Pool { timeouts: timeouts(Some(7), None), ..usual() }),
        ("backend", Pool { timeouts: timeouts(None, Some(7)), ..usual() }),
        ("limits", Pool { limits: Some(limits), ..usual() }),
        ("check", Pool { health_check: check(None), ..usual() }),
        ("HTTP check", Pool { health_check: check(Some("/up")), ..usual() }),
    ];
    for adds_backends in [false, true] {
        let before = wanted_by(&everything(), adds_backends);
        for (what, other) in &others {
            let mut desired = everything();
            desired.put_pool(other.clone(), &[member(1)]);
            let after = wanted_by(&desired, adds_backends);
            let found = diff(&Observed::loaded(&before), &after);
            assert!(found.reload.is_some(), "{what}: {found:?}");
            assert_ne!(before.mark(), after.mark(), "{what}");
        }
    }
}

#[test]
fn members_change_as_they_run_while_another_setting_waits_for_a_reload() {
    let mut desired = everything();
    let before = wanted(&desired);
    let other = Pool { proxy_protocol: true, ..pool(POOL) };
    desired.put_pool(other, &[member(2), member(9)]);
    let found = diff(&Observed::loaded(&before), &wanted(&desired));
    let backend = Word::pool(POOL).expect("a name");
    let options = before.sections[&Section::Backend(backend.clone())].options.clone();
    let expected = vec![
        Command::AddServer {
            backend: backend.clone(),
            address: member(9).address,
            weight: 1,
            options,
        },
        Command::Retire { backend: backend.clone(), address: member(1).address },
    ];
    assert_eq!(found.reload, Some(format!("backend {backend} changes")));
    assert_eq!(found.commands, expected);
}

/// A plan with a host that has a single rule, which leads to this pool.
fn one_rule(kind: PathKind, to: &str) -> Desired {
    let mut desired = everything();
    let rule = rule(kind, "/moved", forward(to));
    desired.put_site(Host::Exact("moved.example".into()), None, "m", vec![rule]);
    desired.put_pool(pool(to), &[member(5)]);
    desired
}

#[test]
fn what_leads_somewhere_stays_whole_until_its_replacement_is_loaded() {
    for (before, after) in [
        (one_rule(PathKind::Prefix, "in/old"), one_rule(PathKind::Prefix, "in/new")),
        (one_rule(PathKind::Exact, "in/old"), one_rule(PathKind::Prefix, "in/new")),
    ] {
        let observed = Observed::loaded(&wanted(&before));
        let found = diff(&observed, &wanted(&after));
        let expected = Diff { reload: Some("backend in:new is new".to_owned()), ..Diff::default() };
        assert_eq!(found, expected);
    }
}

#[test]
fn others_change_and_go_while_a_reload_waits() {
    let mut before = one_rule(PathKind::Prefix, "in/old");
    let host = |name: &str| Host::Exact(format!("{name}.example").into());
    before.put_site(host("gone"), None, "g", vec![prefix("/", "in/gone")]);
    before.put_pool(pool("in/gone"), &[member(6)]);
    let mut after = one_rule(PathKind::Prefix, "in/new");
    after.put_site(host("fresh"), None, "f", vec![prefix("/", POOL)]);
    let mut observed = Observed::loaded(&wanted(&before));
    let found = diff(&observed, &wanted(&after));
    assert!(found.reload.is_some());
    found.commands.iter().for_each(|command| observed.done(command));
    let entries = |map: &str| -> Vec<_> {
        let named = |(key, value): (&Word, &Word)| {
            let ours = ["moved", "gone", "fresh"].iter().any(|it| key.as_str().starts_with(it));
            ours.then(|| format!("{key} {value}"))
        };
        observed.maps[map].iter().filter_map(named).collect()
    };
    assert_eq!(entries("maps/web.hosts.map"), ["fresh.example shop", "moved.example shop"]);
    let own = format!("fresh.example/ {}", Word::pool(POOL).expect("a name"));
    assert_eq!(entries("maps/web.prefix.map"), [&own, "moved.example/moved/ in:old"]);
    let is_retired = |pool: &str| {
        let servers = &observed.servers[&Word::pool(pool).expect("a name")];
        servers.values().all(|it| it.retired)
    };
    assert_eq!(["in/old", "in/gone"].map(is_retired), [false, true]);
}

#[test]
fn many_changes_of_a_map_replace_it_at_once() {
    let mut desired = everything();
    let observed = Observed::loaded(&wanted(&desired));
    for i in 0..300 {
        let host = Host::Exact(format!("h{i}.example").into());
        desired.put_site(host, None, "many", vec![prefix("/", POOL)]);
    }
    let found = diff(&observed, &wanted(&desired));
    let replaced = found.commands.iter().filter(|it| matches!(it, Command::Replace { .. })).count();
    assert_eq!((found.reload, replaced, found.commands.len()), (None, 2, 2));
}

proptest! {
    /// Carrying out the difference leaves no difference, whatever ran before.
    #[test]
    fn what_was_told_is_what_was_wanted(
        before in prop::collection::btree_map(0u8..12, 0u8..6, 0..12),
        after in prop::collection::btree_map(0u8..12, 0u8..6, 0..12),
        retired in prop::collection::vec(0u8..12, 0..4),
        adds_backends: bool,
    ) {
        let plan = |hosts: &BTreeMap<u8, u8>| {
            let mut desired = everything();
            for (host, last) in hosts {
                let host = Host::Exact(format!("h{host}.example").into());
                // An HAProxy that can add backends gets a new pool with each host.
                let to = if adds_backends { format!("in/{last}") } else { POOL.to_owned() };
                desired.put_site(host, None, "h", vec![prefix(&format!("/{last}"), &to)]);
                if adds_backends {
                    desired.put_pool(pool(&to), &[member(*last)]);
                }
            }
            let members: Vec<_> = hosts.keys().map(|last| member(*last)).collect();
            desired.put_pool(pool(POOL), &members);
            wanted_by(&desired, adds_backends)
        };
        let (before, after) = (plan(&before), plan(&after));
        let mut observed = Observed::loaded(&before);
        for last in retired {
            let backend = Word::pool(POOL).expect("a name");
            observed.done(&Command::Retire { backend, address: member(last).address });
        }
        let found = diff(&observed, &after);
        prop_assert_eq!(&found.reload, &None);
        found.commands.iter().for_each(|command| observed.done(command));
        prop_assert_eq!(diff(&observed, &after), Diff::default());
    }
}

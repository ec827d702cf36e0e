//! Sends parts to a model of HAProxy.

use super::*;
use crate::haproxy::command::Secret;
use crate::haproxy::diff::{Running, diff};
use bowline_core::update::{Member, MemberState};
use proptest::prelude::*;

fn word(name: &str) -> Word {
    Word::name(name).unwrap()
}

fn address(number: usize) -> SocketAddr {
    ([10, (number >> 16) as u8, (number >> 8) as u8, number as u8], 80).into()
}

/// Adds a backend that has some servers and wants others.
fn backend(
    name: &str,
    running: impl Iterator<Item = usize>,
    wants: impl Iterator<Item = usize>,
    all: (&mut Observed, &mut Wanted),
) {
    let (observed, wanted) = all;
    let section = Section::Backend(word(name));
    observed.sections.insert(section.clone(), Body::default());
    wanted.sections.insert(section, Body::default());
    let running = running.map(|n| (address(n), Running::of(1)));
    observed.servers.insert(word(name), running.collect());
    wanted.servers.insert(word(name), servers(wants));
}

fn servers(numbers: impl Iterator<Item = usize>) -> Servers {
    let member = |n| Member { address: address(n), weight: 1, state: MemberState::Ready };
    Servers::new(&numbers.map(member).collect::<Vec<_>>())
}

/// Applies the next parts to the model, and returns them.
fn tell(lagging: &mut Lagging, observed: &mut Observed, wanted: &Wanted) -> Vec<Part> {
    let parts = lagging.next(Stay::None, usize::MAX, |it| lacks(observed, wanted, it));
    for part in &parts {
        part.commands.iter().for_each(|it| observed.done(it));
        if part.more {
            lagging.insert(&part.namespace, part.backend.clone());
        }
    }
    parts
}

/// Removes the retired servers, as a sweep does where no connection holds them.
fn sweep(lagging: &mut Lagging, observed: &mut Observed) {
    for servers in observed.servers.values_mut() {
        servers.retain(|_, it| !it.retired);
    }
    lagging.release();
}

fn lacks(observed: &Observed, wanted: &Wanted, backend: &Word) -> Lacks {
    Lacks::of(observed, wanted, &BTreeSet::new(), backend)
}

/// Each of the twenty backends of `evil` swaps 900 servers; the backend of `shop` swaps one.
fn attacked() -> (Observed, Wanted, Lagging) {
    let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
    let mut lagging = Lagging::default();
    for n in 0..20 {
        let name = format!("evil{n}");
        backend(&name, 0..900, 1_000..1_900, (&mut observed, &mut wanted));
        lagging.insert(&"evil".into(), word(&name));
    }
    backend("shop", 0..1, 1..2, (&mut observed, &mut wanted));
    (observed, wanted, lagging)
}

#[test]
fn a_change_of_another_namespace_waits_for_one_part_of_one_that_changes_thousands() {
    let (mut observed, wanted, mut lagging) = attacked();
    let lines_of = |parts: &[Part]| parts.iter().map(Part::lines).sum::<usize>();
    for _ in 0..5 {
        let parts = tell(&mut lagging, &mut observed, &wanted);
        assert!(parts.iter().all(|it| &*it.namespace == "evil" && it.more));
        assert!((LINES..LINES + 8).contains(&lines_of(&parts)), "each ends with a whole pair");
    }
    lagging.insert(&"shop".into(), word("shop"));
    let parts = tell(&mut lagging, &mut observed, &wanted);
    let shops: Vec<_> = parts.iter().filter(|it| &*it.namespace == "shop").collect();
    assert_eq!(shops.len(), 1);
    assert!(!shops[0].more);
    assert_eq!(shops[0].commands.len(), 2, "one comes, one goes");
}

#[test]
fn many_small_changes_of_a_namespace_are_told_as_fast_as_a_part_of_a_large_one() {
    let (mut observed, mut wanted, mut lagging) = attacked();
    for n in 0..100 {
        let name = format!("shop{n}");
        backend(&name, 0..1, 1..2, (&mut observed, &mut wanted));
        lagging.insert(&"shop".into(), word(&name));
    }
    // A swap is four lines.
    let rounds = (100 * 4_usize).div_ceil(LINES_OF_ONE);
    for round in 1..=rounds {
        let parts = tell(&mut lagging, &mut observed, &wanted);
        let evil = parts.iter().filter(|it| &*it.namespace == "evil");
        let evil: usize = evil.map(Part::lines).sum();
        assert!((LINES_OF_ONE..=LINES).contains(&evil), "round {round} has {evil} lines of evil");
    }
    let is_shop = |it: &&Word| it.as_str().starts_with("shop");
    let untold = lagging.waits.keys().filter(is_shop).count();
    assert_eq!((rounds, untold), (3, 0));
}

#[test]
fn backends_of_one_namespace_take_turns() {
    let (observed, wanted, mut lagging) = attacked();
    let mut told = BTreeSet::new();
    for _ in 0..10 {
        for part in lagging.next(Stay::None, usize::MAX, |it| lacks(&observed, &wanted, it)) {
            assert!(told.insert(part.backend.clone()), "{} is told again", part.backend);
            lagging.insert(&part.namespace, part.backend);
        }
    }
    assert_eq!(told.len(), 20);
}

#[test]
fn servers_of_a_namespace_with_something_else_to_be_told_come_and_do_not_go() {
    let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
    let mut lagging = Lagging::default();
    for name in ["evil", "shop"] {
        backend(name, 0..1, 1..2, (&mut observed, &mut wanted));
        lagging.insert(&name.into(), word(name));
    }
    let of = |name: &str| {
        let lacks = lacks(&observed, &wanted, &word(name));
        assert_eq!((lacks.coming.len(), lacks.going.len()), (1, 1));
        lacks
    };
    let part = |name: &str, commands: Vec<Command>, more| Part {
        namespace: name.into(),
        backend: word(name),
        commands,
        more,
    };
    let evils = [of("evil").coming, of("evil").going].concat();
    let shop = BTreeSet::from(["shop".into()]);
    let parts =
        lagging.clone().next(Stay::Of(&shop), usize::MAX, |it| lacks(&observed, &wanted, it));
    assert_eq!(parts, [part("evil", evils, false), part("shop", of("shop").coming, true)]);
    let parts = lagging.next(Stay::All, usize::MAX, |it| lacks(&observed, &wanted, it));
    let coming = ["evil", "shop"].map(|name| part(name, of(name).coming, true));
    assert_eq!(parts, coming);
}

#[test]
fn a_backend_waits_once_also_where_its_pool_is_gone() {
    let mut lagging = Lagging::default();
    lagging.insert(&"".into(), word("shop"));
    lagging.insert(&"shop".into(), word("shop"));
    let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
    backend("shop", 0..1, 1..2, (&mut observed, &mut wanted));
    let parts = lagging.next(Stay::None, usize::MAX, |it| lacks(&observed, &wanted, it));
    assert_eq!((parts.len(), lagging.is_empty()), (1, true));
}

#[test]
fn a_process_that_is_about_to_be_replaced_is_told_of_small_changes_alone() {
    let (observed, wanted, mut lagging) = attacked();
    lagging.insert(&"shop".into(), word("shop"));
    let parts = lagging.next(Stay::None, SMALL, |it| lacks(&observed, &wanted, it));
    assert_eq!(parts.len(), 21);
    let told: Vec<_> = parts.iter().filter(|it| !it.commands.is_empty()).collect();
    assert_eq!(told.len(), 1);
    assert_eq!((&*told[0].namespace, told[0].more), ("shop", false));
    assert!(parts.iter().filter(|it| it.more).count() == 20, "the others wait");
}

#[test]
fn servers_stay_bounded_while_all_members_are_replaced_faster_than_haproxy_is_told() {
    const WANTED: usize = 900;
    let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
    let mut lagging = Lagging::default();
    backend("evil", 0..WANTED, 0..WANTED, (&mut observed, &mut wanted));
    let counts = |observed: &Observed| {
        let all = &observed.servers[&word("evil")];
        (all.len(), all.values().filter(|it| !it.retired).count())
    };
    let (mut told, mut largest) = (0, 0);
    for round in 1..300 {
        wanted.servers.insert(word("evil"), servers(round * WANTED..(round + 1) * WANTED));
        lagging.insert(&"evil".into(), word("evil"));
        told += tell(&mut lagging, &mut observed, &wanted).len();
        let (all, active) = counts(&observed);
        assert!(all <= 2 * WANTED + SPARE, "{all} servers in round {round}");
        assert!(active <= WANTED + LINES_OF_ONE, "{active} servers take traffic in round {round}");
        largest = largest.max(all);
        // Connections hold retired servers for a while.
        if round % 100 == 0 {
            sweep(&mut lagging, &mut observed);
        }
    }
    assert_eq!(largest, 2 * WANTED + SPARE, "servers wait for removals");
    // Waiting servers cost nothing: they are sent when there is room again.
    assert!(told < 300 && lagging.is_empty() && lagging.holds());
    while lagging.holds() {
        sweep(&mut lagging, &mut observed);
        while !lagging.is_empty() {
            tell(&mut lagging, &mut observed, &wanted);
        }
    }
    assert_eq!(diff(&observed, &wanted).commands, vec![]);
    assert_eq!(counts(&observed).1, WANTED);
}

#[test]
fn servers_come_with_the_key_of_their_cookies_in_each_part() {
    let server = |n| Command::AddServer {
        backend: word("b"),
        address: address(n),
        weight: 1,
        options: "".into(),
    };
    let key = Command::KeyCookies { backend: word("b"), key: Secret("k".into()) };
    let retire = Command::Retire { backend: word("b"), address: address(9) };
    let (coming, going) = (vec![server(1), server(2), key.clone()], vec![retire.clone()]);
    let some = vec![server(1), key.clone(), retire.clone()];
    assert_eq!(first(coming.clone(), going.clone(), 3), (some, true));
    let all = [coming.clone(), going.clone()].concat();
    assert_eq!(first(coming, going, 100), (all, false));
    assert_eq!(first(vec![], vec![retire.clone()], 1), (vec![retire], false));
}

#[test]
fn a_new_backend_comes_with_its_servers_and_what_is_gone_is_told_last() {
    let new = Command::AddBackend {
        backend: word("new"),
        kind: word("kind"),
        options: "".into(),
        unchecked: "".into(),
    };
    let of = |backend: &str, n| Command::AddServer {
        backend: word(backend),
        address: address(n),
        weight: 1,
        options: "".into(),
    };
    let entry = Command::RemoveEntry { map: "m".to_owned(), key: word("h") };
    let retire = Command::Retire { backend: word("old"), address: address(1) };
    let wanted = Wanted {
        servers: ["new", "runs"].map(|it| (word(it), Servers::default())).into(),
        ..Wanted::default()
    };
    let all = vec![new.clone(), of("new", 1), of("runs", 1), entry.clone(), retire];
    let expected = Split {
        structure: vec![new, of("new", 1), entry],
        changed: [word("runs")].into(),
        gone: [word("old")].into(),
    };
    assert_eq!(Split::of(all, &wanted), expected);
}

#[test]
fn backends_that_rules_are_about_to_lead_to_have_two_servers_first_and_the_rest_in_turn() {
    let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
    wanted.maps.insert("m".to_owned(), [].into());
    observed.maps.insert("m".to_owned(), [].into());
    let mut lead = |name: &str| {
        let entries = wanted.maps.get_mut("m").unwrap();
        entries.insert(word(&format!("{name}.example")), word(name));
    };
    (0..400).for_each(|n| lead(&format!("shop{n}")));
    ["drains", "serves"].into_iter().for_each(&mut lead);
    for n in 0..400 {
        backend(&format!("shop{n}"), 0..0, 0..50, (&mut observed, &mut wanted));
    }
    // A draining member takes no traffic, and a backend that serves need not be opened.
    backend("drains", 0..0, 0..50, (&mut observed, &mut wanted));
    let draining = wanted.servers.get_mut(&word("drains")).unwrap();
    draining.weights.values_mut().take(10).for_each(|weight| *weight = 0);
    backend("serves", 0..1, 1..50, (&mut observed, &mut wanted));
    backend("unused", 0..0, 1..50, (&mut observed, &mut wanted));

    let split = Split::of(diff(&observed, &wanted).commands, &wanted);
    let opening = split.opening(&observed, &wanted);
    assert_eq!(opening.len(), 401);
    for (backend, commands) in opening {
        let told: Vec<_> = commands.iter().filter_map(at).copied().collect();
        let first = if backend == word("drains") { 10 } else { 0 };
        assert_eq!(told, [address(first), address(first + 1)], "{backend}");
    }
}

#[test]
fn a_backend_of_which_servers_are_refused_waits_whatever_changes_and_no_other_with_it() {
    let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
    let mut lagging = Lagging::default();
    for name in ["evil", "evil2", "shop"] {
        backend(name, 0..1, 1..2, (&mut observed, &mut wanted));
        lagging.insert(&(if name == "shop" { name } else { "evil" }).into(), word(name));
    }
    lagging.refuse(&"evil".into(), word("evil"));
    lagging.insert(&"evil".into(), word("evil"));
    let parts = tell(&mut lagging, &mut observed, &wanted);
    let told: Vec<_> = parts.iter().map(|it| it.backend.as_str()).collect();
    assert_eq!(told, ["evil2", "shop"]);
    assert!(lagging.is_empty() && lagging.is_refused(), "nothing is told until it is tried again");
    lagging.retry();
    let parts = tell(&mut lagging, &mut observed, &wanted);
    assert_eq!((parts.len(), parts[0].backend.as_str()), (1, "evil"));
    assert!(!lagging.is_refused());
}

proptest! {
    /// Whatever backends lack, and however they change between two parts: in the end HAProxy has everything.
    #[test]
    fn parts_add_up_to_all(
        sizes in prop::collection::vec((0..400_usize, 0..400_usize, 0..3_usize), 1..6),
        again in prop::collection::vec((0..6_usize, 0..400_usize), 0..4),
    ) {
        let (mut observed, mut wanted) = (Observed::default(), Wanted::default());
        let mut lagging = Lagging::default();
        let namespace = |n: usize| Arc::from(["a", "b", "c"][n]);
        for (n, (has, wants, of)) in sizes.iter().enumerate() {
            let name = format!("p{n}");
            backend(&name, 0..*has, 100..100 + wants, (&mut observed, &mut wanted));
            lagging.insert(&namespace(*of), word(&name));
        }
        let mut again = again.into_iter();
        while !lagging.is_empty() || lagging.holds() {
            if lagging.is_empty() {
                sweep(&mut lagging, &mut observed);
            }
            tell(&mut lagging, &mut observed, &wanted);
            if let Some((n, wants)) = again.next() && let Some((.., of)) = sizes.get(n) {
                let name = word(&format!("p{n}"));
                wanted.servers.insert(name.clone(), servers(200..200 + wants));
                lagging.insert(&namespace(*of), name);
            }
        }
        prop_assert_eq!(diff(&observed, &wanted).commands, vec![]);
    }
}

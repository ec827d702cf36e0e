//! Backends with servers that HAProxy is not told of yet, in turn by namespace. A command takes HAProxy tens of microseconds,
//! and everything else waits meanwhile: where a tenant changes thousands of members, HAProxy is told of some of them at a
//! time, so that a change of another tenant waits for one such part. Only the newest is told: what changes again before
//! its turn costs nothing. Pure.

use super::command::Command;
use super::text::Word;
use super::wanted::Wanted;
use bowline_core::fair::Queue;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many lines HAProxy is told in one go: about 10 ms, and several times that where all cores are busy.
const LINES: usize = 300;
/// How many of them of one backend.
const LINES_OF_ONE: usize = 150;

/// What a backend may lack to be told of while files are checked and loaded.
pub(super) const SMALL: usize = 1_000;

/// Backends with servers that HAProxy is not told of yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Lagging {
    queue: Queue<Arc<str>, Word>,
    /// What is in the queue.
    waits: BTreeSet<Word>,
}

/// What HAProxy lacks of the servers of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    pub(super) coming: Vec<Command>,
    pub(super) going: Vec<Command>,
}

/// Namespaces with servers that do not go yet: a rule may lead to them until HAProxy is told of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stay<'a> {
    All,
    Of(&'a BTreeSet<Arc<str>>),
    None,
}

impl Stay<'_> {
    fn is_for(self, namespace: &Arc<str>) -> bool {
        match self {
            Self::All => true,
            Self::Of(namespaces) => namespaces.contains(namespace),
            Self::None => false,
        }
    }
}

/// What HAProxy is told of the servers of a backend in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) namespace: Arc<str>,
    pub(super) backend: Word,
    pub(super) commands: Vec<Command>,
    /// Whether there is more.
    pub(super) more: bool,
}

impl Lagging {
    /// A backend that waits already keeps its place, also where its pool has come or gone since.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, backend: Word) {
        if self.waits.insert(backend.clone()) {
            self.queue.insert(namespace, 0, backend);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What HAProxy is told next, of what it lacks of each backend. Servers of a namespace of which something else is to
    /// be told first do not go yet. A backend that lacks more than `most` lines is left: a process that is about to be
    /// replaced is told of small changes alone. A part of which there is more is to be inserted again once it was told.
    pub(super) fn next(
        &mut self,
        stay: Stay<'_>,
        most: usize,
        lacks: impl Fn(&Word) -> Lacks,
    ) -> Vec<Part> {
        let (mut parts, mut left) = (Vec::new(), LINES);
        while left > 0
            && let Some((namespace, backend)) = self.queue.pop()
        {
            self.waits.remove(&backend);
            let Lacks { mut coming, mut going } = lacks(&backend);
            let stays = !going.is_empty() && stay.is_for(&namespace);
            if !stays {
                coming.append(&mut going);
            }
            let is_large = coming.iter().map(lines).sum::<usize>() > most;
            let limit = if is_large { 0 } else { left.min(LINES_OF_ONE) };
            let (commands, more) = first(coming, limit);
            left = left.saturating_sub(commands.iter().map(lines).sum());
            if more || stays || !commands.is_empty() {
                parts.push(Part { namespace, backend, commands, more: more || stays });
            }
        }
        // Small changes do not wait for parts of large ones.
        parts.sort_by_key(|part| (part.more, part.commands.len()));
        parts
    }
}

/// The first of these, with about so many lines, and whether there are more.
fn first(mut commands: Vec<Command>, most: usize) -> (Vec<Command>, bool) {
    let mut left = most;
    let fits = |command: &Command| {
        let fits = left > 0;
        left = left.saturating_sub(lines(command));
        fits
    };
    let count = commands.iter().map(fits).take_while(|fits| *fits).count();
    let rest = commands.split_off(count);
    // Servers have no cookies before the key was told after them.
    let adds = commands.iter().any(|it| matches!(it, Command::AddServer { .. }));
    let key = rest.iter().find(|it| matches!(it, Command::KeyCookies { .. }));
    commands.extend(key.filter(|_| adds).cloned());
    (commands, !rest.is_empty())
}

/// How many lines HAProxy is told by a command.
fn lines(command: &Command) -> usize {
    match command {
        Command::AddServer { .. } => 3,
        Command::Check { .. } => 2,
        _ => 1,
    }
}

/// What HAProxy is to be told, apart: what is told at once, and backends with other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// All but servers of backends that run.
    pub(super) structure: Vec<Command>,
    /// Backends with other servers, to be told before what may lead to them.
    pub(super) changed: BTreeSet<Word>,
    /// Backends that are to have none, to be told when nothing leads to them any more.
    pub(super) gone: BTreeSet<Word>,
}

impl Split {
    pub(super) fn of(commands: Vec<Command>, wanted: &Wanted) -> Self {
        let added: BTreeSet<Word> = commands.iter().filter_map(added).cloned().collect();
        let mut split = Self::default();
        for command in commands {
            match of_server(&command).filter(|backend| !added.contains(*backend)) {
                None => split.structure.push(command),
                Some(backend) if wanted.servers.contains_key(backend) => {
                    split.changed.insert(backend.clone());
                }
                Some(backend) => {
                    split.gone.insert(backend.clone());
                }
            }
        }
        split
    }
}

/// What entries of maps lead to from now on.
pub(super) fn led_to(commands: &[Command]) -> BTreeSet<&Word> {
    let values = commands.iter().flat_map(|command| match command {
        Command::AddEntries { entries, .. } | Command::Replace { entries, .. } => {
            entries.iter().map(|(_, value)| value).collect()
        }
        Command::SetEntry { value, .. } => vec![value],
        _ => Vec::new(),
    });
    values.collect()
}

/// The backend that a command adds.
fn added(command: &Command) -> Option<&Word> {
    if let Command::AddBackend { backend, .. } = command { Some(backend) } else { None }
}

/// The backend of the server that a command changes.
pub(super) fn of_server(command: &Command) -> Option<&Word> {
    match command {
        Command::AddServer { backend, .. }
        | Command::KeyCookies { backend, .. }
        | Command::Check { backend, .. }
        | Command::Resume { backend, .. }
        | Command::Place { backend, .. }
        | Command::Weigh { backend, .. }
        | Command::Retire { backend, .. } => Some(backend),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::Secret;
    use super::super::diff::{Observed, Running, diff, diff_servers};
    use super::super::wanted::{Body, Section, Servers};
    use super::*;
    use bowline_core::update::{Member, MemberState};
    use proptest::prelude::*;

    fn word(name: &str) -> Word {
        Word::name(name).unwrap()
    }

    fn at(number: usize) -> std::net::SocketAddr {
        ([10, 0, (number >> 8) as u8, number as u8], 80).into()
    }

    /// A backend that has some servers and is to have others.
    fn backend(
        name: &str,
        running: impl Iterator<Item = usize>,
        wants: impl Iterator<Item = usize>,
        all: (&mut Observed, &mut Wanted),
    ) {
        let (observed, wanted) = all;
        let member = |n| Member { address: at(n), weight: 1, state: MemberState::Ready };
        let members: Vec<_> = wants.map(member).collect();
        let section = Section::Backend(word(name));
        observed.sections.insert(section.clone(), Body::default());
        wanted.sections.insert(section, Body::default());
        let running = running.map(|n| (at(n), Running::of(1)));
        observed.servers.insert(word(name), running.collect());
        wanted.servers.insert(word(name), Servers::new(&members));
    }

    fn lacks(observed: &Observed, wanted: &Wanted, backend: &Word) -> Lacks {
        let Lacks { mut coming, mut going } = Lacks::default();
        let (running, servers) = (&observed.servers[backend], &wanted.servers[backend]);
        diff_servers(backend, &Body::default(), running, servers, &mut coming, &mut going);
        Lacks { coming, going }
    }

    /// Evil's twenty backends swap 900 servers each, shop's one swaps one.
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
        let mut next = |lagging: &mut Lagging| {
            let parts = lagging.next(Stay::None, usize::MAX, |it| lacks(&observed, &wanted, it));
            for part in &parts {
                part.commands.iter().for_each(|it| observed.done(it));
                if part.more {
                    lagging.insert(&part.namespace, part.backend.clone());
                }
            }
            parts
        };
        let lines_of =
            |parts: &[Part]| -> usize { parts.iter().flat_map(|it| &it.commands).map(lines).sum() };
        for _ in 0..5 {
            let parts = next(&mut lagging);
            assert!(parts.iter().all(|it| &*it.namespace == "evil" && it.more));
            assert!((LINES..LINES + 3).contains(&lines_of(&parts)));
        }
        lagging.insert(&"shop".into(), word("shop"));
        let parts = next(&mut lagging);
        let shops: Vec<_> = parts.iter().filter(|it| &*it.namespace == "shop").collect();
        assert_eq!(shops.len(), 1);
        assert!(!shops[0].more);
        assert_eq!(shops[0].commands.len(), 2, "one comes, one goes");
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
    fn servers_come_with_the_key_of_their_cookies_in_each_part() {
        let server = |n| Command::AddServer {
            backend: word("b"),
            address: at(n),
            weight: 1,
            options: "".into(),
        };
        let key = Command::KeyCookies { backend: word("b"), key: Secret("k".into()) };
        let retire = Command::Retire { backend: word("b"), address: at(9) };
        let all = vec![server(1), server(2), key.clone(), retire.clone()];
        assert_eq!(first(all.clone(), 3), (vec![server(1), key.clone()], true));
        assert_eq!(first(all.clone(), 100), (all, false));
        assert_eq!(first(vec![retire.clone()], 1), (vec![retire], false));
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
            address: at(n),
            weight: 1,
            options: "".into(),
        };
        let entry = Command::RemoveEntry { map: "m".to_owned(), key: word("h") };
        let retire = Command::Retire { backend: word("old"), address: at(1) };
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

    proptest! {
        /// Whatever backends lack, and however they change between two parts: HAProxy has all of it in the end.
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
            while !lagging.is_empty() {
                for part in lagging.next(Stay::None, usize::MAX, |it| lacks(&observed, &wanted, it)) {
                    part.commands.iter().for_each(|it| observed.done(it));
                    if part.more {
                        lagging.insert(&part.namespace, part.backend);
                    }
                }
                if let Some((n, wants)) = again.next() && let Some((.., of)) = sizes.get(n) {
                    let name = word(&format!("p{n}"));
                    let member =
                        |n| Member { address: at(n), weight: 1, state: MemberState::Ready };
                    let members: Vec<_> = (200..200 + wants).map(member).collect();
                    wanted.servers.insert(name.clone(), Servers::new(&members));
                    lagging.insert(&namespace(*of), name);
                }
            }
            prop_assert_eq!(diff(&observed, &wanted).commands, vec![]);
        }
    }
}

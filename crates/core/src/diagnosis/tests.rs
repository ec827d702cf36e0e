//! Every row is compared with what is really told, worded and printed.

use super::{Place, Reason, RoleProblem, claims, of_word, page};
use crate::announce::WhyNot;
use crate::binder::ClaimReason;
use crate::in_force;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::outcome::{Outcome, Problem, State};
use crate::plan::Transport;
use crate::programmed::{Pending, Phase, Verdict as Proof};
use crate::replicas::Joint;
use crate::status::{self, Before, Known, Progress, Waiting};
use crate::update::{Extent, ListenerKey, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MARK: &str = "what is wrong";

fn consumer() -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: "shop".into(),
        name: "web".into(),
        uid: "1".into(),
    }
}

/// A consumer of which the leader says this.
fn outcome(state: State, problems: Vec<Problem>) -> Outcome {
    Outcome { consumer: consumer(), state, problems, unmet: None }
}

fn planned(problems: Vec<Problem>) -> Outcome {
    let state = State::Planned {
        load_balancer: "edge".into(),
        addresses: vec![[192, 0, 2, 1].into()],
        draining: Vec::new(),
        before: Vec::new(),
    };
    outcome(state, problems)
}

/// What status and Events say of an outcome and of a refusal by an agent.
fn told(outcome: &Outcome, refusals: Vec<Refusal>) -> BTreeSet<Place> {
    let key = ListenerKey { address: [192, 0, 2, 1].into(), port: 80, transport: Transport::Tcp };
    let joint = Joint { refused: refusals.clone(), ..Joint::default() };
    let (undone, _) = in_force::undone(&joint, &[], &outcome.consumer, [key]);
    let none = |_: &str| -> &'static [Arc<str>] { &[] };
    let of_consumer =
        status::consumer(outcome, &Progress::Applied(undone), Before::default(), none, None);
    let refused = [outcome];
    let of_load_balancer = status::load_balancer(Known {
        name: "edge",
        carrier: None,
        verdict: Some(&Proof { phase: Phase::Running, applied: None }),
        addresses: Vec::new(),
        consumers: [].iter(),
        refused: refused.into_iter(),
        undone: &refusals,
        catching_up: false,
        unreclaimed: None,
        made: None,
        assigned: None,
        closed: None,
        held: None,
    });
    let marked = |message: &str| message.contains(MARK);
    let event = |refusal: &Refusal| refusal.problem.event(&refusal.consumer).is_some();
    let degraded = in_force::degraded(&joint, &outcome.consumer);
    let of_all = in_force::load_balancer_degraded(&joint);
    let found = [
        (Place::Event, status::problems(outcome).next().is_some() || refusals.iter().any(event)),
        (Place::Refused, !of_load_balancer.refused.is_empty()),
        (Place::Programmed, marked(&of_consumer.programmed.message)),
        (Place::Degraded, degraded.is_some_and(|it| marked(&it.message))),
        (Place::LoadBalancerDegraded, of_all.holds && marked(&of_all.message)),
    ];
    found.into_iter().filter_map(|(place, is)| is.then_some(place)).collect()
}

#[test]
fn a_problem_is_told_where_its_row_says_and_nowhere_else() {
    let key = ListenerKey { address: [192, 0, 2, 1].into(), port: 80, transport: Transport::Tcp };
    let places = [
        Place::Event,
        Place::Refused,
        Place::Programmed,
        Place::Degraded,
        Place::LoadBalancerDegraded,
    ];
    for reason in Reason::ALL {
        let problem = Problem::new(reason, MARK);
        let mut found = told(&planned(vec![problem.clone()]), Vec::new());
        for extent in [Extent::Part, Extent::Listener(key)] {
            let refusal = Refusal { consumer: consumer(), problem: problem.clone(), extent };
            found.extend(told(&planned(Vec::new()), vec![refusal]));
        }
        if reason.is_told(Place::Refused) {
            let state = State::Refused { load_balancer: Some("edge".into()), problem };
            found.extend(told(&outcome(state, Vec::new()), Vec::new()));
        }
        let said: BTreeSet<_> = places.into_iter().filter(|place| reason.is_told(*place)).collect();
        assert_eq!(found, said, "{reason}");
    }
}

#[test]
fn what_keeps_a_node_from_announcing_is_told_by_the_condition_about_that() {
    let by_node = [
        WhyNot::NotAdvertised,
        WhyNot::NodeNotSelected,
        WhyNot::NodeExcluded,
        WhyNot::NodeLeaving,
        WhyNot::NotServed,
        WhyNot::NotPresent,
        WhyNot::NodeDoubtful,
        WhyNot::NoPeer,
    ];
    let by_node: BTreeSet<_> = by_node.into_iter().map(WhyNot::reason).collect();
    let said = Reason::ALL.into_iter().filter(|it| it.is_told(Place::Announced));
    let said: BTreeSet<_> = said.filter(|it| *it != Reason::SessionsDown).collect();
    assert_eq!(by_node, said);
}

#[test]
fn what_keeps_a_plan_from_being_in_force_is_told_of_the_load_balancer_and_its_consumers() {
    let pending = [
        Pending::NoPlan,
        Pending::NoAgent,
        Pending::AgentSilent,
        Pending::AgentFailed("".into()),
        Pending::AgentBehind,
    ];
    let all = pending.into_iter().map(Waiting::Agent);
    for waiting in all.chain([Waiting::NoDriver, Waiting::Unlisted(1)]) {
        let problem = RoleProblem::from(&waiting);
        assert_eq!(problem.to_string(), waiting.reason());
        let none = |_: &str| -> &'static [Arc<str>] { &[] };
        let progress = Progress::Waiting(waiting.clone());
        let consumer =
            status::consumer(&planned(Vec::new()), &progress, Before::default(), none, None);
        assert_eq!(*consumer.programmed.reason, *problem.to_string());
        assert!(problem.row().is_told(Place::Programmed), "{problem}");
        let by_load_balancer = !matches!(waiting, Waiting::Unlisted(_));
        assert_eq!(problem.row().is_told(Place::LoadBalancerProgrammed), by_load_balancer);
    }
}

#[test]
fn the_page_on_troubleshooting_has_the_tables() {
    let page = include_str!("../../../../docs/troubleshooting.md");
    let tables = [
        ("places", page::places()),
        ("reasons", page::reasons()),
        ("roles", page::roles()),
        ("claims", page::of_claims()),
    ];
    if std::env::var_os("BOWLINE_RECORD").is_some() {
        let mut new = page.to_owned();
        for (name, table) in &tables {
            let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
            let (before, rest) = new.split_once(&begin).expect("the beginning of the table");
            let (_, after) = rest.split_once(&end).expect("its end");
            new = format!("{before}{begin}{table}{end}{after}");
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/troubleshooting.md");
        return std::fs::write(path, new).expect("write the page");
    }
    for (name, table) in tables {
        let begin = format!("<!-- {name} -->\n");
        let (_, rest) = page.split_once(&begin).expect("the beginning of the table");
        let (found, _) = rest.split_once(&format!("<!-- end of {name} -->")).expect("its end");
        assert_eq!(found, table, "{name}; BOWLINE_RECORD=1 writes it");
    }
}

#[test]
fn the_word_of_a_condition_leads_to_the_same_row() {
    assert_eq!(of_word("NameFailed"), Some(Reason::NameFailed.row()));
    assert_eq!(of_word("NoAgent"), Some(RoleProblem::NoAgent.row()));
    assert_eq!(of_word("Assigned").and_then(|it| it.helps), None);
    assert_eq!(of_word("FromTheFuture"), None);
}

/// A problem that is told as an Event, a refusal or a condition of its own asks for an act.
#[test]
fn every_reason_that_is_told_has_a_remedy_and_no_other_has_one() {
    for reason in Reason::ALL {
        let told = !matches!(reason.row().told, [] | [Place::Programmed, Place::Explain]);
        let told = told && reason != Reason::Unknown;
        assert_eq!(reason.remedy().is_some(), told, "{reason}");
    }
    for problem in RoleProblem::ALL {
        assert!(problem.remedy().is_some(), "{problem}");
    }
}

/// The code of all crates before its tests, by module: `core::status` and the lines.
fn sources() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = BTreeMap::new();
    let crates = std::fs::read_dir(root.join("crates")).expect("the crates");
    let crates = crates.map(|it| it.expect("an entry").path());
    let named = crates.map(|it| (it.file_name().expect("a name").to_owned(), it.join("src")));
    let own = ("bowline".into(), root.join("src"));
    for (name, folder) in named.chain([own]) {
        collect(name.to_str().expect("text"), &folder, &mut all);
    }
    all
}

fn collect(module: &str, folder: &PathBuf, all: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|it| it.to_str()).expect("a name").to_owned();
        if ["tests", "testing", "diagnosis"].contains(&&*stem) {
            continue;
        }
        let module = match &*stem {
            "lib" | "main" | "mod" => module.to_owned(),
            _ => format!("{module}::{stem}"),
        };
        if path.is_dir() {
            collect(&module, &path, all);
        } else {
            if path.extension().is_none_or(|it| it != "rs") {
                continue;
            }
            let code = std::fs::read_to_string(&path).expect("a source");
            let code = code.split("\nmod tests {").next().unwrap_or_default();
            all.insert(module, code.to_owned());
        }
    }
}

/// The function whose definition a line begins.
fn defines(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (before, rest) = line.split_once("fn ")?;
    let words = ["pub", "const", "async", "pub(crate)", "pub(super)"];
    let before =
        before.split_whitespace().all(|it| words.contains(&it) || it.starts_with("pub(in"));
    let name = rest.split(|it: char| !it.is_alphanumeric() && it != '_').next()?;
    (before && !name.is_empty()).then_some(name)
}

/// Whether a line has a reason as an argument or a result, and not in a comparison or a pattern.
fn uses(line: &str, reason: Reason) -> bool {
    let word = format!("Reason::{reason}");
    let foreign = line.contains("ClaimReason::") || line.trim_start().starts_with("//");
    let compares =
        ["== Reason", "!= Reason", "| Reason", "let (", "Extent::Listener(_)", "[Reason"];
    let Some((_, after)) = line.split_once(&word) else { return false };
    !foreign
        && !compares.iter().any(|it| line.contains(it))
        && (after.is_empty() || after.starts_with(','))
}

/// The functions that make problems of each reason.
fn wording(sources: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, code) in sources {
        let mut function = "";
        for line in code.lines() {
            function = defines(line).unwrap_or(function);
            if !line.contains("Reason::") {
                continue;
            }
            for reason in Reason::ALL.into_iter().filter(|it| uses(line, *it)) {
                let all = found.entry(reason.to_string()).or_default();
                all.insert(format!("{module}::{function}"));
            }
        }
    }
    found
}

/// Whether the words of a row name a function, itself or by its module.
fn names(words: &[&str], function: &str) -> bool {
    words.iter().any(|it| {
        function.strip_prefix(it).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

#[test]
fn every_row_names_the_functions_that_word_it_and_these_exist() {
    let sources = sources();
    let wording = wording(&sources);
    let functions: BTreeSet<String> = sources
        .iter()
        .flat_map(|(module, code)| {
            let all = code.lines().filter_map(defines);
            all.map(|it| format!("{module}::{it}")).collect::<Vec<_>>()
        })
        .collect();
    let mut wrong = Vec::new();
    for (reason, found) in &wording {
        let row = of_word(reason).expect("a reason");
        let unnamed = found.iter().filter(|it| !names(row.words, it));
        wrong.extend(unnamed.map(|it| format!("{reason} is worded by {it}, which its row lacks")));
    }
    let rows = Reason::ALL.into_iter().map(|it| (it.to_string(), it.row()));
    let roles = RoleProblem::ALL.into_iter().map(|it| (it.to_string(), it.row()));
    let claims = ClaimReason::ALL.into_iter().map(|it| (it.to_string(), claims::row(it)));
    for (reason, row) in rows.chain(roles).chain(claims) {
        for words in row.words {
            if !functions.iter().any(|it| names(&[words], it)) {
                wrong.push(format!("the row of {reason} names {words}, which does not exist"));
            }
        }
        let made = wording.get(&reason);
        for words in row.words.iter().filter(|_| made.is_some()) {
            if !made.is_some_and(|all| all.iter().any(|it| names(&[words], it))) {
                wrong.push(format!("{words} does not word {reason}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

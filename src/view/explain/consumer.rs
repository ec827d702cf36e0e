//! Where a Service or Ingress is, or why it is nowhere: joins what the planner decided, what is recorded and what agents
//! report. Pure.

use super::{ConsumerView, ProblemView, RecordedView, StateView, parts, problems, roles};
use crate::view::announcing::AnnouncingView;
use crate::view::chain::ChainView;
use crate::view::facts::Facts;
use crate::view::remedies::Names;
use crate::view::status::{Applied, AppliedView, ConsumerName};
use crate::view::{free_ports, why};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::outcome::{Problem, Reason, State};
use bowline_core::point::Point;

pub(super) fn consumer(facts: &Facts, kind: ConsumerKind, key: &ObjectKey) -> ConsumerView {
    let mut view = ConsumerView {
        object: ConsumerName {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        },
        state: StateView::NotOurs,
        load_balancer: None,
        reason: None,
        waits: false,
        why: String::new(),
        remedy: None,
        addresses: Vec::new(),
        address: None,
        listeners: Vec::new(),
        hosts: Vec::new(),
        pools: Vec::new(),
        fragments: Vec::new(),
        problems: Vec::new(),
        recorded: None,
        applied: None,
        announcing: None,
        notes: facts.notes.clone(),
    };
    let words = why::words(facts, kind, key);
    (view.why, view.remedy) = (words.why, words.remedy);
    let Some(outcome) = facts.planner.outcome(kind, key) else { return view };
    if kind == ConsumerKind::Service {
        view.address = ChainView::of(facts, key);
    }
    let told = view.address.as_ref().and_then(|chain| chain.verdict.clone());
    let told = told.filter(|told| told.unmet);
    // The text of the pools is used, because its remedy is shown with it.
    let of_pools = |problem: &Problem| told.as_ref().filter(|told| told.is(problem));
    let problems = facts.problems(outcome);
    view.problems = problems
        .map(|it| of_pools(it).map_or_else(|| ProblemView::from(it), ProblemView::from))
        .collect();
    if let Some(told) = &told {
        view.remedy = told.remedy.map(str::to_owned);
    }
    match &outcome.state {
        State::Refused { load_balancer: None, problem }
            if view.address.as_ref().is_some_and(|chain| chain.alone) =>
        {
            let held = view.address.iter().flat_map(|chain| &chain.held);
            view.addresses = held.map(|it| Point::At(it.address)).collect();
            view.waits = view.addresses.is_empty();
            view.state = if view.waits { StateView::Refused } else { StateView::Alone };
            let leader = view.address.as_ref().and_then(ChainView::not_programmed);
            let wrong = told.as_ref().map(ProblemView::from).or(leader);
            let wrong = wrong.or_else(|| view.waits.then(|| problem.into()));
            view.reason = wrong.as_ref().filter(|_| view.waits).map(|it| it.reason.clone());
            if let Some(wrong) = wrong {
                view.problems.insert(0, wrong);
            }
        }
        State::Refused { load_balancer, problem } => {
            view.state = StateView::Refused;
            view.load_balancer = load_balancer.as_deref().map(str::to_owned);
            view.reason = Some(problem.reason.to_string());
            let told = of_pools(problem);
            view.waits = told.is_some();
            view.problems.insert(0, told.map_or_else(|| problem.into(), ProblemView::from));
            if told.is_none() {
                view.remedy = problem.reason.remedy().map(|it| it.what.to_owned());
            }
            if let Some(undriven) =
                load_balancer.as_ref().and_then(|it| roles::no_driver(facts, it))
            {
                // No address helps where nothing could serve it.
                if is_about_addresses(problem.reason) {
                    view.remedy.clone_from(&undriven.remedy);
                    view.problems.iter_mut().for_each(|it| it.remedy = None);
                }
                view.problems.insert(0, undriven);
            }
        }
        State::Planned { load_balancer, addresses, .. } => {
            view.state = StateView::Planned;
            view.load_balancer = Some(load_balancer.to_string());
            view.addresses = Point::all(addresses, &facts.hostnames(load_balancer));
            let parts = facts.planner.parts(kind, key);
            view.listeners = parts::listeners(facts, kind, load_balancer, parts);
            if problems::is_refused_by_all(facts, load_balancer, &outcome.consumer) {
                view.listeners.iter_mut().for_each(|it| it.closed = true);
            }
            view.hosts = parts::hosts(facts, load_balancer, parts);
            view.pools = parts::pools(facts, parts);
            view.fragments = parts.iter().map(|part| facts.told(load_balancer, part)).collect();
            view.recorded = Some(parts::recorded(facts, load_balancer, parts));
            let mut applied = AppliedView::of(facts, load_balancer);
            if applied.state == Applied::Yes && view.listeners.iter().any(|it| it.closed) {
                applied.state = Applied::NotOpen;
            }
            view.problems.extend(problems::undone(facts, load_balancer, &outcome.consumer));
            let empty = problems::empty_pools(facts, parts, &view.pools);
            let empty: Vec<_> = empty.filter(|it| !view.problems.contains(it)).collect();
            view.problems.extend(empty);
            view.problems.extend(applied.problem(load_balancer));
            if view.recorded != Some(RecordedView::Yes) {
                view.problems.extend(roles::no_leader(facts));
            }
            view.applied = Some(applied);
        }
    }
    // The address of a load balancer is announced for all that it carries.
    view.announcing = AnnouncingView::of_points(facts, &view.addresses);
    let alone = view.state == StateView::Alone;
    view.problems
        .extend(view.announcing.iter().flat_map(|announcing| announcing.problems(facts, alone)));
    if kind == ConsumerKind::Service {
        view.name_free_ports(facts, key);
    }
    let names = Names::of_consumer(facts, kind, key, view.load_balancer.as_deref());
    view.problems = view.problems.into_iter().map(|it| it.with_names(&names)).collect();
    view.remedy = view.remedy.map(|it| names.fill(&it));
    view
}

/// Whether a refusal is for want of an address.
fn is_about_addresses(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NoAddress | Reason::AddressNotAvailable | Reason::NotInPool | Reason::NoPool
    )
}

impl ConsumerView {
    /// Says in the remedy for ports that others have which ones are free.
    fn name_free_ports(&mut self, facts: &Facts, key: &ObjectKey) {
        let Some(lb) = &self.load_balancer else { return };
        let taken = self.problems.iter_mut().filter(|it| free_ports::concerns(&it.reason));
        let taken: Vec<_> = taken.collect();
        if taken.is_empty() {
            return;
        }
        let Some(hint) = free_ports::hint(facts, lb, key) else { return };
        let of_all = self.reason.as_deref().is_some_and(free_ports::concerns);
        let remedies = taken.into_iter().filter_map(|it| it.remedy.as_mut());
        for remedy in remedies.chain(self.remedy.as_mut().filter(|_| of_all)) {
            *remedy = format!("{remedy}: {hint}");
        }
    }
}

//! What agents, endpoints and withheld certificates keep from a consumer. Pure.

use super::{PoolView, ProblemView};
use crate::view::facts::{Agent, Facts};
use crate::view::members::MemberView;
use bowline_core::diagnosis::Place;
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::plan::{Backends, Fragment, Pool};
use bowline_core::pool_health::no_endpoints;
use bowline_core::status::Waiting;
use bowline_core::update::Extent;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the agent refused for a consumer, or may have refused.
pub(super) fn undone(
    facts: &Facts,
    load_balancer: &str,
    consumer: &ConsumerRef,
) -> Vec<ProblemView> {
    let withheld = withheld(facts, load_balancer, consumer);
    let Some(agents) = facts.agents.get(load_balancer) else { return withheld };
    let shared = consumer.kind == ConsumerKind::Ingress;
    let refused = agents.joint.refused.iter().filter(|it| {
        it.consumer == *consumer || shared && it.consumer.kind == ConsumerKind::LoadBalancer
    });
    // If the leader withholds a certificate, the agent knows only that it is missing.
    let refused =
        refused.filter(|it| withheld.is_empty() || it.problem.reason != Reason::SecretNotFound);
    let refused = refused.filter(|it| it.problem.reason.is_told(Place::Explain));
    let refused: Vec<_> = refused.map(|it| ProblemView::from(&it.problem)).collect();
    let mut problems = [withheld, refused].concat();
    let unlisted = agents.joint.unlisted.may_concern(consumer);
    if problems.is_empty() && unlisted > 0 {
        let why = Waiting::Unlisted(unlisted);
        problems.push(ProblemView::of_role((&why).into(), why.message(load_balancer, None)));
    }
    problems
}

/// The pools that have no ready member now. An agent waits before it reports them, because the Pods of a new Service need
/// time to start; a person who asks meanwhile is told at once. A Service of which no EndpointSlice is known is left out:
/// perhaps none could be read.
pub(super) fn empty_pools(
    facts: &Facts,
    parts: &[Arc<Fragment>],
    views: &[PoolView],
) -> impl Iterator<Item = ProblemView> {
    let ready = |pool: &Pool| {
        let view = views.iter().find(|view| view.name == pool.name);
        view.is_some_and(|view| view.members.iter().any(MemberView::is_ready))
    };
    let known = |pool: &Pool| {
        facts.slices.iter().any(|slice| {
            slice.key.namespace == pool.service.namespace
                && slice.service.as_deref() == Some(&*pool.service.name)
        })
    };
    let pools = parts.iter().flat_map(|part| &part.pools);
    // Nodes are perhaps not listed, either.
    let of_pods = pools.filter(|pool| pool.backends == Backends::Pods);
    let empty = of_pods.filter(move |pool| !ready(pool) && known(pool));
    let problems: BTreeSet<Problem> = empty.map(|pool| no_endpoints(&pool.service)).collect();
    problems.into_iter().map(|it| ProblemView::from(&it))
}

/// Whether no agent serves anything of a Service. Its listeners are then not open, whatever the plan says.
pub(super) fn is_refused_by_all(
    facts: &Facts,
    load_balancer: &str,
    consumer: &ConsumerRef,
) -> bool {
    let Some(agents) = facts.agents.get(load_balancer) else { return false };
    let refuses = |agent: &Agent| {
        let refused = &agent.said.refused;
        refused.iter().any(|it| it.consumer == *consumer && it.extent == Extent::All)
    };
    consumer.kind == ConsumerKind::Service
        && !agents.all.is_empty()
        && agents.all.iter().all(refuses)
}

/// Certificates that the leader withholds: it alone knows which have room.
fn withheld(facts: &Facts, load_balancer: &str, consumer: &ConsumerRef) -> Vec<ProblemView> {
    let reason = Reason::TooManyCertificates.to_string();
    let status = facts.load_balancers.get(load_balancer).and_then(|it| it.status.as_ref());
    let told = status.into_iter().flat_map(|it| &it.refused).filter(|it| it.reason == reason);
    let ingress = consumer.kind == ConsumerKind::Ingress;
    let told = told
        .filter(|it| ingress && *it.namespace == *consumer.namespace && *it.name == *consumer.name);
    let remedy = Reason::TooManyCertificates.remedy().map(|it| it.what);
    told.map(|it| ProblemView {
        reason: it.reason.clone(),
        message: it.message.clone(),
        remedy: remedy.map(str::to_owned),
    })
    .collect()
}

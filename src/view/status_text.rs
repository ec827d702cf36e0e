//! The text of `bowline status`, and the sentences about agents that `explain` shares. Pure.

use super::facts::Holder;
use super::status::{AgentView, Applied, AppliedView, LoadBalancerView, RefusedView, Status};
use super::words::{ago, bullet, columns, count, paragraph};
use bowline_core::key::ConsumerKind;
use bowline_core::objects::Carrier;
use bowline_core::outcome::quote;
use std::collections::{BTreeMap, BTreeSet};

/// The whole cluster.
pub(super) fn status(status: &Status) -> String {
    let mut out = String::new();
    paragraph(&mut out, &format!("Controller: {}", controller(status.controller.as_ref())));
    if let Some(versions) = versions(status) {
        paragraph(&mut out, &format!("Versions: {versions}"));
    }
    if let Some(announcing) = &status.announcing {
        paragraph(&mut out, &format!("Announcing: {}", announcing.text()));
    }
    out.push('\n');
    if status.load_balancers.is_empty() {
        match &status.namespace {
            Some(namespace) => {
                let text = format!("No load balancer serves namespace {}.", quote(namespace));
                paragraph(&mut out, &text);
            }
            None => out.push_str("No load balancers.\n"),
        }
    } else {
        out.push_str(&columns(&table(&status.load_balancers), ""));
    }
    let refused: Vec<_> = status
        .load_balancers
        .iter()
        .flat_map(|lb| lb.refused.iter().map(move |one| (Some(&lb.name), one)))
        .chain(status.nowhere.iter().map(|one| (None, one)))
        .collect();
    if !refused.is_empty() || status.load_balancers.iter().any(|lb| lb.unlisted > 0) {
        out.push_str("\nRefused:\n");
        for (load_balancer, one) in refused {
            bullet(&mut out, "  - ", &refusal(one, load_balancer));
        }
        for lb in status.load_balancers.iter().filter(|lb| lb.unlisted > 0) {
            bullet(&mut out, "  - ", &unlisted(lb));
        }
    }
    for lb in &status.load_balancers {
        let troubles = [lb.applied.error.as_ref(), lb.message.as_ref()];
        for trouble in troubles.into_iter().flatten() {
            paragraph(&mut out, &format!("{}: {trouble}", lb.name));
        }
    }
    notes(&mut out, &status.notes);
    out
}

fn table(all: &[LoadBalancerView]) -> Vec<Vec<String>> {
    let head = ["NAME", "SOURCE", "PHASE", "ADDRESS", "SVC", "ING", "REFUSED", "PLAN"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for lb in all {
        let more = match lb.addresses.len() {
            0 | 1 => String::new(),
            number => format!(" +{}", number - 1),
        };
        let first = lb.addresses.first().map_or_else(|| "-".to_owned(), ToString::to_string);
        rows.push(vec![
            lb.name.clone(),
            lb.source.clone(),
            lb.phase_text().unwrap_or_else(|| "-".to_owned()),
            format!("{first}{more}"),
            lb.count(ConsumerKind::Service).to_string(),
            lb.count(ConsumerKind::Ingress).to_string(),
            (lb.refused.len() + lb.unlisted).to_string(),
            word(&lb.applied).to_owned(),
        ]);
    }
    rows
}

fn word(applied: &AppliedView) -> &'static str {
    match applied.state {
        Applied::Yes => "applied",
        Applied::Failed => "failed",
        Applied::NoDriver => "no driver",
        Applied::NotOpen => "not open",
        Applied::Older => "applying",
        Applied::NotRecorded => "planning",
        Applied::Nothing => "not applied",
        Applied::NoAgent => "no agent",
        Applied::Silent => "agent silent",
    }
}

fn controller(holder: Option<&Holder>) -> String {
    match holder {
        None => "none leads: none runs, or they run with --leader-elect=false".to_owned(),
        Some(holder) => {
            let doubt = if holder.overdue {
                "; that is longer than a Lease lasts: unless the clock is wrong, none leads"
            } else {
                ""
            };
            format!("{} leads, {}{doubt}", holder.identity, heard(holder))
        }
    }
}

/// The version of the leader, and how many agents are of which version. None: no process says its version.
fn versions(status: &Status) -> Option<String> {
    const UNKNOWN: &str = "an unknown version";
    let leader = status.controller.as_ref().map(|it| it.version.as_deref());
    let agents = status.load_balancers.iter().flat_map(|lb| &lb.applied.agents);
    let mut counts: BTreeMap<Option<&str>, BTreeSet<&str>> = BTreeMap::new();
    for AgentView { holder, .. } in agents {
        counts.entry(holder.version.as_deref()).or_default().insert(&holder.identity);
    }
    if leader.flatten().is_none() && counts.keys().all(Option::is_none) {
        return None;
    }
    let leader = leader.map(|it| format!("controller {}", it.unwrap_or(UNKNOWN)));
    let agents = counts.iter().map(|(version, agents)| {
        format!("{} of {}", count(agents.len(), "agent"), version.unwrap_or(UNKNOWN))
    });
    Some(leader.into_iter().chain(agents).collect::<Vec<_>>().join(", "))
}

/// When an agent was last heard of.
fn heard(holder: &Holder) -> String {
    format!("last seen {}", ago(holder.silent_seconds))
}

/// The line for refusals that are not listed.
pub(super) fn unlisted(lb: &LoadBalancerView) -> String {
    format!("{} more on {}, which its agent has no room to name", lb.unlisted, lb.name)
}

/// One refusal in one sentence.
pub(super) fn refusal(one: &RefusedView, load_balancer: Option<&String>) -> String {
    let on = load_balancer.map(|name| format!(" on {name}")).unwrap_or_default();
    format!("{}{on}: {}: {}", one.consumer, one.problem.reason, one.problem.message)
}

/// A sentence that says whether the plan is in force.
pub(super) fn applied(load_balancer: &str, applied: &AppliedView) -> String {
    let agent = || match &applied.agents[..] {
        [] => "its agent".to_owned(),
        [one] => format!("agent {}, {}{}", one.holder.identity, heard(&one.holder), kept(one)),
        all => {
            let names: Vec<_> = all.iter().map(replica).collect();
            format!("{} agents: {}", all.len(), names.join("; "))
        }
    };
    match applied.state {
        Applied::Yes => format!("yes, by {}", agent()),
        Applied::Older => format!("not yet: an older plan is in force at {}", agent()),
        Applied::NotRecorded => {
            "not yet: the leader has not recorded the present plan; is a controller running?"
                .to_owned()
        }
        Applied::Nothing => format!("no: nothing has been applied by {}", agent()),
        Applied::NoAgent => format!(
            "no: its agent does not report; start it with `{}`",
            Carrier::command(applied.carrier, load_balancer)
        ),
        Applied::Silent => format!("unknown: the leader hears no more of {}", agent()),
        Applied::Failed => format!("not all of it, by {}", agent()),
        Applied::NoDriver => "no: this build has no driver for its source".to_owned(),
        Applied::NotOpen => format!("not all of it: a listener is not open at {}", agent()),
    }
}

/// One of several agents.
fn replica(agent: &AgentView) -> String {
    let state = match agent.state {
        Applied::Yes => "applied",
        Applied::Failed => "failed",
        Applied::Nothing => "nothing applied",
        _ => "an older plan",
    };
    format!("{} ({state}, {}{})", agent.holder.identity, heard(&agent.holder), kept(agent))
}

/// A phrase that says that an agent serves its kept state.
fn kept(agent: &AgentView) -> String {
    let kept = |at: &String| format!(", and serves what it knew at {at}");
    agent.kept_since.as_ref().map(kept).unwrap_or_default()
}

/// What could not be read.
pub(super) fn notes(out: &mut String, notes: &[String]) {
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        bullet(out, "Note: ", note);
    }
}

/// `2 Services, 1 Ingress`.
pub(super) fn consumers(lb: &LoadBalancerView) -> String {
    let services = lb.count(ConsumerKind::Service);
    let ingresses = match lb.count(ConsumerKind::Ingress) {
        1 => "1 Ingress".to_owned(),
        number => format!("{number} Ingresses"),
    };
    format!("{}, {ingresses}", count(services, "Service"))
}

//! The text of `bowline explain`. Pure.

use super::addresses::{AddressView, ConditionView};
use super::addresses_text::{left, told, who};
use super::chain::{AskView, ChainView, What};
use super::explain::{ConsumerView, ListenerView, PoolView, ProblemView, RecordedView, StateView};
use super::now;
use super::status::{Applied, AppliedView, ConsumerName, LoadBalancerView};
use super::status_text::{applied, consumers, notes, refusal, unlisted};
use super::words::{bullet, columns, count, listener_at, paragraph, row};
use bowline_api::names;
use bowline_core::outcome::quote;

/// A Service or Ingress.
pub(super) fn consumer(view: &ConsumerView) -> String {
    let mut out = String::new();
    let whole = view.object.to_string();
    let load_balancer = view.load_balancer.as_deref();
    let headline = match (view.state, load_balancer) {
        (StateView::NotOurs, _) => format!("{whole} is not Bowline's"),
        (StateView::Refused, Some(name)) if view.waits => {
            format!("{whole} waits for an address on load balancer {name}")
        }
        (StateView::Refused, None) if view.waits => format!("{whole} waits for an address"),
        (StateView::Refused, Some(name)) => format!("{whole} was refused by load balancer {name}"),
        (StateView::Refused, None) => format!("{whole} is on no load balancer"),
        (StateView::Alone, _) => format!("{whole} has an address, and no load balancer"),
        (StateView::Planned, name) => {
            format!("{whole} is on load balancer {}", name.unwrap_or_default())
        }
    };
    paragraph(&mut out, &headline);
    out.push('\n');
    row(&mut out, "Why", &view.why);
    if let Some(remedy) = &view.remedy {
        row(&mut out, "What helps", remedy);
    }
    if let Some(chain) = &view.address {
        address(&mut out, chain, &view.object);
    }
    if let Some(announcing) = &view.announcing {
        announcing.rows(&mut out);
    }
    if view.state == StateView::Planned {
        planned(&mut out, view);
    }
    if view.state != StateView::NotOurs {
        listed_problems(&mut out, &view.problems, view.remedy.as_ref());
    }
    notes(&mut out, &view.notes);
    out
}

/// From the request to the holder.
fn address(out: &mut String, chain: &ChainView, whose: &ConsumerName) {
    let asks: Vec<_> = chain.asks.iter().map(ask).collect();
    let asks = if asks.is_empty() { "any address".to_owned() } else { asks.join("; ") };
    row(out, "Asks for", &asks);
    for (index, one) in chain.passed.iter().enumerate() {
        let label = if index == 0 { "Passed over" } else { "" };
        row(out, label, &format!("pool {}: {}", one.pool, one.why));
    }
    for (index, one) in chain.held.iter().enumerate() {
        row(out, if index == 0 { "Has" } else { "" }, &held(one, whose));
    }
    if chain.held.is_empty() {
        row(out, "Has", "none of a pool: no Address object names it");
    }
    if let Some(condition) = chain.condition(names::CONDITION_ADDRESS_FROM_DNS) {
        row(out, "From DNS", &format!("{}, {}", condition.status, told(condition)));
    }
    let programmed = chain.condition(names::CONDITION_SERVICE_PROGRAMMED);
    // On a load balancer that has its address, the problems and the agent's report say the same.
    let speaks = chain.alone || chain.held.is_empty();
    let known = |it: &ConditionView| {
        chain.verdict.as_ref().is_some_and(|told| it.message.starts_with(&told.message))
    };
    let programmed = programmed.filter(|it| speaks && it.status != "True" && !known(it));
    if let Some(condition) = programmed {
        row(out, "Leader says", &told(condition));
    }
}

fn ask(ask: &AskView) -> String {
    let value = quote(&ask.value);
    let what = match ask.what {
        What::Address => format!("address {value}"),
        What::Name => format!("what {value} resolves to"),
        What::Pool => format!("pool {value}"),
        What::Sharing => format!("sharing under {value}"),
    };
    format!("{what} ({})", ask.key)
}

fn held(one: &AddressView, whose: &ConsumerName) -> String {
    let pool = one.pool.as_deref().map(|pool| format!(" of pool {pool}")).unwrap_or_default();
    let until = one.left.map(|seconds| format!(", ends {}", left(seconds))).unwrap_or_default();
    let (own, others): (Vec<_>, Vec<_>) =
        one.holders.iter().partition(|it| who(it) == whose.to_string());
    let on = own.iter().find_map(|it| it.load_balancer.as_deref());
    let on = on.map(|name| format!(", on load balancer {name}")).unwrap_or_default();
    let others: Vec<_> = others.into_iter().map(who).collect();
    let shared = match others.is_empty() {
        true => String::new(),
        false => format!(", shared with {}", others.join(", ")),
    };
    format!("{}{pool}: {:?}{until}{on}{shared}", one.address, one.state)
}

fn planned(out: &mut String, view: &ConsumerView) {
    if let Some(recorded) = view.recorded {
        let text = match recorded {
            RecordedView::Yes => "yes",
            RecordedView::Differs => "not yet: the recorded Plan has an older version of it",
            RecordedView::No => "not yet: is a controller running?",
        };
        row(out, "Recorded", text);
    }
    if let (Some(name), Some(view)) = (&view.load_balancer, &view.applied) {
        row(out, "Applied", &applied(name, view));
        agents_now(out, view);
        if let Some(error) = &view.error {
            row(out, "Agent says", error);
        }
    }
    let state = view.applied.as_ref().map(|it| it.state);
    let in_force = matches!(state, Some(Applied::Yes | Applied::NotOpen));
    listeners(out, &view.listeners, in_force);
    if !view.hosts.is_empty() {
        out.push_str("\n  Hosts\n");
        for host in &view.hosts {
            let tls = host.tls.as_deref().map(|tls| format!(" (TLS: {tls})")).unwrap_or_default();
            bullet(out, "    ", &format!("{}{tls}", host.host));
            let rules =
                host.rules.iter().map(|rule| vec![rule.matches.clone(), format!("→ {}", rule.to)]);
            out.push_str(&columns(&rules.collect::<Vec<_>>(), "      "));
        }
    }
    for pool in &view.pools {
        out.push('\n');
        out.push_str(&pool_text(pool));
    }
}

/// What the agents answer just now.
fn agents_now(out: &mut String, applied: &AppliedView) {
    for (index, line) in applied.agents.iter().filter_map(now::line).enumerate() {
        row(out, if index == 0 { "Agent now" } else { "" }, &line);
    }
}

/// `in_force`: what is planned is what listens. A new Service, or one whose agent is gone or behind, does not listen yet.
fn listeners(out: &mut String, all: &[ListenerView], in_force: bool) {
    let (closed, open): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.closed);
    let label = |text, index| if index == 0 { text } else { "" };
    for (index, listener) in closed.iter().enumerate() {
        let at = listener_at(&listener.listener, &listener.hostnames);
        row(out, label("Not open", index), &at);
    }
    for (index, listener) in open.into_iter().enumerate() {
        let label = label(if in_force { "Listens at" } else { "Planned at" }, index);
        let to = listener.to.as_deref().map(|pool| format!(" → {pool}")).unwrap_or_default();
        row(out, label, &format!("{}{to}", listener_at(&listener.listener, &listener.hostnames)));
    }
}

fn pool_text(pool: &PoolView) -> String {
    let mut out = String::new();
    let members = match pool.members.len() {
        0 => "no members".to_owned(),
        number => count(number, "member"),
    };
    bullet(&mut out, "  Pool ", &format!("{}: {members}, {}", pool.title, pool.treatment));
    let rows = pool.members.iter().map(|member| {
        let target = member.target.clone().unwrap_or_default();
        vec![member.address.to_string(), member.state.to_owned(), target]
    });
    out.push_str(&columns(&rows.collect::<Vec<_>>(), "    "));
    out
}

/// The problems, with what helps unless the headline says so already.
pub(super) fn listed_problems(out: &mut String, problems: &[ProblemView], told: Option<&String>) {
    out.push('\n');
    if problems.is_empty() {
        row(out, "Problems", "none");
        return;
    }
    out.push_str("  Problems\n");
    for problem in problems {
        bullet(out, "    - ", &format!("{}: {}", problem.reason, problem.message));
        if let Some(remedy) = problem.remedy.as_ref().filter(|it| told != Some(*it)) {
            bullet(out, "      What helps: ", remedy);
        }
    }
}

/// A load balancer.
pub(super) fn load_balancer(view: &LoadBalancerView) -> String {
    let mut out = String::new();
    let phase = view.phase_text();
    let phase = phase.as_deref().unwrap_or("not looked at by a controller yet");
    paragraph(&mut out, &format!("LoadBalancer {} ({}): {phase}", view.name, view.source));
    out.push('\n');
    if let Some(message) = &view.message {
        row(&mut out, "Message", message);
    }
    let addresses: Vec<String> = view.addresses.iter().map(ToString::to_string).collect();
    let addresses = if addresses.is_empty() { "none yet".to_owned() } else { addresses.join(", ") };
    row(&mut out, "Addresses", &addresses);
    if let Some(announcing) = &view.announcing {
        announcing.rows(&mut out);
        for problem in &view.unannounced {
            row(&mut out, "Problem", &format!("{}: {}", problem.reason, problem.message));
            if let Some(remedy) = &problem.remedy {
                row(&mut out, "What helps", remedy);
            }
        }
    }
    if let Some(told) = &view.waits {
        row(&mut out, "Waits", &format!("{}: {}", told.reason, told.message));
        row(&mut out, "What helps", told.remedy.unwrap_or("see what the leader says"));
    }
    let ports =
        format!("HTTP {}, HTTPS {} (while it has an Ingress)", view.http_port, view.https_port);
    row(&mut out, "Ports", &ports);
    row(&mut out, "Open to", &view.open_to);
    row(&mut out, "Carries", &consumers(view));
    row(&mut out, "Applied", &applied(&view.name, &view.applied));
    agents_now(&mut out, &view.applied);
    if let Some(error) = &view.applied.error {
        row(&mut out, "Agent says", error);
    }
    if let Some(remedy) = view.applied.problem(&view.name).and_then(|it| it.remedy) {
        row(&mut out, "What helps", &remedy);
    }
    if !view.listeners.is_empty() {
        out.push_str("\n  Listeners\n");
        let rows = view.listeners.iter().map(|listener| {
            let to = listener.to.as_deref().unwrap_or("the rules of its Ingresses");
            let to = if listener.closed { "(not open)" } else { to };
            vec![listener_at(&listener.listener, &listener.hostnames), format!("→ {to}")]
        });
        out.push_str(&columns(&rows.collect::<Vec<_>>(), "    "));
    }
    if !view.consumers.is_empty() {
        out.push_str("\n  Consumers\n");
        for one in &view.consumers {
            bullet(&mut out, "    ", &one.to_string());
        }
    }
    if !view.refused.is_empty() || view.unlisted > 0 {
        out.push_str("\n  Refused\n");
        for one in &view.refused {
            bullet(&mut out, "    - ", &refusal(one, None));
        }
    }
    if view.unlisted > 0 {
        bullet(&mut out, "    - ", &unlisted(view));
    }
    notes(&mut out, &view.notes);
    out
}

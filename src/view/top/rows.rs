//! The rows of a frame, from the facts about the cluster and the traffic that its agents count. Pure.

use super::Row;
use super::traffic::{Announced, Flow, ListenerFlow, PoolFlow, Traffic};
use crate::view::explain::all_listeners;
use crate::view::facts::Facts;
use crate::view::members::members;
use crate::view::status::{ConsumerName, LoadBalancerView, Status};
use crate::view::words::{listener_at, pool_name};
use bowline_core::key::ConsumerKind;
use bowline_core::objects::Carrier;
use bowline_core::plan::{Fragment, Transport};
use bowline_core::update::ListenerKey;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) const BALANCER: [&str; 9] =
    ["NAME", "PHASE", "DRIVER", "ADDRESS", "SVC", "ING", "AGENTS", "REQ/S", "CONN/S"];
pub(super) const LISTENER: [&str; 6] = ["LISTENS AT", "ON", "TO", "STATE", "CONN/S", "OPEN"];
pub(super) const POOL: [&str; 6] = ["POOL", "OF", "ON", "REQ/S", "5XX/S", "MEMBERS"];

/// What is not known.
const UNKNOWN: &str = "–";

/// A load balancer. Rates are per second; none where its agents cannot be asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BalancerRow {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    driver: String,
    addresses: Vec<String>,
    services: usize,
    ingresses: usize,
    /// How many of its agents live, and how many have not left.
    live_agents: usize,
    agents: usize,
    /// Whether some agents could not be asked, so that rates are of the others.
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<f64>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListenerRow {
    load_balancer: String,
    at: String,
    /// The pool; none where the rules of Ingresses decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// Whether no agent could open it.
    closed: bool,
    /// Connections that begin per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<f64>,
    /// Connections that are open.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<f64>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolRow {
    name: String,
    consumer: ConsumerName,
    load_balancer: String,
    /// Requests per second, or connections where the traffic is not HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<f64>,
    ready: usize,
    draining: usize,
    /// Left out for their failures.
    ejected: usize,
    /// Left out by health checks.
    down: usize,
}

/// The agents of all load balancers that have not left.
pub(crate) fn announced(facts: &Facts) -> Vec<Announced> {
    let agents =
        facts.agents.iter().flat_map(|(lb, agents)| agents.all.iter().map(move |it| (lb, it)));
    let announced = agents.filter_map(|(lb, agent)| {
        Some(Announced {
            load_balancer: lb.clone(),
            agent: agent.holder.as_ref()?.identity.clone(),
            admin: agent.said.admin,
        })
    });
    announced.collect()
}

pub(super) fn balancer(lb: &LoadBalancerView, traffic: &Traffic) -> BalancerRow {
    let flow = traffic.of(&lb.name);
    let live = lb.applied.agents.iter().filter(|agent| !agent.holder.overdue);
    BalancerRow {
        name: lb.name.clone(),
        phase: lb.phase.clone(),
        driver: driver(lb),
        addresses: lb.addresses.iter().map(ToString::to_string).collect(),
        services: lb.count(ConsumerKind::Service),
        ingresses: lb.count(ConsumerKind::Ingress),
        live_agents: live.count(),
        agents: lb.applied.agents.len(),
        partial: flow.is_some_and(|flow| flow.asked.0 < flow.asked.1),
        requests: flow.and_then(|flow| flow.requests),
        connections: flow.and_then(connections),
    }
}

fn driver(lb: &LoadBalancerView) -> String {
    match lb.applied.carrier {
        Some(Carrier::Builtin) => "builtin".to_owned(),
        Some(Carrier::Haproxy) => "haproxy".to_owned(),
        Some(Carrier::Nginx) => "nginx".to_owned(),
        Some(Carrier::Template) => "template".to_owned(),
        None => lb.source.clone(),
    }
}

fn connections(flow: &Flow) -> Option<f64> {
    flow.listeners.values().map(|it| it.connections).sum()
}

/// The listeners of the shown load balancers: all, or those that a namespace uses.
pub(super) fn listeners(
    facts: &Facts,
    status: &Status,
    traffic: &Traffic,
    namespace: Option<&str>,
) -> Vec<ListenerRow> {
    let mut all = Vec::new();
    for lb in &status.load_balancers {
        let has_ingress = lb.count(ConsumerKind::Ingress) > 0;
        let shown = |part: &Fragment| match part.consumer.kind {
            ConsumerKind::LoadBalancer => namespace.is_none() || has_ingress,
            _ => is_of(part, namespace),
        };
        let parts = fragments(facts, &lb.name, shown);
        for view in all_listeners(facts, &lb.name, &parts) {
            let flow = traffic
                .of(&lb.name)
                .and_then(|flow| listener_flow(flow, ListenerKey::of(&view.listener)));
            all.push(ListenerRow {
                load_balancer: lb.name.clone(),
                at: listener_at(&view.listener, &view.hostnames),
                pool: view.to,
                closed: view.closed,
                connections: flow.and_then(|flow| flow.connections),
                open: flow.map(|flow| flow.active),
            });
        }
    }
    all
}

/// The traffic of a listener. An agent may listen at another address of its machine than the one that is planned.
fn listener_flow(flow: &Flow, key: ListenerKey) -> Option<ListenerFlow> {
    // The counters name what is spoken: tcp, http, https or udp.
    let is_udp = key.transport == Transport::Udp;
    let ours = flow.listeners.iter().filter_map(|((at, protocol), flow)| {
        let at: SocketAddr = at.parse().ok()?;
        (at.port() == key.port && (protocol == "udp") == is_udp).then_some((at, flow))
    });
    let ours: Vec<_> = ours.collect();
    let exact = ours.iter().find(|(at, _)| *at == key.socket());
    match (exact, &ours[..]) {
        (Some((_, flow)), _) | (None, [(_, flow)]) => Some(**flow),
        _ => None,
    }
}

/// The pools of the shown load balancers, the busiest first.
pub(super) fn pools(
    facts: &Facts,
    status: &Status,
    traffic: &Traffic,
    namespace: Option<&str>,
) -> Vec<PoolRow> {
    let mut all = Vec::new();
    for lb in &status.load_balancers {
        let parts = fragments(facts, &lb.name, |part| is_of(part, namespace));
        let resolved = members(facts, &parts);
        let mut seen = BTreeSet::new();
        for (part, pool) in
            parts.iter().flat_map(|part| part.pools.iter().map(move |it| (part, it)))
        {
            // Parts of a consumer may each have the same pool.
            if !seen.insert(pool.name.clone()) {
                continue;
            }
            let flow = traffic.of(&lb.name).and_then(|flow| flow.pools.get(&*pool.name));
            let its = resolved.get(&pool.name).map(Vec::as_slice).unwrap_or_default();
            let known = |state: &str| its.iter().filter(|it| it.state == state).count();
            let from_slices = || [known("Ready"), known("Draining"), 0, 0];
            let [ready, draining, ejected, down] = flow.map_or_else(from_slices, counted);
            all.push(PoolRow {
                name: pool_name(pool),
                consumer: (&part.consumer).into(),
                load_balancer: lb.name.clone(),
                requests: flow.and_then(|flow| flow.requests),
                errors: flow.and_then(|flow| flow.errors),
                ready,
                draining,
                ejected,
                down,
            });
        }
    }
    let busy = |row: &PoolRow| row.requests.unwrap_or_default();
    all.sort_by(|one, other| {
        busy(other).total_cmp(&busy(one)).then_with(|| one.name.cmp(&other.name))
    });
    all
}

fn counted(flow: &PoolFlow) -> [usize; 4] {
    // Counts of members are whole and small.
    flow.members.map(|count| count as usize)
}

fn is_of(part: &Fragment, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| *part.consumer.namespace == *namespace)
}

fn fragments(facts: &Facts, lb: &str, shown: impl Fn(&Fragment) -> bool) -> Vec<Arc<Fragment>> {
    facts.planner.fragments(lb).filter(|part| shown(part)).cloned().collect()
}

/// A rate as people read it.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => UNKNOWN.to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 9.95 => format!("{rate:.1}"),
        Some(rate) if rate < 99_999.5 => format!("{rate:.0}"),
        Some(rate) => format!("{:.0}k", rate / 1000.0),
    }
}

impl BalancerRow {
    pub(super) fn row(&self) -> Row {
        let more = match self.addresses.len() {
            0 | 1 => String::new(),
            number => format!(" +{}", number - 1),
        };
        let first = self.addresses.first().map_or("-", String::as_str);
        let phase = self.phase.as_deref().unwrap_or("-");
        // Some agents could not be asked: it may be more.
        let least = |number: Option<f64>| match (number, self.partial) {
            (Some(_), true) => format!("≥{}", rate(number)),
            _ => rate(number),
        };
        Row {
            cells: vec![
                self.name.clone(),
                phase.to_owned(),
                self.driver.clone(),
                format!("{first}{more}"),
                self.services.to_string(),
                self.ingresses.to_string(),
                format!("{}/{}", self.live_agents, self.agents),
                least(self.requests),
                least(self.connections),
            ],
            wrong: phase == "Failed" || self.live_agents < self.agents.max(1),
        }
    }
}

impl ListenerRow {
    pub(super) fn row(&self) -> Row {
        Row {
            cells: vec![
                self.at.clone(),
                self.load_balancer.clone(),
                self.pool.clone().unwrap_or_else(|| "Ingresses".to_owned()),
                if self.closed { "closed" } else { "open" }.to_owned(),
                rate(self.connections),
                self.open.map_or_else(|| UNKNOWN.to_owned(), |open| open.to_string()),
            ],
            wrong: self.closed,
        }
    }
}

impl PoolRow {
    pub(super) fn row(&self) -> Row {
        let states = [
            (self.ready, "ready"),
            (self.draining, "draining"),
            (self.ejected, "ejected"),
            (self.down, "down"),
        ];
        let told = states.iter().filter(|(count, state)| *count > 0 || *state == "ready");
        let members: Vec<_> = told.map(|(count, state)| format!("{count} {state}")).collect();
        Row {
            cells: vec![
                self.name.clone(),
                // Its namespace is that of the pool.
                format!("{} {}", self.consumer.kind, self.consumer.name),
                self.load_balancer.clone(),
                rate(self.requests),
                rate(self.errors),
                members.join(", "),
            ],
            wrong: self.ready == 0 || self.ejected + self.down > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_short() {
        let told: Vec<_> =
            [None, Some(0.0), Some(0.26), Some(12.4), Some(99_999.0), Some(1_234_567.0)]
                .map(rate)
                .into();
        assert_eq!(told, ["–", "0", "0.3", "12", "99999", "1235k"]);
    }

    #[test]
    fn a_listener_at_another_address_of_the_machine_is_found_by_its_port() {
        let key = |port| ListenerKey {
            address: [203, 0, 113, 1].into(),
            port,
            transport: Transport::Tcp,
        };
        let flow = |active| ListenerFlow { connections: None, active };
        let at = |text: &str| (text.to_owned(), "tcp".to_owned());
        let mut all = Flow {
            listeners: [(at("10.0.0.1:80"), flow(1.0)), (at("203.0.113.1:443"), flow(2.0))].into(),
            ..Flow::default()
        };
        assert_eq!(listener_flow(&all, key(80)), Some(flow(1.0)));
        assert_eq!(listener_flow(&all, key(443)), Some(flow(2.0)));
        assert_eq!(listener_flow(&all, key(81)), None);
        all.listeners.insert(at("10.0.0.2:80"), flow(3.0));
        assert_eq!(listener_flow(&all, key(80)), None, "it may be either");
    }
}

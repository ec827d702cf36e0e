//! Rates of traffic from two readings of the agents' counters. A page counts only for agents that announce its address
//! and that it names: a page on loopback may be another machine's. Pure; time is an argument.

use super::page::{Counts, Page};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// An agent, and where it says that its metrics are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Announced {
    pub(crate) load_balancer: String,
    pub(crate) agent: String,
    /// None: it does not say.
    pub(crate) admin: Option<SocketAddr>,
}

/// The last reading of each agent, and the rates since the one before.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    last: BTreeMap<(String, String), (Duration, Counts)>,
    now: BTreeMap<String, Flow>,
}

/// What goes on at a load balancer, as far as its agents can be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Flow {
    /// How many of its agents answered, and how many it has.
    pub(super) asked: (usize, usize),
    /// Requests per second. None: they were read only once.
    pub(super) requests: Option<f64>,
    /// By address and protocol.
    pub(super) listeners: BTreeMap<(String, String), ListenerFlow>,
    /// By the name in plans.
    pub(super) pools: BTreeMap<String, PoolFlow>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ListenerFlow {
    /// Connections that begin per second.
    pub(super) connections: Option<f64>,
    /// Connections that are open.
    pub(super) active: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PoolFlow {
    /// Requests per second; connections, where the traffic is not HTTP.
    pub(super) requests: Option<f64>,
    /// Answers with a status of 500 or more per second.
    pub(super) errors: Option<f64>,
    /// Members that are ready, draining, ejected and down. Agents see the same members; the worst counts.
    pub(super) members: [f64; 4],
}

impl Traffic {
    /// Takes what was read at this time.
    pub(crate) fn take(
        &mut self,
        agents: &[Announced],
        pages: &BTreeMap<SocketAddr, Page>,
        now: Duration,
    ) {
        let mut flows: BTreeMap<String, Flow> = BTreeMap::new();
        let mut last = BTreeMap::new();
        let unique: BTreeSet<_> = agents.iter().collect();
        for Announced { load_balancer, agent, admin } in unique {
            let flow = flows.entry(load_balancer.clone()).or_default();
            flow.asked.1 += 1;
            let who = (load_balancer.clone(), agent.clone());
            let page = admin.and_then(|admin| pages.get(&admin));
            let Some(page) = page.filter(|page| page.agents.contains(&who)) else { continue };
            // An agent that has a page and no counters runs a program that counts by itself.
            let Some(counts) = page.counts.get(load_balancer) else { continue };
            flow.asked.0 += 1;
            let before = self.last.get(&who);
            let since = before.map(|(at, before)| (now.saturating_sub(*at), before));
            add(flow, counts, since.filter(|(time, _)| !time.is_zero()));
            last.insert(who, (now, counts.clone()));
        }
        (self.last, self.now) = (last, flows);
    }

    /// What goes on at a load balancer. None: none of its agents can be asked.
    pub(super) fn of(&self, load_balancer: &str) -> Option<&Flow> {
        self.now.get(load_balancer).filter(|flow| flow.asked.0 > 0)
    }
}

/// Adds one agent's counters.
fn add(flow: &mut Flow, counts: &Counts, since: Option<(Duration, &Counts)>) {
    let rate = |now: f64, before: &dyn Fn(&Counts) -> f64| {
        let (time, before) = since.map(|(time, counts)| (time, before(counts)))?;
        // A smaller counter began anew.
        let more = if now < before { now } else { now - before };
        Some(more / time.as_secs_f64())
    };
    let plus = |sum: &mut Option<f64>, more: Option<f64>| {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or_default() + more);
        }
    };
    let mut requests = rate(counts.own, &|it| it.own);
    for (name, pool) in &counts.pools {
        let was = |counts: &Counts| counts.pools.get(name).copied().unwrap_or_default();
        let flow = flow.pools.entry(name.clone()).or_default();
        let its = rate(pool.requests(), &|it| was(it).requests());
        plus(&mut flow.requests, its);
        plus(&mut flow.errors, rate(pool.errors, &|it| was(it).errors));
        if pool.members[0] <= flow.members[0] || flow.members == [0.0; 4] {
            flow.members = pool.members;
        }
        if pool.responses.is_some() {
            plus(&mut requests, its);
        }
    }
    plus(&mut flow.requests, requests);
    for (at, listener) in &counts.listeners {
        let flow = flow.listeners.entry(at.clone()).or_default();
        let was = |counts: &Counts| counts.listeners.get(at).copied().unwrap_or_default();
        plus(&mut flow.connections, rate(listener.accepted, &|it| was(it).accepted));
        flow.active += listener.active;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9180);

    fn agent(name: &str, admin: Option<SocketAddr>) -> Announced {
        Announced { load_balancer: "edge".to_owned(), agent: name.to_owned(), admin }
    }

    /// A page of this agent with so many answers and connections.
    fn page(agent: &str, answers: u32, accepted: u32) -> BTreeMap<SocketAddr, Page> {
        let text = format!(
            "bowline_agent_info{{load_balancer=\"edge\",agent=\"{agent}\"}} 1\n\
             bowline_proxy_responses_total{{load_balancer=\"edge\",pool=\"p\",class=\"2xx\"}} {answers}\n\
             bowline_proxy_own_responses_total{{load_balancer=\"edge\",status=\"404\"}} {answers}\n\
             bowline_proxy_listener_accepted_total{{load_balancer=\"edge\",address=\"a:1\",protocol=\"tcp\"}} {accepted}\n"
        );
        [(AT, Page::read(&text))].into()
    }

    #[test]
    fn two_readings_give_rates_and_a_counter_that_began_anew_counts_from_nothing() {
        let mut traffic = Traffic::default();
        let agents = [agent("a", Some(AT))];
        let rates = |traffic: &Traffic| {
            let flow = traffic.of("edge").expect("it answers");
            let listener = flow.listeners[&("a:1".to_owned(), "tcp".to_owned())];
            (flow.requests, flow.pools["p"].requests, listener.connections)
        };
        traffic.take(&agents, &page("a", 10, 3), Duration::from_secs(1));
        assert_eq!(rates(&traffic), (None, None, None), "one reading is no rate");
        traffic.take(&agents, &page("a", 30, 5), Duration::from_secs(3));
        assert_eq!(rates(&traffic), (Some(20.0), Some(10.0), Some(1.0)));
        traffic.take(&agents, &page("a", 4, 2), Duration::from_secs(5));
        assert_eq!(rates(&traffic), (Some(4.0), Some(2.0), Some(1.0)));
    }

    #[test]
    fn a_page_counts_only_for_the_agent_that_it_names_and_that_announces_it() {
        let mut traffic = Traffic::default();
        let other = SocketAddr::new(AT.ip(), 1);
        for agents in [[agent("b", Some(AT))], [agent("a", Some(other))], [agent("a", None)]] {
            traffic.take(&agents, &page("a", 1, 1), Duration::from_secs(1));
            assert_eq!(traffic.of("edge"), None, "{agents:?}");
        }
        let agents = [agent("a", Some(AT)), agent("b", None)];
        traffic.take(&agents, &page("a", 1, 1), Duration::from_secs(1));
        assert_eq!(traffic.of("edge").map(|flow| flow.asked), Some((1, 2)));
    }
}

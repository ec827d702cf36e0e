//! Reads the metrics page of an agent: the counters of its listeners and pools. Only what `top` shows is kept. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What a metrics page tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page {
    /// The agents of the process: load balancer and name.
    pub(super) agents: BTreeSet<(String, String)>,
    /// The counters, by load balancer.
    pub(super) counts: BTreeMap<String, Counts>,
}

/// What an agent has counted for its load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Requests that the proxy answered itself.
    pub(super) own: f64,
    /// By address and protocol.
    pub(super) listeners: BTreeMap<(String, String), ListenerCounts>,
    /// By the name in plans.
    pub(super) pools: BTreeMap<String, PoolCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ListenerCounts {
    /// Connections or sessions that began.
    pub(super) accepted: f64,
    /// Those that are open now.
    pub(super) active: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PoolCounts {
    /// Answers to requests. None: its traffic is not HTTP, or it had none.
    pub(super) responses: Option<f64>,
    /// Answers with a status of 500 or more.
    pub(super) errors: f64,
    /// Connections or requests that members got.
    pub(super) picks: f64,
    /// Members that are ready, draining, ejected and down.
    pub(super) members: [f64; 4],
}

impl PoolCounts {
    /// Requests, or connections where the traffic is not HTTP.
    pub(super) fn requests(&self) -> f64 {
        self.responses.unwrap_or(self.picks)
    }
}

impl Page {
    /// Reads a page in the text format of OpenMetrics. Lines that cannot be read are left out.
    pub(crate) fn read(text: &str) -> Self {
        let mut page = Self::default();
        for (name, labels, value) in text.lines().filter_map(sample) {
            page.add(name, &labels, value);
        }
        page
    }

    fn add(&mut self, name: &str, labels: &BTreeMap<&str, String>, value: f64) {
        let Some(name) = name.strip_prefix("bowline_") else { return };
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        let Some(load_balancer) = labels.get("load_balancer").cloned() else { return };
        if name == "agent_info" {
            self.agents.insert((load_balancer, label("agent")));
            return;
        }
        let Some(name) = name.strip_prefix("proxy_") else { return };
        let counts = self.counts.entry(load_balancer).or_default();
        let listener = (label("address"), label("protocol"));
        match name {
            "own_responses_total" => counts.own += value,
            "listener_accepted_total" => {
                counts.listeners.entry(listener).or_default().accepted = value;
            }
            "listener_active" => counts.listeners.entry(listener).or_default().active = value,
            "responses_total" => {
                let pool = counts.pools.entry(label("pool")).or_default();
                pool.responses = Some(pool.responses.unwrap_or_default() + value);
                if label("class") == "5xx" {
                    pool.errors += value;
                }
            }
            "member_picks_total" => counts.pools.entry(label("pool")).or_default().picks += value,
            "pool_members" => {
                let states = ["ready", "draining", "ejected", "down"];
                if let Some(at) = states.iter().position(|it| *it == label("state")) {
                    counts.pools.entry(label("pool")).or_default().members[at] = value;
                }
            }
            _ => {}
        }
    }
}

/// A line as a name, labels and a value. None: it is a comment, or cannot be read.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, String>, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = match line.split_once('{') {
        Some((name, rest)) => (name, rest),
        None => {
            let (name, value) = line.split_once(' ')?;
            return Some((name, BTreeMap::new(), number(value)?));
        }
    };
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    loop {
        if let Some(value) = rest.strip_prefix('}') {
            return Some((name, labels, number(value)?));
        }
        let (key, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.insert(key, value);
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// The first value of a line; a time may follow.
fn number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The text up to the closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_page_are_read_by_load_balancer() {
        let page = Page::read(
            "# HELP bowline_leader x\n\
             bowline_leader 1\n\
             bowline_agent_info{load_balancer=\"edge\",agent=\"vm_1\"} 1\n\
             bowline_proxy_responses_total{load_balancer=\"edge\",pool=\"p\",class=\"2xx\"} 7\n\
             bowline_proxy_responses_total{load_balancer=\"edge\",pool=\"p\",class=\"5xx\"} 2\n\
             bowline_proxy_own_responses_total{load_balancer=\"edge\",status=\"404\"} 3\n\
             bowline_proxy_member_picks_total{load_balancer=\"edge\",pool=\"l4\",member=\"192.0.2.1:1\"} 4\n\
             bowline_proxy_pool_members{load_balancer=\"edge\",pool=\"p\",state=\"ready\"} 2\n\
             bowline_proxy_pool_members{load_balancer=\"edge\",pool=\"p\",state=\"ejected\"} 1\n\
             bowline_proxy_listener_accepted_total{load_balancer=\"edge\",address=\"127.0.0.1:80\",protocol=\"tcp\"} 9\n\
             bowline_proxy_listener_active{load_balancer=\"edge\",address=\"127.0.0.1:80\",protocol=\"tcp\"} 1\n\
             # EOF\n",
        );
        let pool = PoolCounts { members: [2.0, 0.0, 1.0, 0.0], ..PoolCounts::default() };
        let counts = Counts {
            own: 3.0,
            listeners: [(
                ("127.0.0.1:80".to_owned(), "tcp".to_owned()),
                ListenerCounts { accepted: 9.0, active: 1.0 },
            )]
            .into(),
            pools: [
                ("p".to_owned(), PoolCounts { responses: Some(9.0), errors: 2.0, ..pool }),
                ("l4".to_owned(), PoolCounts { picks: 4.0, ..PoolCounts::default() }),
            ]
            .into(),
        };
        let agents = [("edge".to_owned(), "vm_1".to_owned())].into();
        assert_eq!(page, Page { agents, counts: [("edge".to_owned(), counts)].into() });
    }

    #[test]
    fn labels_may_hold_quotes_and_what_cannot_be_read_is_left_out() {
        let (name, labels, value) =
            sample(r#"a{b="x\"y\\\n,}",c="d"} 5 1700"#).expect("it is read");
        assert_eq!((name, value), ("a", 5.0));
        assert_eq!(labels, [("b", "x\"y\\\n,}".to_owned()), ("c", "d".to_owned())].into());
        for bad in ["", "a", "a{", "a{b=\"c", "a{b=\"c\"", "a{b} 1", "a x", "a NaN", "a{b=\"c\\"] {
            assert_eq!(sample(bad), None, "{bad}");
        }
    }
}

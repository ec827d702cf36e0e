//! Says that the load balancer of an agent does not exist: now and then, for as long as that is so. It looks for it, ever less
//! often, while the watch of all Plans shows no Plan of it; an agent that may not read LoadBalancers says what it knows.

use crate::clock;
use crate::roles::Context;
use bowline_api::LoadBalancer;
use bowline_core::lines::Reminder;
use bowline_core::nearest::nearest;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a load balancer may have no Plan until it is looked for, and how long until the next look at most.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);
/// How often the same is said.
const AGAIN: Duration = Duration::from_secs(600);

/// The load balancers of all Plans.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    /// Whether all Plans have been listed.
    listed: bool,
    /// The load balancer of each Plan.
    of: BTreeMap<String, String>,
}

impl Planned {
    /// A new list begins.
    pub(super) fn begin(&self) {
        *self.0.lock() = Names::default();
    }

    /// A Plan is of this load balancer.
    pub(super) fn put(&self, plan: &str, load_balancer: &str) {
        self.0.lock().of.insert(plan.to_owned(), load_balancer.to_owned());
    }

    /// A Plan is deleted.
    pub(super) fn remove(&self, plan: &str) {
        self.0.lock().of.remove(plan);
    }

    /// All Plans have been listed.
    pub(super) fn done(&self) {
        self.0.lock().listed = true;
    }

    /// The load balancers that have a Plan. None: this one has, or they are not listed yet.
    fn others(&self, load_balancer: &str) -> Option<BTreeSet<String>> {
        let names = self.0.lock();
        let known = !names.listed || names.of.values().any(|it| it == load_balancer);
        (!known).then(|| names.of.values().cloned().collect())
    }
}

/// What is known of the load balancer itself.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    /// It exists: it has no Service or Ingress yet.
    Exists,
    /// It does not exist; these do.
    Missing(BTreeSet<String>),
    /// The agent may not read LoadBalancers; these have a Plan.
    Unknown(BTreeSet<String>),
}

/// What to say. None: nothing is wrong.
fn words(load_balancer: &str, found: &Found) -> Option<String> {
    let (text, others) = match found {
        Found::Exists => return None,
        Found::Missing(others) => (format!("load balancer {load_balancer} does not exist"), others),
        Found::Unknown(others) => {
            let text = "has no Plan: it does not exist, or nothing uses it yet";
            (format!("load balancer {load_balancer} {text}"), others)
        }
    };
    let all = others.iter().map(String::as_str);
    let meant = match nearest(load_balancer, all.clone()) {
        Some(name) => format!(". Did you mean {name}?"),
        None if others.is_empty() => String::new(),
        None => {
            let more = if others.len() > 5 { ", …" } else { "" };
            format!("; there are {}{more}", all.take(5).collect::<Vec<_>>().join(", "))
        }
    };
    Some(format!("waits: {text}{meant}"))
}

/// Looks the load balancer up.
async fn look(client: &Client, load_balancer: &str, planned: BTreeSet<String>) -> Found {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    match api.get_metadata_opt(load_balancer).await {
        Ok(Some(_)) => Found::Exists,
        Ok(None) => match api.list_metadata(&ListParams::default()).await {
            Ok(all) => Found::Missing(all.iter().map(ResourceExt::name_any).collect()),
            Err(_) => Found::Missing(planned),
        },
        Err(_) => Found::Unknown(planned),
    }
}

/// Says it until the context is stopped.
pub(super) async fn tell(
    client: Client,
    planned: Planned,
    load_balancer: String,
    context: Context,
) {
    let (mut reminder, mut wait) = (Reminder::new(AGAIN), FIRST);
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.stopped() => return,
        }
        let Some(others) = planned.others(&load_balancer) else {
            (reminder, wait) = (Reminder::new(AGAIN), FIRST);
            continue;
        };
        wait = (wait * 2).min(LONGEST);
        let found = look(&client, &load_balancer, others).await;
        match words(&load_balancer, &found) {
            None => reminder.rests(),
            Some(text) if reminder.says(&text.as_str().into(), clock::now()) => {
                tracing::warn!("{text}");
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_balancer_is_missed_only_when_all_plans_are_known_and_none_is_its_own() {
        let planned = Planned::default();
        planned.put("edge-0", "edge");
        assert_eq!(planned.others("egde"), None, "the list is under way");
        planned.done();
        assert_eq!(planned.others("egde"), Some(BTreeSet::from(["edge".to_owned()])));
        assert_eq!(planned.others("edge"), None);
        planned.remove("edge-0");
        assert_eq!(planned.others("edge"), Some(BTreeSet::new()));
    }

    #[test]
    fn one_that_does_not_exist_is_told_with_the_nearest_that_does() {
        let there = || BTreeSet::from(["edge".to_owned(), "local".to_owned()]);
        let missing = |name| words(name, &Found::Missing(there())).expect("something to say");
        let says = "waits: load balancer lcoal does not exist. Did you mean local?";
        assert_eq!(missing("lcoal"), says);
        let says = "waits: load balancer nosuch does not exist; there are edge, local";
        assert_eq!(missing("nosuch"), says);
        let unknown = words("a", &Found::Unknown(BTreeSet::new())).expect("something to say");
        assert!(
            unknown.ends_with("has no Plan: it does not exist, or nothing uses it yet"),
            "{unknown}"
        );
        assert_eq!(words("edge", &Found::Exists), None, "it is idle");
    }
}

//! Says why an agent has no Plan: its load balancer does not exist, or nothing uses it yet. It says so now and then, for as
//! long as that is so. It looks the load balancer up, ever less often, while the watch of all Plans shows no Plan of it. The
//! rights of deploy/rbac let an agent read its own LoadBalancer; an agent without that right says so.

use crate::clock;
use crate::roles::Context;
use bowline_api::LoadBalancer;
use bowline_core::lines::Reminder;
use bowline_core::nearest::nearest;
use kube::api::ListParams;
use kube::{Api, Client, Error, ResourceExt};
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
    /// It exists, and no Service or Ingress uses it yet.
    Unused,
    /// It does not exist; these do.
    Missing(BTreeSet<String>),
    /// It cannot be read; these have a Plan.
    Unknown(Unread, BTreeSet<String>),
}

/// Why the load balancer cannot be read.
#[derive(Clone, Debug, PartialEq)]
enum Unread {
    /// The agent has no right to read it.
    Forbidden,
    /// What the API said.
    Failed(String),
}

/// What to say.
fn words(load_balancer: &str, found: &Found) -> String {
    let (text, others) = match found {
        Found::Unused => {
            return format!(
                "waits: load balancer {load_balancer} exists, and no Service or Ingress uses it yet"
            );
        }
        Found::Missing(others) => (format!("load balancer {load_balancer} does not exist"), others),
        Found::Unknown(why, others) => {
            let why = match why {
                Unread::Forbidden => {
                    format!("the agent may not get loadbalancers.bowline.dev {load_balancer}")
                }
                Unread::Failed(why) => why.clone(),
            };
            let text = format!(
                "load balancer {load_balancer} has no Plan: it does not exist, or nothing uses it yet. Which of the two \
                 is unknown: {why}"
            );
            (text, others)
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
    format!("waits: {text}{meant}")
}

/// Looks the load balancer up.
async fn look(client: &Client, load_balancer: &str, planned: BTreeSet<String>) -> Found {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    match api.get_metadata_opt(load_balancer).await {
        Ok(Some(_)) => Found::Unused,
        Ok(None) => match api.list_metadata(&ListParams::default()).await {
            Ok(all) => Found::Missing(all.iter().map(ResourceExt::name_any).collect()),
            Err(_) => Found::Missing(planned),
        },
        Err(Error::Api(status)) if status.code == 403 => Found::Unknown(Unread::Forbidden, planned),
        Err(error) => Found::Unknown(Unread::Failed(error.to_string()), planned),
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
        let text = words(&load_balancer, &found);
        if !reminder.says(&text.as_str().into(), clock::now()) {
            continue;
        }
        match found {
            Found::Unused => tracing::info!("{text}"),
            Found::Missing(_) | Found::Unknown(..) => tracing::warn!("{text}"),
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
        let missing = |name| words(name, &Found::Missing(there()));
        let says = "waits: load balancer lcoal does not exist. Did you mean local?";
        assert_eq!(missing("lcoal"), says);
        let says = "waits: load balancer nosuch does not exist; there are edge, local";
        assert_eq!(missing("nosuch"), says);
    }

    #[test]
    fn one_that_nothing_uses_is_told_as_that() {
        let says = "waits: load balancer edge exists, and no Service or Ingress uses it yet";
        assert_eq!(words("edge", &Found::Unused), says);
    }

    #[test]
    fn an_agent_that_may_not_look_says_that_it_does_not_know_and_which_right_it_lacks() {
        let unknown = words("a", &Found::Unknown(Unread::Forbidden, BTreeSet::new()));
        let says = "waits: load balancer a has no Plan: it does not exist, or nothing uses it yet. Which of the two is \
                    unknown: the agent may not get loadbalancers.bowline.dev a";
        assert_eq!(unknown, says);
    }
}

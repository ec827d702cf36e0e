//! Looks up the load balancer of an agent while the watch of all Plans shows no Plan of it, and logs why that is so, or that
//! the agent runs another driver than the load balancer needs.
//! [`bowline_core::no_plan`] decides when it looks and what it logs. The rights of deploy/rbac let an agent read its own
//! LoadBalancer.

use crate::clock;
use crate::roles::Context;
use bowline_api::{LoadBalancer, convert};
use bowline_core::no_plan::{Found, NoPlan};
use bowline_core::objects::Carrier;
use kube::api::ListParams;
use kube::{Api, Client, Error, ResourceExt};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

/// Looks the load balancer up.
async fn look(
    client: &Client,
    load_balancer: &str,
    carrier: Option<Carrier>,
    planned: BTreeSet<String>,
) -> Found {
    let api: Api<LoadBalancer> = Api::all(client.clone());
    match api.get_opt(load_balancer).await {
        Ok(Some(found)) => {
            let needed = convert::carrier(&found.spec.source);
            let refused =
                carrier.zip(needed).and_then(|(runs, it)| runs.refuses(it, load_balancer));
            refused.map_or(Found::Unused, Found::Other)
        }
        Ok(None) => match api.list_metadata(&ListParams::default()).await {
            Ok(all) => Found::Missing(all.iter().map(ResourceExt::name_any).collect()),
            Err(_) => Found::Missing(planned),
        },
        Err(Error::Api(status)) if status.code == 403 => Found::Forbidden,
        Err(_) => Found::Failed,
    }
}

/// Says it until the context is stopped.
pub(super) async fn tell(
    client: Client,
    planned: Planned,
    load_balancer: String,
    carrier: Option<Carrier>,
    context: Context,
) {
    let mut no_plan = NoPlan::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(no_plan.wait()) => {}
            () = context.stopped() => return,
        }
        let Some(others) = planned.others(&load_balancer) else {
            no_plan.is_planned();
            continue;
        };
        let found = look(&client, &load_balancer, carrier, others).await;
        match no_plan.looked(&load_balancer, &found, clock::now()) {
            Some(line) if line.wrong => tracing::warn!("{}", line.text),
            Some(line) => tracing::info!("{}", line.text),
            None => {}
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
}

//! What templates are filled with: what is exposed, and for the agent of a load balancer its whole plan. It
//! can be had without some of those it is for, which is how those are found that a check refuses.

use super::data::{self, Data};
use crate::desired::Desired;
use bowline_core::exposed::text::ServerName;
use bowline_core::exposed::view::{Cluster, Endpoint, Entry, PortSpec, Told};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::plan::{Action, Pool, Serves};
use bowline_core::update::{Member, MemberState, ResolvedListener, ResolvedSite, SiteKey};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What templates are filled with.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// kube2lb's view.
    pub cluster: Cluster,
    /// All that a load balancer must do.
    pub plan: Option<Desired>,
}

impl Subject {
    /// What is exposed, and no plan.
    pub fn exposed(cluster: Cluster) -> Self {
        Self { cluster, plan: None }
    }

    /// The plan of a load balancer; its Services at ports of their own are entries too. Those are left
    /// out, and told, whose texts a template must not see, or who are for some clients only while no
    /// template asks which.
    pub fn planned(plan: &Desired, domain: &str, source_ranges: bool) -> (Self, Vec<Told>) {
        let mut told = Vec::new();
        let mut tell = |consumer: &ConsumerRef, reason, message: String| {
            told.push(Told { consumer: consumer.clone(), problem: Problem::new(reason, message) });
        };
        for resolved in plan.listeners.values() {
            if let Serves::Pool(pool) = &resolved.listener.serves
                && let Some(pool) = plan.pools.get(pool)
            {
                refuse(pool, &resolved.consumer, source_ranges, &mut tell);
            }
        }
        for (key, site) in &plan.sites {
            for (rule, consumer) in &site.rules {
                if let Some(text) = unfit(&json!(rule)).or_else(|| unfit_host(key)) {
                    let message = format!("{} is not a text that a template may see", quote(&text));
                    tell(consumer, Reason::BadValue, message);
                }
                for pool in pools_of(&rule.action).filter_map(|name| plan.pools.get(name)) {
                    refuse(pool, consumer, source_ranges, &mut tell);
                }
            }
        }
        told.sort();
        told.dedup();
        let out: BTreeSet<_> = told.iter().map(|told| told.consumer.clone()).collect();
        let plan = without(plan, |consumer| !out.contains(consumer));
        let cluster = entries(&plan, domain);
        (Self { cluster, plan: Some(plan) }, told)
    }

    /// For whom it is, the load balancer itself left aside.
    pub(super) fn consumers(&self) -> BTreeSet<ConsumerRef> {
        let services = self.cluster.services.iter().map(|entry| &entry.consumer);
        let plan = self.plan.iter();
        let listeners = plan.clone().flat_map(|plan| plan.listeners.values().map(|l| &l.consumer));
        let sites = plan.flat_map(|plan| plan.sites.values());
        let rules = sites.flat_map(|site| site.rules.iter().map(|(_, consumer)| consumer));
        let all = services.chain(listeners).chain(rules);
        all.filter(|consumer| consumer.kind != ConsumerKind::LoadBalancer).cloned().collect()
    }

    /// The same for some only.
    pub(super) fn only(&self, keep: impl Fn(&ConsumerRef) -> bool) -> Self {
        let plan = self.plan.as_ref().map(|plan| without(plan, &keep));
        Self { cluster: self.cluster.only(keep), plan }
    }

    /// As templates have it: kube2lb's schema, and the plan as `Plan` and `plan`.
    pub fn data(&self) -> Data {
        let mut data = data::cluster(&self.cluster);
        if let (Data::Fields(fields), Some(plan)) = (&mut data, &self.plan) {
            let plan = data::json(&written(plan));
            fields.insert("Plan".into(), plan.clone());
            fields.insert("plan".into(), plan);
        }
        data
    }
}

fn refuse(
    pool: &Pool,
    consumer: &ConsumerRef,
    source_ranges: bool,
    tell: &mut impl FnMut(&ConsumerRef, Reason, String),
) {
    if let Some(text) = unfit(&json!(pool)) {
        let message = format!("{} is not a text that a template may see", quote(&text));
        tell(consumer, Reason::BadValue, message);
    }
    if !pool.source_ranges.is_empty() && !source_ranges {
        let message = "it is for some clients only, and no template here asks which";
        tell(consumer, Reason::NotSupported, message.to_owned());
    }
}

/// A text that a configuration file could take for more than a word.
fn unfit(value: &Value) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:@!&()*+,=%".contains(c);
    match value {
        Value::String(text) if text.chars().all(plain) => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => values.iter().find_map(unfit),
        Value::Object(fields) => fields.values().find_map(unfit),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn unfit_host(key: &SiteKey) -> Option<String> {
    let host = key.host.to_string();
    (host != "*" && host.parse::<ServerName>().is_err()).then_some(host)
}

fn pools_of(action: &Action) -> impl Iterator<Item = &Arc<str>> {
    let pools = match action {
        Action::Forward(pools) => pools.as_slice(),
        Action::Redirect(_) | Action::Respond(_) => &[],
    };
    pools.iter().map(|weighted| &weighted.pool)
}

/// A plan for some only, with the pools that they need.
fn without(plan: &Desired, keep: impl Fn(&ConsumerRef) -> bool) -> Desired {
    let shared = |consumer: &ConsumerRef| consumer.kind == ConsumerKind::LoadBalancer;
    let mut kept = plan.clone();
    kept.listeners.retain(|_, l| shared(&l.consumer) || keep(&l.consumer));
    for site in kept.sites.values_mut() {
        if site.rules.iter().any(|(_, consumer)| !keep(consumer)) {
            let rules = site.rules.iter().filter(|(_, consumer)| keep(consumer)).cloned();
            *site = Arc::new(ResolvedSite { rules: rules.collect(), ..ResolvedSite::clone(site) });
        }
    }
    kept.sites.retain(|_, site| !site.rules.is_empty());
    let mut needed: BTreeSet<Arc<str>> = BTreeSet::new();
    for resolved in kept.listeners.values() {
        if let Serves::Pool(pool) = &resolved.listener.serves {
            needed.insert(pool.clone());
        }
    }
    for (rule, _) in kept.sites.values().flat_map(|site| &site.rules) {
        needed.extend(pools_of(&rule.action).cloned());
    }
    kept.pools.retain(|name, _| needed.contains(name));
    kept.members.retain(|name, _| needed.contains(name));
    kept
}

/// The Services of a plan that have ports of their own.
fn entries(plan: &Desired, domain: &str) -> Cluster {
    let mut services: Vec<Entry> =
        plan.listeners.values().filter_map(|resolved| entry(plan, resolved)).collect();
    services.sort_by(|a, b| (&a.consumer, &a.port).cmp(&(&b.consumer, &b.port)));
    let cluster = Cluster { services, ports: Vec::new(), nodes: Vec::new(), domain: domain.into() };
    cluster.only(|_| true)
}

fn entry(plan: &Desired, resolved: &ResolvedListener) -> Option<Entry> {
    let Serves::Pool(name) = &resolved.listener.serves else { return None };
    let pool = plan.pools.get(name)?;
    let ready = plan.members(name).iter().filter(|m| m.state == MemberState::Ready);
    let endpoint = |member: &Member| Endpoint {
        name: member.address.to_string().into(),
        ip: member.address.ip(),
        port: member.address.port(),
    };
    let listener = &resolved.listener;
    Some(Entry {
        consumer: resolved.consumer.clone(),
        port: PortSpec {
            ip: listener.address,
            port: listener.port,
            transport: listener.protocol.transport(),
            mode: "tcp".into(),
        },
        endpoints: ready.map(endpoint).collect(),
        node_port: 0,
        external: Vec::new(),
        timeout_ms: pool.timeouts.backend_ms.unwrap_or_default(),
        source_ranges: pool.source_ranges.clone(),
    })
}

/// A plan as JSON: listeners, pools with their members, sites with their rules. No keys, no secrets.
fn written(plan: &Desired) -> Value {
    let listeners = plan.listeners.values().map(|resolved| json!(resolved.listener));
    let pools = plan.pools.values().map(|pool| {
        let members = plan.members(&pool.name).iter().map(|member| {
            let draining = member.state == MemberState::Draining;
            json!({
                "address": member.address.ip(), "port": member.address.port(),
                "weight": member.weight, "draining": draining,
            })
        });
        let mut written = json!(**pool);
        written["members"] = members.collect();
        written
    });
    let sites = plan.sites.iter().map(|(key, site)| {
        let rules = site.rules.iter().map(|(rule, consumer)| {
            let mut written = json!(rule);
            written["consumer"] = json!({
                "kind": consumer.kind, "namespace": consumer.namespace, "name": consumer.name,
            });
            written
        });
        let rules: Value = rules.collect();
        json!({
            "entry": key.entry, "host": key.host, "namespace": site.owner, "tls": site.tls,
            "rules": rules,
        })
    });
    json!({
        "listeners": listeners.collect::<Value>(), "pools": pools.collect::<Value>(),
        "sites": sites.collect::<Value>(),
    })
}

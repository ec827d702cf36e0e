//! The input of templates: what is exposed and, for the agent of one load balancer, its whole plan. A subject can be
//! cut down to some consumers, which is how the publisher finds those that a check refuses. Pure; the publisher and the
//! driver call it.

use super::certificates::{self, Bundles};
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

/// The input of templates.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// kube2lb's view.
    pub cluster: Cluster,
    /// The desired state of the load balancer, for its agent.
    pub plan: Option<Desired>,
    /// The folder with the files of the plan's certificates.
    pub certificates: Option<Arc<str>>,
}

/// The optional settings that all templates read. A consumer that needs another one is left out rather than served
/// without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knows {
    /// The address ranges that may use a Service.
    pub source_ranges: bool,
    /// The TLS settings of a host.
    pub tls: bool,
    /// Whether a client stays with the same member, and how.
    pub persistence: bool,
    /// Whether members get the client's address by the PROXY protocol.
    pub proxy_protocol: bool,
    /// Whether members see the client's address or the proxy's.
    pub snat: bool,
}

impl Knows {
    /// The settings that both read.
    pub fn and(self, other: Self) -> Self {
        Self {
            source_ranges: self.source_ranges && other.source_ranges,
            tls: self.tls && other.tls,
            persistence: self.persistence && other.persistence,
            proxy_protocol: self.proxy_protocol && other.proxy_protocol,
            snat: self.snat && other.snat,
        }
    }

    /// A setting that a pool needs and that is not read: its name in a template, and what it is for.
    fn lacks(self, pool: &Pool) -> Option<(&'static str, &'static str)> {
        let needs = [
            (
                !pool.source_ranges.is_empty(),
                self.source_ranges,
                "sourceRanges",
                "it limits its clients by source ranges",
            ),
            (
                pool.persistence.is_some(),
                self.persistence,
                "persistence",
                "its clients stay with one member",
            ),
            (
                pool.proxy_protocol,
                self.proxy_protocol,
                "proxyProtocol",
                "its members expect the PROXY protocol",
            ),
            (!pool.snat, self.snat, "snat", "its members see the addresses of clients"),
        ];
        let mut lacks = needs.into_iter().filter(|(needs, knows, ..)| *needs && !knows);
        lacks.next().map(|(_, _, word, what)| (word, what))
    }
}

impl Subject {
    /// What is exposed, without a plan.
    pub fn exposed(cluster: Cluster) -> Self {
        Self { cluster, plan: None, certificates: None }
    }

    /// The plan of a load balancer; its Services with listeners of their own are entries, too. Leaves out and reports
    /// consumers with texts that a template must not see, and consumers that need a setting that not all templates
    /// read.
    pub fn planned(plan: &Desired, domain: &str, knows: &Knows) -> (Self, Vec<Told>) {
        Self::planned_with(plan, domain, knows, None)
    }

    /// The same with a folder for certificates and the content of its files. Leaves out a host until its certificate
    /// has come; the agent, which learns that from the resolver, tells the owner.
    pub(super) fn planned_with(
        plan: &Desired,
        domain: &str,
        knows: &Knows,
        certificates: Option<(&Arc<str>, &Bundles)>,
    ) -> (Self, Vec<Told>) {
        let mut plan = plan.clone();
        if let Some((_, bundles)) = certificates {
            plan.sites.retain(|_, site| {
                let has = |hash: &Arc<str>| bundles.contains_key(hash);
                site.tls.is_none() || certificate_of(site).is_some_and(has)
            });
        }
        let mut told = Vec::new();
        let mut tell = |consumer: &ConsumerRef, reason, message: String| {
            told.push(Told { consumer: consumer.clone(), problem: Problem::new(reason, message) });
        };
        for resolved in plan.listeners.values() {
            if let Serves::Pool(pool) = &resolved.listener.serves
                && let Some(pool) = plan.pools.get(pool)
            {
                refuse(pool, &resolved.consumer, knows, &mut tell);
            }
        }
        for (key, site) in &plan.sites {
            for (rule, consumer) in &site.rules {
                if let Some(text) = unfit(&json!(rule)).or_else(|| unfit_host(key)) {
                    let message = format!("{} is not a text that a template may see", quote(&text));
                    tell(consumer, Reason::BadValue, message);
                }
                if site.tls.is_some() && !knows.tls {
                    let message = lacks("tls", "it is served over TLS");
                    let message = format!("{message}. With --certificates templates get the files");
                    tell(consumer, Reason::NotSupported, message);
                }
                let bundle = certificates.zip(certificate_of(site));
                if let Some(Err(why)) = bundle.and_then(|((_, all), hash)| all.get(hash)) {
                    let message =
                        format!("the certificate of {} cannot be served: {why}", key.host);
                    tell(consumer, Reason::BadCertificate, message);
                }
                for pool in pools_of(&rule.action).filter_map(|name| plan.pools.get(name)) {
                    refuse(pool, consumer, knows, &mut tell);
                }
            }
        }
        told.sort();
        told.dedup();
        let out: BTreeSet<_> = told.iter().map(|told| told.consumer.clone()).collect();
        let plan = without(&plan, |consumer| !out.contains(consumer));
        let cluster = entries(&plan, domain);
        let certificates = certificates.map(|(folder, _)| folder.clone());
        (Self { cluster, plan: Some(plan), certificates }, told)
    }

    /// The hashes of the certificates that its hosts use.
    pub(super) fn uses(&self) -> BTreeSet<Arc<str>> {
        let sites = self.plan.iter().flat_map(|plan| plan.sites.values());
        sites.filter_map(|site| certificate_of(site)).cloned().collect()
    }

    /// The consumers in it, without the load balancer itself.
    pub(super) fn consumers(&self) -> BTreeSet<ConsumerRef> {
        let services = self.cluster.services.iter().map(|entry| &entry.consumer);
        let plan = self.plan.iter();
        let listeners = plan.clone().flat_map(|plan| plan.listeners.values().map(|l| &l.consumer));
        let sites = plan.flat_map(|plan| plan.sites.values());
        let rules = sites.flat_map(|site| site.rules.iter().map(|(_, consumer)| consumer));
        let all = services.chain(listeners).chain(rules);
        all.filter(|consumer| consumer.kind != ConsumerKind::LoadBalancer).cloned().collect()
    }

    /// The same for some consumers only.
    pub(super) fn only(&self, keep: impl Fn(&ConsumerRef) -> bool) -> Self {
        let plan = self.plan.as_ref().map(|plan| without(plan, &keep));
        Self { cluster: self.cluster.only(keep), plan, certificates: self.certificates.clone() }
    }

    /// The data for templates: kube2lb's schema, and the plan as `Plan` and `plan`.
    pub fn data(&self) -> Data {
        let mut data = data::cluster(&self.cluster);
        if let (Data::Fields(fields), Some(plan)) = (&mut data, &self.plan) {
            let plan = data::json(&written(plan, self.certificates.as_deref()));
            fields.insert("Plan".into(), plan.clone());
            fields.insert("plan".into(), plan);
        }
        data
    }
}

fn certificate_of(site: &ResolvedSite) -> Option<&Arc<str>> {
    site.tls.as_ref()?.certificate.as_ref().map(|certificate| &certificate.hash)
}

fn refuse(
    pool: &Pool,
    consumer: &ConsumerRef,
    knows: &Knows,
    tell: &mut impl FnMut(&ConsumerRef, Reason, String),
) {
    if let Some(text) = unfit(&json!(pool)) {
        let message = format!("{} is not a text that a template may see", quote(&text));
        tell(consumer, Reason::BadValue, message);
    }
    if let Some((word, what)) = knows.lacks(pool) {
        tell(consumer, Reason::NotSupported, lacks(word, what));
    }
}

fn lacks(word: &str, what: &str) -> String {
    format!("{what}, and not all templates here use {word}; it is left out")
}

/// A text that a configuration file could read as more than one word.
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

/// A plan for some consumers only, with the pools that they need.
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

/// The Services of a plan that have listeners of their own.
fn entries(plan: &Desired, domain: &str) -> Cluster {
    let mut services: Vec<Entry> =
        plan.listeners.values().filter_map(|resolved| entry(plan, resolved)).collect();
    services.sort_by(|a, b| (&a.consumer, &a.port).cmp(&(&b.consumer, &b.port)));
    let cluster = Cluster {
        services,
        ports: Vec::new(),
        expressions: Vec::new(),
        nodes: Vec::new(),
        domain: domain.into(),
    };
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

/// A plan as JSON: listeners, pools with their members, sites with their rules. It has no keys and secrets, only the
/// paths of the files with keys. Every field is there, so that a template may read it: fields that are omitted
/// elsewhere are null or empty here.
fn written(plan: &Desired, certificates: Option<&str>) -> Value {
    let listeners = plan.listeners.values().map(|resolved| {
        let mut written = json!(resolved.listener);
        fill(&mut written["serves"], &json!({"pool": null, "entry": null}));
        written
    });
    let pools = plan.pools.values().map(|pool| {
        let members = plan.members(&pool.name).iter().map(|member| {
            let draining = member.state == MemberState::Draining;
            json!({
                "address": member.address.ip(), "port": member.address.port(),
                "weight": member.weight, "draining": draining,
            })
        });
        let mut written = json!(**pool);
        let timeouts = json!({"connectMs": null, "backendMs": null, "drainSeconds": null});
        fill(
            &mut written,
            &json!({
                "persistence": null, "proxyProtocol": false, "sourceRanges": [], "timeouts": {},
                "healthCheck": null, "limits": null,
            }),
        );
        fill(&mut written["timeouts"], &timeouts);
        fill(&mut written["healthCheck"], &json!({"httpPath": null}));
        let limits = json!({"requestsPerSecond": null, "bitsPerSecond": null});
        fill(&mut written["limits"], &limits);
        fill(&mut written["backends"], &json!({"pods": null, "nodes": null}));
        written["members"] = members.collect();
        written
    });
    let sites = plan.sites.iter().map(|(key, site)| {
        let rules = site.rules.iter().map(|(rule, consumer)| {
            let mut written = json!(rule);
            fill(&mut written, &json!({"method": null, "headers": [], "query": []}));
            let action = &mut written["action"];
            fill(action, &json!({"forward": null, "redirect": null, "respond": null}));
            let redirect = json!({"scheme": null, "host": null, "port": null, "path": null});
            fill(&mut action["redirect"], &redirect);
            written["consumer"] = json!({
                "kind": consumer.kind, "namespace": consumer.namespace, "name": consumer.name,
            });
            written
        });
        let rules: Value = rules.collect();
        let mut tls = json!(site.tls);
        let file = certificates.zip(certificate_of(site));
        let file = file.map(|(folder, hash)| certificates::file(folder, hash));
        fill(&mut tls, &json!({"certificate": null, "file": file}));
        json!({
            "entry": key.entry, "host": key.host, "namespace": site.owner, "tls": tls, "rules": rules,
        })
    });
    json!({
        "listeners": listeners.collect::<Value>(), "pools": pools.collect::<Value>(),
        "sites": sites.collect::<Value>(),
    })
}

/// Adds missing fields to an object. Does nothing to other values.
fn fill(written: &mut Value, fields: &Value) {
    if let (Some(written), Some(fields)) = (written.as_object_mut(), fields.as_object()) {
        for (name, value) in fields {
            written.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

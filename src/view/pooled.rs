//! Which object has which address, and why: the decisions of `bowline_core::addresses`, the machine that the
//! leader runs, about the listed objects. It looks no DNS names up; for those, the leader's conditions count.
//! Pure; [`super::facts`] calls it.

use super::explain::ProblemView;
use super::list::Lists;
use bowline_api::address_pool::AddressPool;
use bowline_api::{convert, names};
use bowline_core::addresses::{
    AddressRequest, Addresses, Ask, Config, Decision, Event, HolderKind, HolderRef, Kind, Object,
    Serving, Verdict,
};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::outcome::{Problem, Reason};
use bowline_core::planner::{self, NOT_RECORDED, Planner};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Planner/allocator rounds: a grant can change the plan, and the plan can change requests.
const MOST_ROUNDS: usize = 3;

/// The decisions about addresses.
pub(super) struct Pooled {
    machine: Addresses,
    /// The objects that request addresses.
    holders: BTreeMap<(ConsumerKind, ObjectKey), HolderRef>,
    /// The leader's problems with DNS names.
    said: BTreeMap<ObjectKey, Problem>,
}

/// Why an object has the addresses that it has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Told {
    pub(super) reason: String,
    pub(super) message: String,
    /// A remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<&'static str>,
    /// Whether its request is not met.
    pub(super) unmet: bool,
}

impl Told {
    /// Whether this is the same as a problem of the planner.
    pub(super) fn is(&self, problem: &Problem) -> bool {
        let same = problem.reason.to_string() == self.reason;
        self.unmet && same && problem.message.starts_with(&self.message)
    }

    /// As a problem, with its remedy.
    pub(super) fn whole(&self) -> ProblemView {
        let helps = self.remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
        ProblemView {
            reason: self.reason.clone(),
            message: format!("{}{helps}", self.message),
            remedy: None,
        }
    }
}

impl Pooled {
    /// Runs the machine on the lists, and passes its grants to the planner. None: pools cannot be read.
    pub(super) fn decide(planner: &mut Planner, lists: &Lists, now: Timestamp) -> Option<Self> {
        let pools = lists.pools.as_ref()?;
        let now = now.as_second();
        let machine = Addresses::new(Config::default());
        let mut pooled = Self { machine, holders: BTreeMap::new(), said: BTreeMap::new() };
        pooled.tell(pools, lists, now);
        for _ in 0..MOST_ROUNDS {
            for request in requests(planner, lists) {
                let kind = match request.holder.kind {
                    HolderKind::LoadBalancer => ConsumerKind::LoadBalancer,
                    _ => ConsumerKind::Service,
                };
                if asks(&request) {
                    let who = (kind, request.holder.key.clone());
                    pooled.holders.insert(who, request.holder.clone());
                }
                pooled.machine.handle(Event::Apply(Box::new(Object::Request(request))), now);
            }
            for kind in Kind::ALL {
                pooled.machine.handle(Event::Done(kind), now);
            }
            let decisions = pooled.machine.take(now).decisions;
            if decisions.is_empty() {
                break;
            }
            for (holder, decision) in decisions {
                let kind = match holder.kind {
                    HolderKind::Service => ConsumerKind::Service,
                    HolderKind::LoadBalancer => ConsumerKind::LoadBalancer,
                    HolderKind::ExternalIp => continue,
                };
                let mut grant = decision.as_deref().map(Decision::grant).unwrap_or_default();
                if let Some(said) = decision.and_then(|it| said_of_name(lists, &holder.key, &it)) {
                    pooled.said.insert(holder.key.clone(), said.clone());
                    grant.problem = Some(said);
                }
                planner.handle(planner::Event::Granted(kind, holder.key, grant));
            }
        }
        Some(pooled)
    }

    fn tell(&mut self, pools: &[AddressPool], lists: &Lists, now: i64) {
        let mut apply = |object| self.machine.handle(Event::Apply(Box::new(object)), now);
        pools.iter().for_each(|it| apply(Object::Pool(convert::pool(it))));
        lists.namespaces.iter().for_each(|it| apply(Object::Namespace(convert::namespace(it))));
        for node in &lists.nodes {
            let name = node.metadata.name.as_deref().unwrap_or_default().into();
            apply(Object::Node { name, addresses: convert::node_addresses(node) });
        }
        lists.external_ips.iter().for_each(|it| apply(Object::Request(convert::external_ip(it))));
        for record in lists.addresses.iter().filter_map(convert::record) {
            self.machine.handle(Event::Recorded(record), now);
        }
        // An address on a load balancer stays in use until the leader knows that the agent serves it no more.
        // That is unknown here, so every recorded address counts as served.
        let mut serving = Serving::default();
        for (holder, _) in serving.inherit_all(&self.machine, [], 0).places {
            let places = serving.of(&holder);
            self.machine.handle(Event::Serving { holder, places }, now);
        }
    }

    /// Why an object has the addresses that it has. None: it requests no address of a pool.
    pub(super) fn told(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Told> {
        let holder = self.holder(kind, key)?;
        if let Some(said) = self.said.get(key).filter(|_| kind == ConsumerKind::Service) {
            let (reason, message) = (said.reason.to_string(), said.message.to_string());
            return Some(Told { reason, message, remedy: None, unmet: true });
        }
        let Some(decision) = self.machine.decision(holder) else {
            return Some(Told {
                reason: Reason::Recording.to_string(),
                message: NOT_RECORDED.to_owned(),
                remedy: Some("see that a controller runs and leads: bowline status"),
                unmet: true,
            });
        };
        let Verdict { reason, message, remedy } = decision.verdict.clone();
        let unmet = decision.problem().is_some();
        Some(Told { reason: reason.to_string(), message, remedy, unmet })
    }

    /// The pools that an object was refused by, and why.
    pub(super) fn passed_over(
        &self,
        kind: ConsumerKind,
        key: &ObjectKey,
    ) -> Vec<(Arc<str>, String)> {
        let passed = self.holder(kind, key).map(|it| self.machine.passed_over(it));
        passed.into_iter().flatten().map(|it| (it.pool, it.why)).collect()
    }

    fn holder(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<&HolderRef> {
        self.holders.get(&(kind, key.clone()))
    }
}

/// Whether a request concerns pools. A consumer that cannot be on its load balancer requests nothing.
fn asks(request: &AddressRequest) -> bool {
    match &request.ask {
        Ok(ask) => *ask != Ask::Nothing,
        Err(problem) => problem.reason == Reason::BadValue,
    }
}

/// The address requests of Services and load balancers, as the planner has them now.
fn requests(planner: &Planner, lists: &Lists) -> Vec<AddressRequest> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let services = lists.services.iter().filter_map(|it| {
        let key = ObjectKey::new(text(&it.metadata.namespace), text(&it.metadata.name));
        planner.service_request(&key, shown(it))
    });
    let balancers = lists.load_balancers.iter().filter_map(|it| {
        let shown = it.status.iter().flat_map(|status| &status.ingress);
        let shown = shown.filter_map(|point| point.ip).collect();
        planner.load_balancer_request(&text(&it.metadata.name), shown)
    });
    services.chain(balancers).filter(AddressRequest::is_news).collect()
}

/// The addresses in the status of a Service.
fn shown(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|it| it.load_balancer.as_ref());
    let points = status.and_then(|it| it.ingress.as_ref()).into_iter().flatten();
    points.filter_map(|point| point.ip.as_ref()?.parse().ok()).collect()
}

/// Why a Service has no address from its DNS name, in the leader's words: no names are looked up here.
fn said_of_name(lists: &Lists, key: &ObjectKey, decision: &Decision) -> Option<Problem> {
    if decision.verdict.reason != Reason::NamePending {
        return None;
    }
    let is_it = |it: &&Service| {
        it.metadata.namespace.as_deref() == Some(&*key.namespace)
            && it.metadata.name.as_deref() == Some(&*key.name)
    };
    let service = lists.services.iter().find(is_it)?;
    let mut conditions = service.status.iter().flat_map(|it| &it.conditions).flatten();
    let said = conditions
        .find(|it| it.type_ == names::CONDITION_ADDRESS_FROM_DNS && it.status == "False")?;
    let reason = serde_json::from_value(said.reason.as_str().into()).ok()?;
    Some(Problem::new(reason, said.message.as_str()))
}

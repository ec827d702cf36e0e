//! How a Service comes by its address: what it asks for, in its own words, which pools were passed over and why,
//! which Address objects say that it has one, and what the leader says about it. Decides nothing. Pure.

use super::addresses::{AddressView, ConditionView, views};
use super::explain::ProblemView;
use super::facts::Facts;
use super::pooled::{Pooled, Told};
use bowline_api::annotations::{self, ADDRESS_POOL, ALLOW_SHARED_IP, ASSIGN_FROM_FQDN, VIP};
use bowline_api::names;
use bowline_core::key::{ConsumerKind, ObjectKey};
use k8s_openapi::api::core::v1::Service;
use serde::Serialize;

/// From what is asked for to what is recorded.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ChainView {
    /// What the Service says of addresses; nothing: any address will do.
    pub(super) asks: Vec<AskView>,
    /// The pools that it has no address of, as they are looked at, up to the one that it has.
    pub(super) passed: Vec<PassedView>,
    /// The Address objects that name it.
    pub(super) held: Vec<AddressView>,
    /// Why it has what it has; none where pools may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Told>,
    /// What the leader says: whether it has its address and, where it takes it from a name, how that went.
    pub(super) conditions: Vec<ConditionView>,
    /// Whether no load balancer carries it.
    pub(super) alone: bool,
}

/// A pool that a Service has no address of.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct PassedView {
    pub(super) pool: String,
    pub(super) why: String,
}

/// Something that a Service says of addresses.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct AskView {
    pub(super) what: What,
    /// Where it says so: an annotation, or a field of its spec.
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// What an ask is for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum What {
    /// This address.
    Address,
    /// The address that this name resolves to.
    Name,
    /// An address of this pool.
    Pool,
    /// To share it with those who have the same key.
    Sharing,
}

impl ChainView {
    /// The chain of a Service; None where pools have nothing to do with it: it asks for nothing, has
    /// nothing, and is not one that gets an address without a load balancer.
    pub(super) fn of(facts: &Facts, key: &ObjectKey) -> Option<Self> {
        let service = facts.services.get(key)?;
        let asks = asks(service);
        let uid = service.metadata.uid.as_deref();
        let mut held = views(&facts.addresses, facts.now);
        held.retain(|it| it.holders.iter().any(|holder| uid == Some(&*holder.uid)));
        let alone = facts.planner.is_alone(key);
        if asks.is_empty() && held.is_empty() && !alone {
            return None;
        }
        let ours = [names::CONDITION_ADDRESS_FROM_DNS, names::CONDITION_SERVICE_PROGRAMMED];
        let conditions = service.status.iter().flat_map(|status| &status.conditions).flatten();
        let conditions = conditions.filter(|it| ours.contains(&&*it.type_)).map(ConditionView::of);
        Some(Self {
            asks,
            passed: facts.pooled.iter().flat_map(|it| passed(it, key)).collect(),
            held,
            verdict: facts.told_of_address(ConsumerKind::Service, key),
            conditions: conditions.collect(),
            alone,
        })
    }

    /// What the leader says is wrong with its address.
    pub(super) fn not_programmed(&self) -> Option<ProblemView> {
        let condition = self.condition(names::CONDITION_SERVICE_PROGRAMMED)?;
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        (condition.status != "True").then_some(ProblemView { reason, message })
    }

    /// What the leader says of one matter.
    pub(super) fn condition(&self, type_: &str) -> Option<&ConditionView> {
        self.conditions.iter().find(|it| it.type_ == type_)
    }
}

fn passed(pooled: &Pooled, key: &ObjectKey) -> impl Iterator<Item = PassedView> {
    let all = pooled.passed_over(ConsumerKind::Service, key).into_iter();
    all.map(|(pool, why)| PassedView { pool: pool.to_string(), why })
}

fn asks(service: &Service) -> Vec<AskView> {
    let empty = Default::default();
    let all = service.metadata.annotations.as_ref().unwrap_or(&empty);
    let ask = |what, key, value: &str| AskView { what, key, value: value.to_owned() };
    // All spellings of an address must say the same, so all are shown; of the others the first counts.
    let spellings = std::iter::once(VIP.name).chain(VIP.alternatives.iter().copied());
    let mut asks: Vec<AskView> =
        spellings.filter_map(|key| Some(ask(What::Address, key, all.get(key)?))).collect();
    let field = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref());
    let field = field.filter(|value| !value.is_empty());
    asks.extend(field.map(|value| ask(What::Address, "spec.loadBalancerIP", value)));
    let others = [
        (What::Name, &ASSIGN_FROM_FQDN),
        (What::Pool, &ADDRESS_POOL),
        (What::Sharing, &ALLOW_SHARED_IP),
    ];
    let others = others.into_iter().filter_map(|(what, key)| {
        let found = annotations::read(all, key)?;
        Some(ask(what, found.key, found.value))
    });
    asks.extend(others);
    asks
}

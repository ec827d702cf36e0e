//! How a Service gets its address: its request in its own words, the pools that were passed over and why, the
//! Address objects that name it, and the leader's conditions. It decides nothing. Pure.

use super::addresses::{AddressView, ConditionView, views};
use super::explain::ProblemView;
use super::facts::Facts;
use super::pooled::{Pooled, Told};
use bowline_api::annotation_keys::{self, ADDRESS_POOL, ALLOW_SHARED_IP, ASSIGN_FROM_FQDN, VIP};
use bowline_api::names;
use bowline_core::diagnosis;
use bowline_core::key::{ConsumerKind, ObjectKey};
use k8s_openapi::api::core::v1::Service;
use serde::Serialize;

/// The steps from the request to the record.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ChainView {
    /// The Service's requests for addresses; empty: any address will do.
    pub(super) asks: Vec<AskView>,
    /// The pools that gave it no address, in the order in which they are tried, up to the one that did.
    pub(super) passed: Vec<PassedView>,
    /// The Address objects that name the Service.
    pub(super) held: Vec<AddressView>,
    /// Why it has what it has; None if pools cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Told>,
    /// The leader's conditions: whether the Service has its address and, if the address comes from a name,
    /// whether the look-up worked.
    pub(super) conditions: Vec<ConditionView>,
    /// Whether the Service is on no load balancer.
    pub(super) alone: bool,
}

/// A pool that gave a Service no address.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct PassedView {
    pub(super) pool: String,
    pub(super) why: String,
}

/// A request of a Service that concerns addresses.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct AskView {
    pub(super) what: What,
    /// The annotation or the field of its spec.
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum What {
    /// This address.
    Address,
    /// The address that this name resolves to.
    Name,
    /// An address of this pool.
    Pool,
    /// Sharing with Services that have the same key.
    Sharing,
}

impl ChainView {
    /// The chain of a Service. None: pools do not concern it, because it requests nothing, has nothing, and gets
    /// no address without a load balancer.
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

    /// The leader's problem with the Service's address.
    pub(super) fn not_programmed(&self) -> Option<ProblemView> {
        let condition = self.condition(names::CONDITION_SERVICE_PROGRAMMED)?;
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        let remedy =
            diagnosis::of_word(&reason).and_then(|it| it.helps).map(|it| it.what.to_owned());
        (condition.status != "True").then_some(ProblemView { reason, message, remedy })
    }

    /// The leader's condition of a type.
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
    // All spellings of an address must agree, so all are shown; of the other requests the first counts.
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
        let found = annotation_keys::read(all, key)?;
        Some(ask(what, found.key, found.value))
    });
    asks.extend(others);
    asks
}

//! The AddressPools of a cluster and the addresses in use: what `bowline status --addresses -o json`
//! prints. It uses AddressPool and Address objects only. Pure.

use super::{View, addresses_text};
use bowline_api::address::{
    Address, AddressState, AddressStatus, HeldPort, Holder, HolderKind, address_of_name,
};
use bowline_api::address_pool::{AddressPool, FamilyCounts};
use bowline_api::load_balancer::Scope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// All pools and addresses.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Addresses {
    pub(super) pools: Vec<PoolView>,
    pub(super) addresses: Vec<AddressView>,
    pub(super) notes: Vec<String>,
}

/// An AddressPool.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolView {
    pub(super) name: String,
    /// As in its spec.
    pub(super) addresses: Vec<String>,
    pub(super) auto_assign: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<Scope>,
    /// None: the leader has not counted yet, or the pool has no addresses of this family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv4: Option<FamilyCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipv6: Option<FamilyCounts>,
    pub(super) conditions: Vec<ConditionView>,
}

/// An address that has a holder or rests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AddressView {
    pub(super) address: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pool: Option<String>,
    pub(super) state: AddressState,
    /// When draining or resting ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// The seconds left until then, by the clock of this machine.
    #[serde(skip)]
    pub(super) left: Option<i64>,
    pub(super) holders: Vec<HolderView>,
}

/// A holder of an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct HolderView {
    pub(super) kind: HolderKind,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
    /// Empty: all ports.
    pub(super) ports: Vec<HeldPort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// The load balancer on which a Service has the address; None: no load balancer.
    #[serde(rename = "loadBalancer", skip_serializing_if = "Option::is_none")]
    pub(super) load_balancer: Option<String>,
    #[serde(skip)]
    pub(super) uid: String,
}

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ConditionView {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Addresses {
    /// Builds the view, sorted by name and by address.
    pub(crate) fn of(
        pools: &[AddressPool],
        addresses: &[Address],
        notes: Vec<String>,
        now: Timestamp,
    ) -> Self {
        let mut pools: Vec<_> = pools.iter().map(PoolView::of).collect();
        pools.sort_by(|one, other| one.name.cmp(&other.name));
        Self { pools, addresses: views(addresses, now), notes }
    }

    /// The same with only the addresses that a holder of this namespace has. Pools belong to no namespace.
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        self.addresses.retain(|it| it.holders.iter().any(|holder| holder.namespace == namespace));
        self
    }
}

impl View for Addresses {
    fn kind(&self) -> &'static str {
        "Addresses"
    }

    fn text(&self) -> String {
        addresses_text::addresses(self)
    }
}

impl PoolView {
    fn of(pool: &AddressPool) -> Self {
        let status = pool.status.clone().unwrap_or_default();
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            addresses: pool.spec.addresses.clone(),
            auto_assign: pool.spec.auto_assign,
            scope: pool.spec.scope,
            ipv4: status.ipv4,
            ipv6: status.ipv6,
            conditions: status.conditions.iter().map(ConditionView::of).collect(),
        }
    }
}

/// Address objects in the order of their addresses.
pub(super) fn views(addresses: &[Address], now: Timestamp) -> Vec<AddressView> {
    let mut all: Vec<_> = addresses.iter().filter_map(|it| AddressView::of(it, now)).collect();
    all.sort_by_key(|it| it.address);
    all
}

impl AddressView {
    /// None: its name is no address, so the leader did not create it.
    fn of(object: &Address, now: Timestamp) -> Option<Self> {
        let AddressStatus { state, until, .. } = object.status.clone().unwrap_or_default();
        let until = until.map(|time| time.0);
        Some(Self {
            address: address_of_name(object.metadata.name.as_deref()?)?,
            pool: object.spec.pool.clone(),
            // The state is written after the object; a missing state means Active.
            state: state.unwrap_or(AddressState::Active),
            until,
            left: until.map(|until| until.as_second() - now.as_second()),
            holders: object.spec.holders.iter().map(HolderView::of).collect(),
        })
    }
}

impl AddressView {
    /// An address that no Address object records: these load balancers have it as their own.
    pub(super) fn own(address: IpAddr, load_balancers: BTreeSet<Arc<str>>) -> Self {
        let holder = |name: Arc<str>| HolderView {
            kind: HolderKind::LoadBalancer,
            namespace: String::new(),
            name: name.to_string(),
            ports: Vec::new(),
            key: None,
            load_balancer: None,
            uid: String::new(),
        };
        Self {
            address,
            pool: None,
            state: AddressState::Active,
            until: None,
            left: None,
            holders: load_balancers.into_iter().map(holder).collect(),
        }
    }
}

impl HolderView {
    fn of(holder: &Holder) -> Self {
        Self {
            kind: holder.kind,
            namespace: holder.namespace.clone().unwrap_or_default(),
            name: holder.name.clone(),
            ports: holder.ports.clone(),
            key: holder.key.clone(),
            load_balancer: holder.load_balancer.clone(),
            uid: holder.uid.clone(),
        }
    }
}

impl ConditionView {
    pub(super) fn of(condition: &Condition) -> Self {
        Self {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        }
    }
}

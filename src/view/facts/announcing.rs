//! What decides about announcements, and what speakers report. Pure.

use super::Facts;
use crate::view::announcements::{AnnouncedView, Own, announced};
use crate::view::list::Lists;
use bowline_api::address::address_of_name;
use bowline_api::{Address, Advertisement, BGPPeer, convert};
use bowline_core::addresses::Labels;
use bowline_core::announce::{Object, SpeakerNode};
use bowline_core::key::ObjectKey;
use bowline_core::report::speaker::SpeakerReport;
use bowline_runtime::lease;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What is the same for all addresses.
#[derive(Clone, Debug, Default)]
pub(in crate::view) struct Announcing {
    pub(in crate::view) advertisements: Vec<Advertisement>,
    pub(in crate::view) peers: Vec<BGPPeer>,
    pub(in crate::view) pools: Vec<(Arc<str>, Labels)>,
    pub(in crate::view) nodes: Vec<SpeakerNode>,
    /// Of the speakers that live.
    pub(in crate::view) reports: Vec<SpeakerReport>,
    /// Whether Advertisements and BGPPeers may be listed.
    pub(in crate::view) known: bool,
}

impl Announcing {
    pub(super) fn of(lists: &Lists, now: Timestamp) -> Self {
        let hidden = ["advertisements.bowline.dev", "bgppeers.bowline.dev"];
        Self {
            advertisements: lists.advertisements.clone(),
            peers: lists.peers.clone(),
            pools: lists.pools.iter().flatten().map(convert::pool_labels).collect(),
            nodes: lists.nodes.iter().map(convert::speaker_node).collect(),
            reports: lists.leases.iter().filter_map(|it| lease::live_speaker(it, now)).collect(),
            known: hidden.iter().all(|it| !lists.hidden.contains(it)),
        }
    }

    fn objects(&self) -> impl Iterator<Item = Object> {
        let advertisements = self
            .advertisements
            .iter()
            .filter_map(|it| Some(Object::Advertisement(convert::advertisement(it).ok()?.into())));
        let peers = self.peers.iter();
        let peers = peers.filter_map(|it| Some(Object::Peer(convert::bgp_peer(it).ok()?.into())));
        let pools =
            self.pools.iter().map(|(name, labels)| Object::Pool(name.clone(), labels.clone()));
        let nodes = self.nodes.iter().cloned().map(Object::Node);
        advertisements.chain(peers).chain(pools).chain(nodes)
    }
}

impl Facts {
    /// The Address object of an address.
    pub(in crate::view) fn address(&self, address: IpAddr) -> Option<&Address> {
        self.addresses
            .iter()
            .find(|it| it.metadata.name.as_deref().and_then(address_of_name) == Some(address))
    }

    /// Where these addresses are announced, of those that an Address object records or a load balancer has as its own.
    pub(in crate::view) fn announced(&self, addresses: &[IpAddr]) -> Vec<AnnouncedView> {
        let recorded: Vec<_> = addresses.iter().filter_map(|it| self.address(*it)).collect();
        let own = self.own(addresses.iter().filter(|it| self.address(**it).is_none()));
        let records: Vec<_> = recorded.iter().filter_map(|it| convert::record(it)).collect();
        let holders = records.iter().flat_map(|it| &it.content.holders);
        let keys: BTreeSet<&ObjectKey> = holders.map(|it| &it.holder.key).collect();
        let services = self.services.iter().filter(|(key, _)| keys.contains(key));
        let services = services.map(|(key, it)| {
            let (_, mut service) = convert::announced_service(it);
            // What kube-proxy says on a node is not known here.
            service.health_check_port = None;
            Object::Service(key.clone(), service)
        });
        let concerns = |it: &&bowline_core::objects::Slice| {
            let service = it.service.as_ref();
            service.is_some_and(|name| {
                keys.contains(&ObjectKey::new(it.key.namespace.clone(), name.clone()))
            })
        };
        let slices = self.slices.iter().filter(concerns).cloned().map(Object::Slice);
        let mut at: BTreeSet<_> = records.iter().map(|it| it.address).collect();
        let addresses = recorded
            .iter()
            .filter_map(|it| Some(Object::Address(convert::record(it)?, convert::announcing(it))));
        let objects: Vec<_> =
            addresses.chain(self.announcing.objects()).chain(services).chain(slices).collect();
        at.extend(own.keys());
        announced(at, &self.announcing.reports, &objects, &own)
    }

    /// Those of these addresses that a load balancer has as its own, with the load balancers.
    pub(in crate::view) fn own<'a>(&self, addresses: impl Iterator<Item = &'a IpAddr>) -> Own {
        let usable = addresses.filter(|it| !it.is_loopback() && !it.is_unspecified());
        let of = |address: &IpAddr| {
            let all = self.load_balancers.iter();
            let has = all.filter(|(_, it)| it.spec.addresses.contains(address));
            (*address, has.map(|(name, _)| name.as_str().into()).collect::<BTreeSet<Arc<str>>>())
        };
        usable.map(of).filter(|(_, load_balancers)| !load_balancers.is_empty()).collect()
    }
}

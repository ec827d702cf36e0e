//! What the leader tells of announced addresses: `status.announcedBy` of an Address, and the condition of the Services
//! that have it. It does no I/O; `State::next` calls it.

use super::State;
use crate::controller::target::{Next, Target, Tried};
use crate::controller::writer::Write;
use bowline_api::address::{AnnouncedBy, MOST_ANNOUNCING};
use bowline_core::addresses::HolderKind;
use bowline_core::announce;
use bowline_core::key::ConsumerKind;
use bowline_core::point::Point;
use bowline_core::status::Condition;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

impl State {
    /// Enqueues what shows where an address is announced.
    pub(super) fn announcement_changed(&mut self, address: IpAddr) {
        self.outbox.enqueue(Target::Announced(address));
        let holders = self.addresses.content(address).into_iter().flat_map(|it| &it.holders);
        let holders: Vec<_> = holders.map(|it| (it.holder.kind, it.holder.key.clone())).collect();
        for (kind, key) in holders {
            match kind {
                HolderKind::Service => {
                    self.outbox.enqueue(Target::Consumer(ConsumerKind::Service, key));
                }
                HolderKind::LoadBalancer => {
                    let consumers = self.consumers_on(&key.name);
                    let services = consumers.filter(|(kind, _)| *kind == ConsumerKind::Service);
                    let targets: Vec<_> =
                        services.map(|(kind, key)| Target::Consumer(kind, key)).collect();
                    self.outbox.enqueue_all(targets);
                }
                HolderKind::ExternalIp => {}
            }
        }
    }

    pub(super) fn next_announced(&self, address: IpAddr) -> Next {
        let Some(version) = self.announced.version(address) else { return Next::Nothing };
        let want = self.speakers.announced_by(address).map(announced_by);
        if want.as_ref() == self.announced.shown(address) {
            return Next::Nothing;
        }
        // A merge patch removes a field only by null.
        let want = want.map(|it| {
            json!({"owner": it.owner, "bgpNodes": it.bgp_nodes, "firstBGPNodes": it.first_bgp_nodes})
        });
        let patch =
            json!({"metadata": {"resourceVersion": version}, "status": {"announcedBy": want}});
        Next::Write(Write::Announced(address, patch), Tried::at(version))
    }

    /// The condition of a Service that shows these points. None: announcing is not Bowline's work there.
    pub(super) fn announced_condition(&self, points: &[Point]) -> Option<Condition> {
        let addresses = points.iter().filter_map(|point| match point {
            Point::At(address) => Some(*address),
            Point::Named(_) => None,
        });
        // A speaker announces only what an Address object records. An address of no pool may be one that the machines
        // have by themselves.
        let recorded = addresses.filter(|it| {
            let of_pool = self.addresses.content(*it).is_some_and(|it| it.pool.is_some());
            let is_announced = self.speakers.announced_by(*it).is_some();
            self.announced.version(*it).is_some() && (of_pool || is_announced)
        });
        let recorded: Vec<_> = recorded.collect();
        self.speakers.condition(&recorded)
    }
}

fn announced_by(by: &announce::AnnouncedBy) -> AnnouncedBy {
    let name = |it: &Arc<str>| it.to_string();
    let first = by.bgp.iter().take(MOST_ANNOUNCING);
    AnnouncedBy {
        owner: by.owners.first().map(name),
        bgp_nodes: i32::try_from(by.bgp.len()).unwrap_or(i32::MAX),
        // As the server gives it back: an empty list is there.
        first_bgp_nodes: first.map(name).collect(),
    }
}

//! The members of pools as an agent would resolve them, each with its Pod. Pure.

use super::facts::Facts;
use bowline_core::key::ObjectKey;
use bowline_core::member_rules::MemberRules;
use bowline_core::plan::{Fragment, Pool};
use bowline_core::resolver::{Event, Kind, Object, Resolver};
use bowline_core::update::{Member, MemberState};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// A member of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MemberView {
    pub(super) address: SocketAddr,
    pub(super) state: &'static str,
    /// The Pod, or the other target that the EndpointSlice names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
}

const READY: &str = "Ready";

impl MemberView {
    /// Whether new connections may go to it.
    pub(super) fn is_ready(&self) -> bool {
        self.state == READY
    }
}

/// The members of all pools of these fragments, by the pool's name.
pub(super) fn members(
    facts: &Facts,
    fragments: &[Arc<Fragment>],
) -> BTreeMap<Arc<str>, Vec<MemberView>> {
    // Which members an agent leaves out depends on its machine and is in its report; here none is left
    // out for that.
    let mut resolver = Resolver::with(MemberRules { loopback: true, ..MemberRules::default() });
    let mut kind = |kind: Kind, objects: &mut dyn Iterator<Item = Object>| {
        resolver.handle(Event::Begin(kind));
        objects.for_each(|object| resolver.handle(Event::Apply(object)));
        resolver.handle(Event::Done(kind));
    };
    let shard: Vec<Fragment> = fragments.iter().map(|fragment| (**fragment).clone()).collect();
    kind(Kind::Shard, &mut std::iter::once(Object::Shard("0".into(), 0, shard.into())));
    kind(Kind::Slice, &mut facts.slices.iter().cloned().map(Object::Slice));
    kind(Kind::Node, &mut facts.nodes.iter().cloned().map(Object::Node));
    kind(Kind::Certificates, &mut std::iter::empty());
    let update = resolver.take().unwrap_or_default();
    let pools = fragments.iter().flat_map(|fragment| &fragment.pools);
    let pools: BTreeMap<&str, &Pool> = pools.map(|pool| (&*pool.name, pool)).collect();
    let view = |change: bowline_core::update::MemberChange| {
        let pool = pools.get(&*change.pool)?;
        let members = change.members.iter().map(|member| member_view(facts, pool, member));
        Some((change.pool.clone(), members.collect()))
    };
    update.members.into_iter().filter_map(view).collect()
}

fn member_view(facts: &Facts, pool: &Pool, member: &Member) -> MemberView {
    let state = match member.state {
        MemberState::Ready => READY,
        MemberState::Draining => "Draining",
    };
    MemberView { address: member.address, state, target: target(facts, pool, member.address) }
}

/// The target of an address in the EndpointSlices of the pool's Service.
fn target(facts: &Facts, pool: &Pool, address: SocketAddr) -> Option<String> {
    let service = ObjectKey::new(pool.service.namespace.clone(), pool.service.name.clone());
    let ours = facts.slices.iter().filter(|slice| {
        slice.key.namespace == service.namespace
            && slice.service.as_deref() == Some(&*service.name)
            && slice.ports.iter().any(|port| port.number == address.port())
    });
    let mut endpoints = ours.flat_map(|slice| &slice.endpoints);
    let found = endpoints.find(|endpoint| endpoint.address == address.ip())?;
    found.target.as_deref().map(str::to_owned)
}

//! Which pools were passed over for a requester, and why: for explanations. It decides and changes nothing; it asks
//! the same questions as [`super::choose`].

use super::choose::{Plan, View};
use super::machine::Addresses;
use super::pools::Slot;
use super::record::HolderRef;
use super::request::{AddressRequest, Ask};
use crate::objects::Family;
use std::net::IpAddr;
use std::sync::Arc;

/// A pool of which a requester has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The pool.
    pub pool: Arc<str>,
    /// Why, in a few words.
    pub why: String,
}

impl Addresses {
    /// The pools that come before the one of which a holder has an address, or all pools if it has none, in the order
    /// in which they are tried. Empty for a holder that asks for nothing.
    pub fn passed_over(&self, holder: &HolderRef) -> Vec<PassedOver> {
        let Some(request) = self.requester_of(holder).map(|requester| &requester.request) else {
            return Vec::new();
        };
        let Ok(ask) = &request.ask else { return Vec::new() };
        let view = self.view();
        let pools = &self.ledger.pools;
        let order = pools.order().iter().filter_map(|name| pools.get(name));
        let others = pools.iter().filter(|slot| !pools.order().contains(&slot.pool.name));
        let has = |slot: &Slot| {
            let holds = self.ledger.holds(&holder.uid).iter();
            let mut held = holds.filter(|hold| hold.leave.is_none()).map(|hold| hold.address);
            held.any(|it| view.pool_name(it) == Some(&slot.pool.name))
        };
        let looked_at = match ask {
            Ask::Nothing => return Vec::new(),
            _ => order.chain(others).take_while(|slot| !has(slot)),
        };
        let families = view.wanted(request);
        looked_at
            .map(|slot| PassedOver {
                pool: slot.pool.name.clone(),
                why: why(&view, request, ask, slot, families),
            })
            .collect()
    }
}

fn why(
    view: &View<'_>,
    request: &AddressRequest,
    ask: &Ask,
    slot: &Slot,
    families: &[Family],
) -> String {
    let name = &slot.pool.name;
    let plan = Plan { families: &[], ..Plan::default() };
    if ask.pool().is_some_and(|named| named != name) {
        return "another pool is asked for".to_owned();
    }
    match ask {
        Ask::Addresses { addresses, .. } => {
            let inside = |it: &&IpAddr| view.pool_name(**it) == Some(name);
            let refused = addresses.iter().filter(inside).find_map(|address| {
                view.grantable(request, *address, ask.pool(), &plan).err().map(|(_, why)| why)
            });
            match (refused, addresses.iter().any(|it| inside(&it))) {
                (Some(refusal), _) => refusal.to_string(),
                (None, true) => "has the address that is asked for".to_owned(),
                (None, false) => "does not have the address that is asked for".to_owned(),
            }
        }
        Ask::Name { name, .. } if !slot.pool.allows_name(name) => {
            "does not allow names of this domain".to_owned()
        }
        Ask::Any if !slot.pool.auto_assign => slot.passed_by_all().1.to_string(),
        Ask::Nothing | Ask::Any | Ask::Pool(_) | Ask::Name { .. } => {
            let mut refused =
                families.iter().filter_map(|family| view.pick(request, name, *family, &plan).err());
            match (refused.next(), ask) {
                (Some(refusal), _) => refusal.to_string(),
                (None, Ask::Name { .. }) => {
                    "the name resolves to no free address of this pool, as far as is known"
                        .to_owned()
                }
                (None, _) => {
                    "has a free address, but the address that is already assigned stays".to_owned()
                }
            }
        }
    }
}

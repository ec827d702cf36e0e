//! Checks that pools do not overlap, and that a live agent serves each address in use. Pure.

use super::processes::{is_carried, start};
use super::{Check, Checked, bounded, some};
use crate::view::facts::Facts;
use crate::view::words::count;
use bowline_api::{Address, AddressPool, convert};
use bowline_core::outcome::quote;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn pools(pools: Option<&[AddressPool]>) -> Vec<Checked> {
    let Some(pools) = pools else {
        return Check::Pools.unknown("you may not list addresspools.bowline.dev");
    };
    let all: Vec<_> = pools.iter().map(convert::pool).collect();
    let mut found = Vec::new();
    for (index, one) in all.iter().enumerate() {
        for entry in &one.refused {
            let message = format!("AddressPool {}: {entry}", one.name);
            found.push(Check::Pools.wrong(message, "correct the entry in spec.addresses"));
        }
        for other in &all[index + 1..] {
            let both = one.ranges.iter().find(|it| other.ranges.iter().any(|or| it.overlaps(or)));
            let Some(range) = both else { continue };
            let message = format!(
                "AddressPools {} and {} overlap in {range}: the younger one grants no new addresses",
                one.name, other.name
            );
            found.push(
                Check::Pools.wrong(message, "take the addresses out of spec.addresses of one"),
            );
        }
    }
    let fine = format!("{}, none overlap", count(all.len(), "AddressPool"));
    Check::Pools.or_ok(bounded(found), fine)
}

pub(super) fn addresses(facts: &Facts) -> Vec<Checked> {
    let mut silent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut all = 0;
    for address in &facts.addresses {
        for name in carriers(address) {
            all += 1;
            if !is_carried(facts, name) {
                silent.entry(name).or_default().push(plain(address));
            }
        }
    }
    let found = silent.iter().map(|(name, addresses)| {
        let (message, remedy) = match facts.load_balancers.contains_key(*name) {
            true => (
                format!("no live agent of {name} serves {}", some(addresses)),
                format!("bring its agent back: {}", start(facts, name)),
            ),
            false => (
                format!("load balancer {} does not exist and has {}", quote(name), some(addresses)),
                "wait for the leader to release them, or see its log".to_owned(),
            ),
        };
        Check::Addresses.wrong(message, remedy)
    });
    let fine = format!("{} on load balancers, all with a live agent", count_addresses(all));
    Check::Addresses.or_ok(bounded(found.collect()), fine)
}

/// The load balancers on which an address is in use.
fn carriers(address: &Address) -> BTreeSet<&str> {
    use bowline_api::address::HolderKind;
    let holders = address.spec.holders.iter();
    holders
        .filter_map(|holder| match holder.kind {
            HolderKind::LoadBalancer => Some(holder.name.as_str()),
            _ => holder.load_balancer.as_deref(),
        })
        .collect()
}

fn plain(address: &Address) -> String {
    let name = address.metadata.name.as_deref().unwrap_or_default();
    let read = bowline_api::address::address_of_name(name);
    read.map_or_else(|| name.to_owned(), |it| it.to_string())
}

fn count_addresses(number: usize) -> String {
    if number == 1 { "1 address".to_owned() } else { format!("{number} addresses") }
}

//! What holders have by the Address objects alone: for programs that may not read AddressPools, so cannot run the
//! machine. A draining address drains only for holders that have another one; its other holders keep it.

use super::record::{AddressState, HolderRef, Record};
use crate::objects::{Family, Timestamp};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The addresses of a holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Those that it has; sorted.
    pub addresses: Vec<IpAddr>,
    /// Those that it has until it leaves them; sorted.
    pub draining: Vec<IpAddr>,
}

/// An address of a holder, and since when it has it; active ones after others.
type Had = (bool, Timestamp, IpAddr);

/// The addresses of all holders that are recorded.
pub fn holdings(records: impl IntoIterator<Item = Record>) -> BTreeMap<HolderRef, Holding> {
    let mut all: BTreeMap<(HolderRef, Family), Vec<Had>> = BTreeMap::new();
    for Record { address, content, .. } in records {
        let active = !matches!(content.state, AddressState::Draining { .. });
        for it in content.holders {
            let its = all.entry((it.holder, Family::of(address))).or_default();
            its.push((active, it.since, address));
        }
    }
    let mut holdings: BTreeMap<HolderRef, Holding> = BTreeMap::new();
    for ((holder, _), mut its) in all {
        // Without an active one, the one that it got last is the one that it keeps.
        its.sort_unstable();
        let last = its.last().map(|(_, _, address)| *address);
        let holding = holdings.entry(holder).or_default();
        for (active, _, address) in its {
            match active || Some(address) == last {
                true => holding.addresses.push(address),
                false => holding.draining.push(address),
            }
        }
    }
    for holding in holdings.values_mut() {
        holding.addresses.sort_unstable();
        holding.draining.sort_unstable();
    }
    holdings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::{Content, Holder, HolderKind};
    use crate::key::ObjectKey;
    use crate::objects::Version;

    fn who(name: &str) -> HolderRef {
        HolderRef { key: ObjectKey::new("shop", name), kind: HolderKind::Service, uid: name.into() }
    }

    /// An address with holders, each with the time since when it has the address.
    fn record(address: &str, drains: bool, holders: &[(&str, Timestamp)]) -> Record {
        let holder = |(name, since): &(&str, Timestamp)| Holder {
            holder: who(name),
            ports: Vec::new(),
            key: None,
            load_balancer: None,
            since: *since,
        };
        let state = match drains {
            true => AddressState::Draining { until: 100 },
            false => AddressState::Active,
        };
        Record {
            address: address.parse().unwrap(),
            version: Version("1".into()),
            content: Content { pool: None, holders: holders.iter().map(holder).collect(), state },
        }
    }

    fn of(holdings: &BTreeMap<HolderRef, Holding>, name: &str) -> (Vec<String>, Vec<String>) {
        let text = |all: &[IpAddr]| all.iter().map(ToString::to_string).collect();
        let Holding { addresses, draining } = holdings[&who(name)].clone();
        (text(&addresses), text(&draining))
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_shared_address_drains_only_for_the_holder_that_has_another_one() {
        let all = holdings([
            record("203.0.113.1", true, &[("leaves", 1), ("stays", 2)]),
            record("203.0.113.2", false, &[("leaves", 5)]),
        ]);
        assert_eq!(of(&all, "leaves"), (texts(&["203.0.113.2"]), texts(&["203.0.113.1"])));
        assert_eq!(of(&all, "stays"), (texts(&["203.0.113.1"]), texts(&[])));
    }

    #[test]
    fn an_address_of_the_other_family_is_no_other_one() {
        let all = holdings([
            record("203.0.113.1", true, &[("web", 1)]),
            record("2001:db8::1", false, &[("web", 5)]),
        ]);
        assert_eq!(of(&all, "web"), (texts(&["203.0.113.1", "2001:db8::1"]), texts(&[])));
    }

    #[test]
    fn of_addresses_that_all_drain_the_last_one_is_kept() {
        let all = holdings([
            record("203.0.113.7", true, &[("web", 9)]),
            record("203.0.113.8", true, &[("web", 3)]),
        ]);
        assert_eq!(of(&all, "web"), (texts(&["203.0.113.7"]), texts(&["203.0.113.8"])));
    }
}

//! The members of a pool from endpoints and nodes, and the difference of two lists of members. Pure functions, called
//! by `pools`.

use super::endpoints::Endpoints;
use super::nodes::Nodes;
use super::refused_members::Guard;
use crate::member_rules::{LeftOut, MOST_MEMBERS};
use crate::plan::{Backends, Pool};
use crate::update::{Member, MemberChange, MemberState};
use std::cmp::Ordering;
use std::net::SocketAddr;
use std::sync::Arc;

/// All possible members of a pool now, sorted by address, and the endpoints that are left out.
pub(super) fn resolve(
    pool: &Pool,
    endpoints: &Endpoints,
    nodes: &Nodes,
    guard: &Guard,
) -> (Arc<[Member]>, LeftOut) {
    let mut left = LeftOut::default();
    let members = match &pool.backends {
        // Tenants write EndpointSlices; administrators write Nodes.
        Backends::Pods => fit(endpoints.pods(&pool.service), guard, &mut left),
        Backends::Nodes(to) => {
            let member =
                |ip, state| Member { address: SocketAddr::new(ip, to.node_port), weight: 1, state };
            if to.local_only {
                let local = endpoints.nodes(&pool.service).into_iter();
                local
                    .flat_map(|(node, state)| nodes.of(node).map(move |ip| member(ip, state)))
                    .collect()
            } else {
                nodes.all().map(|ip| member(ip, MemberState::Ready)).collect()
            }
        }
    };
    (settle(members).into(), left)
}

/// Chooses at most `room` members of a pool, the number that its namespace has left. Members that the pool already has
/// (`before`, sorted) are kept first.
pub(super) fn choose(
    all: &Arc<[Member]>,
    before: &[Member],
    room: usize,
    left: &mut LeftOut,
) -> Arc<[Member]> {
    let most = MOST_MEMBERS.min(room);
    let over = all.len().saturating_sub(most);
    if over == 0 {
        return all.clone();
    }
    match room < MOST_MEMBERS {
        true => left.note_crowded(over),
        false => left.note_over(over),
    }
    at_most(most, all, before)
}

/// Removes the members that the guard refuses.
fn fit(mut members: Vec<Member>, guard: &Guard, left: &mut LeftOut) -> Vec<Member> {
    let mut unfit = Vec::new();
    members.retain(|member| {
        let why = guard.refuse(member.address);
        unfit.extend(why.map(|why| (member.address, why)));
        why.is_none()
    });
    unfit.sort_unstable();
    unfit.dedup();
    unfit.into_iter().for_each(|(at, why)| left.note(at, why));
    members
}

/// The first `most` members: ready ones before draining ones, existing ones before new ones, the lowest address first.
fn at_most(most: usize, all: &[Member], before: &[Member]) -> Arc<[Member]> {
    if most == 0 {
        return Arc::default();
    }
    let mut members = all.to_vec();
    members.sort_unstable_by_key(|member| {
        let new = before.binary_search_by_key(&member.address, |old| old.address).is_err();
        (member.state, new, member.address)
    });
    members.truncate(most);
    members.sort_unstable_by_key(|member| member.address);
    members.into()
}

/// One member per address, a ready one before a draining one. Where none is ready, draining ones take new traffic, as
/// with kube-proxy: better than no member.
fn settle(mut members: Vec<Member>) -> Vec<Member> {
    members.sort_unstable_by_key(|member| (member.address, member.state));
    members.dedup_by_key(|member| member.address);
    if !members.iter().any(|member| member.state == MemberState::Ready) {
        members.iter_mut().for_each(|member| member.state = MemberState::Ready);
    }
    members
}

/// The difference of two sorted lists.
pub(super) fn diff(pool: Arc<str>, old: &[Member], members: Arc<[Member]>) -> MemberChange {
    let (mut added, mut changed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut before, mut after) = (old.iter().peekable(), members.iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.address.cmp(&new.address),
        };
        match order {
            Ordering::Less => removed.extend(before.next()),
            Ordering::Greater => added.extend(after.next()),
            Ordering::Equal => {
                let (old, new) = (before.next(), after.next());
                changed.extend(new.filter(|_| old != new));
            }
        }
    }
    drop(after);
    MemberChange { pool, members, added, changed, removed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemberState::{Draining, Ready};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn member(last: u8, state: MemberState) -> Member {
        Member { address: ([10, 0, 0, last], 80).into(), weight: 1, state }
    }

    #[test]
    fn an_address_counts_once_and_ready_wins_over_draining() {
        let seen =
            vec![member(2, Draining), member(1, Ready), member(2, Ready), member(3, Draining)];
        let settled = vec![member(1, Ready), member(2, Ready), member(3, Draining)];
        assert_eq!(settle(seen), settled);
    }

    #[test]
    fn draining_members_take_new_traffic_where_nobody_is_ready() {
        assert_eq!(settle(vec![member(1, Draining)]), vec![member(1, Ready)]);
    }

    #[test]
    fn of_too_many_those_stay_that_were_there_and_going_ones_make_room_for_ready_ones() {
        let choose = |all: &[(u8, MemberState)], before: &[u8]| {
            let member = |(last, state): &(u8, MemberState)| member(*last, *state);
            let before: Vec<_> = before.iter().map(|last| member(&(*last, Ready))).collect();
            let mut left = LeftOut::default();
            let all = all.iter().map(member).collect();
            let chosen = super::choose(&all, &before, 3, &mut left);
            (chosen.iter().map(|it| it.address.ip()).collect::<Vec<_>>(), left)
        };
        let ip = |last: u8| std::net::IpAddr::from([10, 0, 0, last]);
        let over = |number| {
            let mut left = LeftOut::default();
            left.note_crowded(number);
            left
        };
        let all = [(1, Ready), (2, Ready), (3, Ready), (4, Ready), (5, Ready)];
        assert_eq!(choose(&all, &[]), ([1, 2, 3].map(ip).to_vec(), over(2)));
        assert_eq!(choose(&all, &[3, 4, 5]), ([3, 4, 5].map(ip).to_vec(), over(2)));
        assert_eq!(choose(&all, &[4]), ([1, 2, 4].map(ip).to_vec(), over(2)));
        let going = [(1, Ready), (2, Ready), (3, Draining), (4, Ready)];
        assert_eq!(choose(&going, &[1, 2, 3]), ([1, 2, 4].map(ip).to_vec(), over(1)));
        assert_eq!(choose(&all[..3], &[]), ([1, 2, 3].map(ip).to_vec(), LeftOut::default()));
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let state = prop_oneof![Just(Ready), Just(Draining)];
        prop::collection::btree_map(0u8..12, state, 0..12)
            .prop_map(|all| all.into_iter().map(|(last, state)| member(last, state)).collect())
    }

    proptest! {
        #[test]
        fn the_difference_applied_to_the_old_gives_the_new(old in members(), new in members()) {
            let change = diff("p".into(), &old, new.clone().into());
            let mut map: BTreeMap<_, _> = old.iter().map(|m| (m.address, *m)).collect();
            for gone in &change.removed {
                prop_assert_eq!(map.remove(&gone.address), Some(*gone));
            }
            for added in &change.added {
                prop_assert_eq!(map.insert(added.address, *added), None);
            }
            for changed in &change.changed {
                let before = map.insert(changed.address, *changed);
                prop_assert!(before.is_some_and(|before| before != *changed));
            }
            prop_assert_eq!(map.into_values().collect::<Vec<_>>(), new);
        }
    }
}

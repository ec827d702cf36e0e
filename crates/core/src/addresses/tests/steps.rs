//! What can happen in the cloud of the property tests: which holder may ask for what, which pools there may be, and
//! the steps that are drawn from that.

use super::leader::{RECORDS, REQUESTS};
use super::make::*;
use super::places::PLACES;
use crate::addresses::*;
use crate::objects::{Family, Timestamp};
use crate::outcome::{Problem, Reason};
use proptest::prelude::*;
use proptest::sample::Index;

pub(super) const NAMES: [&str; 2] = ["web.example.com", "api.example.com"];
/// Services, followed by a load balancer and an ExternalIP.
const HOLDERS: usize = 8;
const LOAD_BALANCER: usize = 6;
const EXTERNAL_IP: usize = 7;
/// The number of watches. Answers for names come with the requesters that ask for them.
pub(super) const WATCHES: usize = 4;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A user creates or edits a holder.
    Put(usize, Wish),
    Remove(usize),
    /// The other pools become these, see [`other_pools`].
    Pools(usize),
    Resolve(usize, Option<Vec<u8>>),
    /// A Node has this address, or none.
    Node(Option<u8>),
    /// A vandal edits a status.
    Spoil(usize, u8),
    /// A vandal deletes an Address.
    Vandal(Index),
    /// A watch delivers to a leader some of what it has not delivered.
    Hear(usize, usize, usize),
    /// A watch of a leader starts over: it delivers the pages of a list next.
    Relist(usize, usize),
    Take(usize),
    /// A leader's write reaches the API.
    Perform(usize, Index),
    /// A leader is told how a write ended.
    Answer(usize, Index, Fate),
    /// The agent of a load balancer comes, or catches up with its Plan.
    Apply(usize),
    /// The agent of a load balancer goes.
    Leave(usize),
    /// A leader writes a status.
    Show(usize, Index),
    Kill(usize),
    Pass(Timestamp),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Answered,
    /// Carried out, and the answer is lost.
    AnswerLost,
    /// Never carried out.
    Lost,
    /// It is given up, and carried out later, if ever.
    Late,
}

#[derive(Clone, Debug)]
pub(super) struct Wish {
    ask: u8,
    last: u8,
    families: u8,
    key: u8,
    port: u16,
    local: bool,
    place: u8,
    uses: u8,
}

fn wish() -> impl Strategy<Value = Wish> {
    let local = prop::bool::weighted(0.1);
    (0u8..16, 0u8..8, 0u8..8, 0u8..4, 80u16..83, local, 0u8..6, 0u8..12).prop_map(
        |(ask, last, families, key, port, local, place, uses)| Wish {
            ask,
            last,
            families,
            key,
            port,
            local,
            place,
            uses,
        },
    )
}

pub(super) fn request(at: usize, wish: &Wish) -> AddressRequest {
    match at {
        LOAD_BALANCER => {
            let pool = ["two", "three"][usize::from(wish.ask) % 2];
            let mut request = load_balancer("edge", pool);
            if wish.ask > 12 {
                request.ask = Ok(Ask::Nothing);
            }
            return request;
        }
        EXTERNAL_IP => return external_ip("shop/pod-0"),
        _ => {}
    }
    let namespace = if at < 3 { "shop" } else { "bank" };
    let mut request = service(&format!("{namespace}/s{at}"));
    // Names and ages are in different orders.
    request.created = (LOAD_BALANCER - at) as i64 % 4;
    let addresses = |addresses: &[IpAddr], pool: Option<&str>| {
        Ok(Ask::Addresses { addresses: addresses.to_vec(), pool: pool.map(Into::into) })
    };
    request.ask = match wish.ask {
        0 | 1 => addresses(&[at_two(wish.last)], None),
        2 => addresses(&[at_two(wish.last)], Some("two")),
        3 => addresses(&[at_two(wish.last), at_six(wish.last)], None),
        4 => Ok(Ask::Pool("two".into())),
        5 => Ok(Ask::Pool("three".into())),
        6 | 7 => named(NAMES[0]),
        8 => named(NAMES[1]),
        9 => Ok(Ask::Name { name: NAMES[0].into(), pool: Some("two".into()) }),
        10 => Ok(Ask::Nothing),
        11 => Err(Problem::new(Reason::BadValue, "unreadable")),
        _ => Ok(Ask::Any),
    };
    request.families = match wish.families {
        0 => Families::Prefer(Family::V4),
        1 => Families::Require(Family::V6),
        2 => Families::One(Family::V6),
        _ => Families::One(Family::V4),
    };
    request.uses =
        (0..wish.uses.saturating_sub(8)).map(|it| at_two((wish.last + it) % 8)).collect();
    request.uses.sort_unstable();
    request.load_balancer = PLACES.get(usize::from(wish.place)).map(|it| (*it).into());
    if wish.key < 3 {
        request.sharing = sharing(["k", "k", "l"][usize::from(wish.key)], &[wish.port]);
        request.sharing.as_mut().unwrap().local_only = wish.local;
        let one = ("app".into(), request.holder.key.name.clone());
        request.sharing.as_mut().unwrap().selector = [one].into();
    }
    request
}

pub(super) fn at_two(last: u8) -> IpAddr {
    std::net::Ipv4Addr::new(198, 51, 100, last).into()
}

pub(super) fn at_six(last: u8) -> IpAddr {
    std::net::Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, last.into()).into()
}

/// The pools besides the first one: edited, renamed, split, being deleted, overlapping.
pub(super) fn other_pools(variant: usize) -> Vec<Pool> {
    let two = |entries: &[&str]| Pool { created: 1, ..pool("two", entries) };
    let three = |entries: &[&str]| Pool { created: 2, ..pool("three", entries) };
    let all = ["198.51.100.0/29", "2001:db8:2::1-2001:db8:2::9"];
    match variant {
        0 => vec![],
        1 => vec![two(&["198.51.100.0/30", "2001:db8:2::/126"])],
        2 => vec![Pool { reuse_after: 20, ..two(&["198.51.100.2/31"]) }],
        3 => vec![Pool { reuse_after: 20, ..two(&["198.51.100.0/31", "192.0.2.0/31"]) }],
        4 => vec![two(&all)],
        5 => vec![Pool { sharing_across_namespaces: true, ..three(&all) }],
        6 => vec![two(&["198.51.100.0/30", all[1]]), three(&["198.51.100.4/30"])],
        7 => vec![two(&["198.51.100.0/30"]), three(&["198.51.100.2-198.51.100.7", all[1]])],
        8 => vec![Pool { deleting: true, ..two(&all) }, three(&["198.51.100.4/30"])],
        9 => vec![Pool { per_namespace_quota: Some(1), ..two(&all) }],
        _ => vec![Pool {
            auto_assign: false,
            allowed_domains: vec!["api.example.com".into()],
            allocate_to: AllocateTo { namespaces: vec!["shop".into()], ..AllocateTo::default() },
            ..two(&all)
        }],
    }
}

/// The first pool is never edited and is never full.
pub(super) fn first_pool() -> Pool {
    pool("one", &["192.0.2.0/28"])
}

/// What users and administrators do.
pub(super) fn edit() -> impl Strategy<Value = Step> {
    let answer = prop::option::weighted(0.8, prop::collection::vec(0u8..8, 0..3));
    prop_oneof![
        6 => (0..HOLDERS, wish()).prop_map(|(at, wish)| Step::Put(at, wish)),
        2 => (0..HOLDERS).prop_map(Step::Remove),
        2 => (0usize..11).prop_map(Step::Pools),
        2 => (0usize..2, answer).prop_map(|(name, answer)| Step::Resolve(name, answer)),
        1 => prop::option::of(0u8..8).prop_map(Step::Node),
        1 => (0..LOAD_BALANCER, 0u8..8).prop_map(|(at, last)| Step::Spoil(at, last)),
        1 => any::<Index>().prop_map(Step::Vandal),
    ]
}

pub(super) fn step(leaders: usize) -> impl Strategy<Value = Step> {
    let leader = 0..leaders;
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Late),
    ];
    let hear = (leader.clone(), 0..WATCHES, 1usize..6);
    prop_oneof![
        8 => edit(),
        10 => hear.prop_map(|(leader, watch, count)| Step::Hear(leader, watch, count)),
        6 => leader.clone().prop_map(Step::Take),
        6 => (leader.clone(), any::<Index>()).prop_map(|(at, which)| Step::Perform(at, which)),
        7 => (leader.clone(), any::<Index>(), fate).prop_map(|(at, which, fate)| Step::Answer(at, which, fate)),
        4 => (leader.clone(), any::<Index>()).prop_map(|(at, which)| Step::Show(at, which)),
        1 => (leader.clone(), 0..WATCHES).prop_map(|(at, watch)| Step::Relist(at, watch)),
        1 => leader.prop_map(Step::Kill),
        3 => (0..PLACES.len()).prop_map(Step::Apply),
        1 => (0..PLACES.len()).prop_map(Step::Leave),
        1 => (1i64..40).prop_map(Step::Pass),
    ]
}

/// Some requesters that ask for any address come and go, and two leaders see that at different times: each may grant
/// one of them another address.
pub(super) fn contest() -> impl Strategy<Value = Step> {
    let watch = prop_oneof![Just(REQUESTS), Just(RECORDS)];
    let who = (0usize..2, any::<Index>());
    prop_oneof![
        2 => (0usize..3).prop_map(|at| Step::Put(at, ANY)),
        1 => (1usize..3).prop_map(Step::Remove),
        8 => (0usize..2, watch, 1usize..4).prop_map(|(at, watch, count)| Step::Hear(at, watch, count)),
        4 => (0usize..2).prop_map(Step::Take),
        4 => who.clone().prop_map(|(at, which)| Step::Perform(at, which)),
        4 => who.clone().prop_map(|(at, which)| Step::Answer(at, which, Fate::Answered)),
        4 => who.prop_map(|(at, which)| Step::Show(at, which)),
        1 => (1i64..4).prop_map(Step::Pass),
    ]
}

/// A wish for a step in which only the holder matters.
pub(super) const ANY: Wish =
    Wish { ask: 15, last: 0, families: 9, key: 9, port: 80, local: false, place: 9, uses: 0 };

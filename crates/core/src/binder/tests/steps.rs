//! What can happen while claims and load balancers are bound.

use super::make::*;
use crate::binder::*;
use crate::cases::{Fate, fate};
use crate::objects::Timestamp;
use proptest::prelude::*;
use proptest::sample::Index;

pub(super) const CLAIMS: [&str; 4] = ["shop/a", "shop/b", "bank/c", "bank/d"];
pub(super) const LBS: [&str; 3] = ["x", "y", "z"];
pub(super) const NAMESPACES: [&str; 2] = ["shop", "bank"];

#[derive(Clone, Debug)]
pub(super) enum Step {
    MakeClaim(usize, Wish),
    DeleteClaim(usize),
    MakeLb(usize, u64, u8),
    DeleteLb(Index),
    /// An administrator clears a claimRef, or reserves it.
    Refer(Index, Option<usize>),
    Resize(Index, u64),
    Class(u8),
    Want(usize, bool),
    /// A consumer of a namespace gets a seat or leaves it.
    Use(Index, usize, bool),
    /// The watch of a kind delivers to a leader some of what it has not delivered.
    Observe(usize, usize, usize),
    Take(usize),
    Write(usize, Index, Fate),
    Work(usize, Index, bool),
    Confirm(usize, Index),
    /// A leader makes this many parts that serve a load balancer, and then does something else.
    Provision(usize, Index, usize),
    /// The API collects parts without an owner.
    Collect,
    Kill(usize),
    /// The watches of a leader start over, and deliver everything.
    Relist(usize),
    Pass(Timestamp),
}

#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) request: u64,
    pub(super) named: Option<usize>,
    pub(super) never: bool,
}

pub(super) fn step(leaders: usize) -> impl Strategy<Value = Step> {
    let leader = 0..leaders;
    let index = any::<Index>;
    let wish = (1u64..6, prop::option::weighted(0.2, 0..LBS.len()), prop::bool::weighted(0.2))
        .prop_map(|(request, named, never)| Wish { request, named, never });
    let claims = 0..CLAIMS.len();
    prop_oneof![
        5 => (claims.clone(), wish).prop_map(|(at, wish)| Step::MakeClaim(at, wish)),
        2 => claims.clone().prop_map(Step::DeleteClaim),
        3 => (0..LBS.len(), 0u64..7, 0u8..3).prop_map(|(at, size, policy)| Step::MakeLb(at, size, policy)),
        1 => index().prop_map(Step::DeleteLb),
        1 => (index(), prop::option::of(claims.clone())).prop_map(|(at, claim)| Step::Refer(at, claim)),
        1 => (index(), 0u64..7).prop_map(|(at, size)| Step::Resize(at, size)),
        1 => (0u8..6).prop_map(Step::Class),
        2 => (claims, any::<bool>()).prop_map(|(at, wanted)| Step::Want(at, wanted)),
        2 => (index(), 0..NAMESPACES.len(), prop::bool::weighted(0.3)).prop_map(|(at, who, used)| Step::Use(at, who, used)),
        10 => (leader.clone(), 0usize..3, 1usize..6).prop_map(|(at, kind, count)| Step::Observe(at, kind, count)),
        8 => leader.clone().prop_map(Step::Take),
        10 => (leader.clone(), index(), fate()).prop_map(|(at, which, fate)| Step::Write(at, which, fate)),
        3 => (leader.clone(), index(), prop::bool::weighted(0.8)).prop_map(|(at, which, ok)| Step::Work(at, which, ok)),
        3 => (leader.clone(), index()).prop_map(|(at, which)| Step::Confirm(at, which)),
        5 => (leader.clone(), index(), 1usize..4).prop_map(|(at, which, count)| Step::Provision(at, which, count)),
        1 => Just(Step::Collect),
        1 => leader.clone().prop_map(Step::Kill),
        1 => leader.prop_map(Step::Relist),
        2 => (1i64..80).prop_map(Step::Pass),
    ]
}

/// The class that creates load balancers for claims that none fits, if any.
pub(super) fn variant(variant: u8) -> Option<Class> {
    let made = Class { default: true, ..class("bronze") };
    match variant {
        0 => None,
        1 => Some(Class { reclaim: Reclaim::Recycle, ..made }),
        2 => Some(Class { reclaim: Reclaim::Retain, ..made }),
        3 => Some(Class { idle_timeout: Some(60), ..made }),
        4 => Some(Class { idle_timeout: Some(60), reclaim: Reclaim::Recycle, ..made }),
        _ => Some(made),
    }
}

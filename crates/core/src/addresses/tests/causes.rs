//! When an address may change hands, judged from what users and administrators did and not from the
//! machine: a holder that exists loses an address, or is given another one beside it, only for a
//! cause that docs/addresses.md lists and that its leader can have known of. [`super::cloud`] calls
//! it for every write.

use super::cloud::World;
use crate::addresses::*;
use crate::objects::Family;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What leaders have heard, in order, and since when each holder has its addresses.
#[derive(Default)]
pub(super) struct Causes {
    views: Vec<Rc<World>>,
    holds: BTreeMap<(Arc<str>, IpAddr), Hold>,
    /// What a status has shown since it was given. No client knows of anything else.
    shown: BTreeSet<(Arc<str>, IpAddr)>,
    /// What a holder ever had: it may be created again.
    had: BTreeSet<(Arc<str>, IpAddr)>,
    tainted: BTreeSet<Arc<str>>,
    /// What a vandal deleted under its holder.
    vandalised: BTreeSet<(Arc<str>, IpAddr)>,
    across: bool,
    /// How many views there were when a leader was last killed.
    forgotten: usize,
}

struct Hold {
    /// What the leader had heard when it decided on this.
    view: Rc<World>,
    /// How many views there were then.
    since: usize,
    /// Its position in the log of Addresses.
    at: usize,
    /// Other holders that have had it, too.
    partners: BTreeSet<Arc<str>>,
}

/// What a write was decided on, and when it is carried out.
pub(super) struct Gain<'a> {
    pub(super) now: &'a World,
    pub(super) view: &'a Rc<World>,
    /// What its leader had heard when it first chose an address for a holder.
    pub(super) chosen: &'a BTreeMap<(Arc<str>, IpAddr), Chosen>,
    pub(super) heard: usize,
    /// Addresses with writes in flight or due: its leader does not believe the watch about them.
    pub(super) in_flight: &'a [IpAddr],
    pub(super) at: usize,
    /// Whether there is no other leader.
    pub(super) alone: bool,
}

/// What a leader had heard when it chose an address for a holder, and the position of that among
/// all views.
pub(super) type Chosen = (Rc<World>, usize);

impl Causes {
    /// A leader chooses an address now.
    pub(super) fn choose(&self, view: &Rc<World>) -> Chosen {
        (view.clone(), self.views.len())
    }

    /// A leader has heard this.
    pub(super) fn seen(&mut self, view: &Rc<World>) {
        self.across |= view.pools.values().any(|pool| pool.sharing_across_namespaces);
        self.views.push(view.clone());
    }

    /// What a leader knew of edits is lost with it.
    pub(super) fn killed(&mut self) {
        self.forgotten = self.views.len();
    }

    /// Whether some pool ever let namespaces share.
    pub(super) fn shared_across(&self) -> bool {
        self.across
    }

    /// A vandal wrote its status, or deleted its Address.
    pub(super) fn taint(&mut self, uid: &Arc<str>) {
        self.tainted.insert(uid.clone());
    }

    pub(super) fn is_tainted(&self, uid: &str) -> bool {
        self.tainted.contains(uid)
    }

    /// A leader writes a status.
    pub(super) fn shown(&mut self, uid: &Arc<str>, addresses: &[IpAddr]) {
        let held = addresses.iter().map(|it| (uid.clone(), *it));
        self.shown.extend(held.filter(|it| self.holds.contains_key(it)));
    }

    /// A vandal deleted an Address.
    pub(super) fn vandalised(&mut self, record: &Record) {
        for Holder { holder, .. } in &record.content.holders {
            self.holds.remove(&(holder.uid.clone(), record.address));
            self.vandalised.insert((holder.uid.clone(), record.address));
            self.taint(&holder.uid);
        }
    }

    /// Whether a leader may write this.
    pub(super) fn judge(
        &mut self,
        address: IpAddr,
        before: Option<&Content>,
        after: Option<&Content>,
        gain: &Gain<'_>,
    ) -> Result<(), TestCaseError> {
        let uids = |content: Option<&Content>| -> BTreeSet<Arc<str>> {
            let holders = content.into_iter().flat_map(|it| &it.holders);
            holders.map(|it| it.holder.uid.clone()).collect()
        };
        let draining = after.is_some_and(|it| matches!(it.state, AddressState::Draining { .. }));
        let (before, after) = (uids(before), uids(after));
        for uid in before.difference(&after) {
            let hold = self.holds.remove(&(uid.clone(), address));
            let shown = self.shown.remove(&(uid.clone(), address));
            // A spare address is no loss. With one leader, an address that was shown is spare only
            // beside another one that was shown.
            let known =
                |it: IpAddr| !shown || !gain.alone || self.shown.contains(&(uid.clone(), it));
            let spare = self.beside(uid, address).any(|(it, _)| known(it));
            // A leader that has not heard of a deletion may think that the holder has another
            // address.
            let vandal = self.vandalised.iter().any(|(it, _)| it == uid);
            let cause =
                spare || vandal || hold.is_none_or(|it| self.may_lose(uid, address, &it, gain));
            prop_assert!(cause, "{uid} loses {address} without a cause");
        }
        for uid in after.difference(&before) {
            let known = |(other, hold): &(IpAddr, &Hold)| {
                hold.at < gain.heard && !gain.in_flight.contains(other)
            };
            // An Address that a vandal or another leader deleted is created again, if only for a
            // grace.
            let hold = (uid.clone(), address);
            let again = draining
                || self.vandalised.contains(&hold)
                || !gain.alone && self.had.contains(&hold);
            let shown = |(other, _): &(IpAddr, &Hold)| self.shown.contains(&(uid.clone(), *other));
            let others = self.beside(uid, address).filter(known).filter(shown);
            for (other, hold) in others.filter(|_| !again) {
                let cause = self.may_lose(uid, other, hold, gain);
                prop_assert!(cause, "{uid} has {other} and is given {address} without a cause");
            }
            let (view, since) = &gain.chosen[&(uid.clone(), address)];
            if self.had.insert((uid.clone(), address)) {
                let mut pools = view.pools.values().filter(|it| it.contains(address));
                let fits = pools.any(|it| !it.deleting);
                prop_assert!(fits, "{uid} is given {address}, which no pool gives: {view:?}");
                let taken = view.node == Some(address);
                prop_assert!(!taken, "{uid} is given {address}, which a Node has");
            }
            let (view, since) = (view.clone(), *since);
            let hold = Hold { view, since, at: gain.at, partners: BTreeSet::new() };
            self.holds.insert((uid.clone(), address), hold);
        }
        for uid in &after {
            if let Some(hold) = self.holds.get_mut(&(uid.clone(), address)) {
                hold.partners.extend(after.iter().filter(|it| *it != uid).cloned());
            }
        }
        Ok(())
    }

    /// Other addresses of the family that a holder has.
    fn beside(&self, uid: &Arc<str>, address: IpAddr) -> impl Iterator<Item = (IpAddr, &Hold)> {
        let family = Family::of(address);
        let mine = self.holds.iter().filter(move |((it, _), _)| it == uid);
        mine.map(|((_, it), hold)| (*it, hold))
            .filter(move |(it, _)| *it != address && Family::of(*it) == family)
    }

    fn may_lose(&self, uid: &str, address: IpAddr, hold: &Hold, gain: &Gain<'_>) -> bool {
        if gain.now.request_of(uid).is_none() {
            return true;
        }
        let mut views = [gain.view].into_iter().chain(&self.views[hold.since..]);
        if views.clone().any(|view| lost(view, uid, address)) {
            return true;
        }
        let edited = |view: &World, uid: &str| {
            let sharing = |view: &World| {
                view.request_of(uid).map(|it| (it.sharing.clone(), it.load_balancer.clone()))
            };
            sharing(view) != sharing(&hold.view)
        };
        // Its own edit, or an edit of a partner if it is not known which of them edited.
        let unknown = !gain.alone || self.forgotten >= hold.since;
        let others = hold.partners.iter().filter(|_| unknown);
        let editors = others.map(|it| &**it).chain([uid]);
        // Also with a partner that was chosen and had its write fail.
        let mut chosen = gain.chosen.keys();
        let shared = !hold.partners.is_empty()
            || chosen.any(|(other, at)| **other != *uid && *at == address);
        shared && views.any(|view| editors.clone().any(|it| edited(view, it)))
    }
}

/// Whether a holder must do without an address that it has, if the world is like this.
fn lost(view: &World, uid: &str, address: IpAddr) -> bool {
    let Some(request) = view.request_of(uid) else { return false };
    let family = Family::of(address);
    let named = |name: &Arc<str>| view.pools.get(name);
    let in_pools = view.pools.values().any(|pool| pool.contains(address));
    let wanted = match request.families {
        Families::One(one) => one == family,
        Families::Prefer(_) | Families::Require(_) => true,
        Families::OfPool => match &request.ask {
            Ok(Ask::Pool(pool)) => named(pool)
                .is_none_or(|it| it.ranges.iter().any(|it| Family::of(it.first()) == family)),
            _ => true,
        },
    };
    let moved = |others: &[IpAddr]| {
        !others.contains(&address) && others.iter().any(|it| Family::of(*it) == family)
    };
    let other = match &request.ask {
        Err(_) | Ok(Ask::Any) => false,
        Ok(Ask::Nothing) => true,
        Ok(Ask::Pool(pool)) => named(pool).is_some_and(|it| !it.contains(address)),
        Ok(Ask::Addresses { addresses, .. }) => moved(addresses),
        Ok(Ask::Name { name, .. }) => match view.answer(name) {
            Answer::Addresses(listed) => moved(listed),
            Answer::Failed { .. } => false,
        },
    };
    !in_pools || !wanted || other
}

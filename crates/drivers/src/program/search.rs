//! The search for the objects that a program refuses, one check at a time, so that newer changes need not wait for the
//! whole search. It searches the desired state from when it began; with later changes it might never end. Pure: the
//! task renders and checks.

use super::suspects::{self, Excluded, Suspect};
use crate::desired::Desired;
use crate::sift::Sift;

/// A search.
#[derive(Debug)]
pub(super) struct Search {
    /// The desired state when the search began.
    pub(super) desired: Desired,
    /// The newest desired state that the program has refused since.
    newest: Desired,
    /// What was excluded when the search began.
    excluded: Excluded,
    all: Vec<Suspect>,
    /// The suspects that are as they were in the last accepted state, and the others.
    unchanged: Vec<Suspect>,
    changed: Vec<Suspect>,
    stage: Stage,
    /// The program's last complaint.
    why: String,
    found: Vec<(Suspect, String)>,
}

/// What a search has proved to be accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    /// The desired state when the search began.
    pub(super) desired: Desired,
    /// What was excluded then, and what the search has found.
    pub(super) excluded: Excluded,
}

/// What to try next.
#[derive(Debug)]
enum Stage {
    /// All unchanged suspects: usually a changed one is at fault.
    Unchanged,
    /// No suspect at all: the rest must be accepted.
    NoSuspects,
    /// The suspects in halves, beside the good ones.
    Halves(Sift<Suspect>),
}

impl Search {
    /// Searches `desired`, which is refused for the reason `why`. `accepted` is the last state that was accepted.
    pub(super) fn new(
        desired: Desired,
        excluded: Excluded,
        accepted: &Desired,
        why: String,
    ) -> Self {
        let all = suspects::all(&desired, &excluded);
        let changed = suspects::changed(accepted, &desired);
        let (changed, unchanged): (Vec<_>, Vec<_>) =
            all.iter().cloned().partition(|it| changed.contains(it));
        let tells = !unchanged.is_empty() && !changed.is_empty();
        let stage = if tells { Stage::Unchanged } else { Stage::NoSuspects };
        let newest = desired.clone();
        Self { desired, newest, excluded, all, unchanged, changed, stage, why, found: Vec::new() }
    }

    /// Whether the refusal still applies to the state `now`. It does if only members differ from the newest refused
    /// state.
    pub(super) fn covers(&self, now: &Desired) -> bool {
        let Desired { certificates, cookie_secret, pools, sites, listeners, .. } = &self.newest;
        *certificates == now.certificates
            && *cookie_secret == now.cookie_secret
            && *pools == now.pools
            && *sites == now.sites
            && *listeners == now.listeners
    }

    /// Notes that the state `now` is refused, too.
    pub(super) fn refused(&mut self, now: &Desired) {
        self.newest = now.clone();
    }

    /// What to exclude from the next try. None: the search is over.
    pub(super) fn next(&self) -> Option<Excluded> {
        let part = match &self.stage {
            Stage::Unchanged => self.unchanged.clone(),
            Stage::NoSuspects => Vec::new(),
            Stage::Halves(sift) => sift.next()?,
        };
        Some(suspects::only(&self.excluded, &self.all, &part))
    }

    /// Takes the complaint about the last try, if any. An error: the program refuses the rest even without any suspect.
    pub(super) fn answer(&mut self, said: Option<String>) -> Result<(), String> {
        match (&mut self.stage, said) {
            (Stage::Unchanged, None) => {
                self.look_among(self.unchanged.clone(), self.changed.clone());
            }
            (Stage::Unchanged, Some(_)) => self.stage = Stage::NoSuspects,
            (Stage::NoSuspects, None) => self.look_among(Vec::new(), self.all.clone()),
            (Stage::NoSuspects, Some(why)) => return Err(why),
            (Stage::Halves(sift), said) => {
                let fits = said.is_none();
                self.why = said.unwrap_or_else(|| std::mem::take(&mut self.why));
                self.found.extend(sift.answer(fits).map(|it| (it.clone(), self.why.clone())));
            }
        }
        Ok(())
    }

    /// Searches `others`, of which some are refused beside `good`.
    fn look_among(&mut self, good: Vec<Suspect>, others: Vec<Suspect>) {
        if let [alone] = others.as_slice() {
            // It was tried already.
            self.found.push((alone.clone(), self.why.clone()));
        }
        self.stage = Stage::Halves(Sift::beside(good, others));
    }

    /// The result of the finished search: what the program accepts.
    pub(super) fn accepted(self) -> Accepted {
        let Self { desired, mut excluded, found, .. } = self;
        for (suspect, why) in found {
            suspects::leave_out(&mut excluded, &suspect, why);
        }
        Accepted { desired, excluded }
    }

    /// The refused suspects found so far, each with the reason.
    pub(super) fn found(&self) -> &[(Suspect, String)] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{ingress, member, pool, prefix, web};
    use std::collections::BTreeSet;

    fn many(count: usize) -> Desired {
        let mut desired = web(8080, "web.example", vec![prefix("/", "p")]);
        for i in 0..count {
            let host = format!("h{i}.example").parse().expect("a host");
            desired.put_site(host, None, &format!("h{i}"), vec![prefix("/", "p")]);
        }
        desired
    }

    /// Runs a search in which the program refuses every state that contains one of `bad`. Returns what is found and the
    /// number of checks.
    fn search(
        accepted: &Desired,
        desired: Desired,
        bad: &BTreeSet<&str>,
    ) -> (Result<Vec<String>, String>, usize) {
        let refused = |excluded: &Excluded| {
            let is_in = |name: &&&str| !excluded.consumers.contains_key(&ingress(name));
            bad.iter().find(is_in).map(|name| format!("{name} is bad"))
        };
        let why = refused(&Excluded::default()).expect("a reason to search");
        let mut search = Search::new(desired, Excluded::default(), accepted, why);
        let mut checks = 0;
        while let Some(excluded) = search.next() {
            checks += 1;
            if let Err(why) = search.answer(refused(&excluded)) {
                return (Err(why), checks);
            }
        }
        let told = search.found().iter().map(|(suspect, why)| match suspect {
            Suspect::Consumer(consumer) => format!("{}: {why}", consumer.name),
            Suspect::Certificate(hash) => format!("{hash}: {why}"),
        });
        (Ok(told.collect()), checks)
    }

    #[test]
    fn one_of_a_thousand_is_found_with_its_reason_in_21_checks() {
        let (found, checks) = search(&Desired::default(), many(999), &["h321"].into());
        assert_eq!(found, Ok(vec!["h321: h321 is bad".to_owned()]));
        assert!(checks <= 21, "{checks}");
    }

    #[test]
    fn one_that_came_to_five_thousand_is_found_in_one_check() {
        let (found, checks) = search(&many(5000), many(5001), &["h5000"].into());
        assert_eq!((found, checks), (Ok(vec!["h5000: h5000 is bad".to_owned()]), 1));
    }

    #[test]
    fn one_that_did_not_change_is_found_too() {
        let (found, checks) = search(&many(998), many(999), &["h321"].into());
        assert_eq!(found, Ok(vec!["h321: h321 is bad".to_owned()]));
        assert!(checks <= 22, "{checks}");
    }

    #[test]
    fn one_whose_pool_or_members_changed_has_changed() {
        let mut before = many(3);
        before.put_pool(pool("p"), &[member(1)]);
        let host = "q.example".parse().expect("a host");
        before.put_site(host, None, "q", vec![prefix("/", "q")]);
        before.put_pool(pool("q"), &[member(1)]);
        assert_eq!(suspects::changed(&before, &before.clone()), BTreeSet::new());
        let mut now = before.clone();
        now.put_pool(pool("q"), &[member(2)]);
        let of = |name| BTreeSet::from([Suspect::Consumer(ingress(name))]);
        assert_eq!(suspects::changed(&before, &now), of("q"));
        now = before.clone();
        now.pools.remove("q");
        assert_eq!(suspects::changed(&before, &now), of("q"));
    }

    #[test]
    fn one_that_is_alone_is_found_when_the_rest_is_accepted() {
        let desired = web(8080, "web.example", vec![prefix("/", "p")]);
        let found = search(&Desired::default(), desired, &["web"].into());
        assert_eq!(found, (Ok(vec!["web: web is bad".to_owned()]), 1));
    }

    #[test]
    fn what_is_refused_without_any_suspect_is_nobodys() {
        let (found, checks) = search(&many(9), many(10), &["the settings"].into());
        assert_eq!((found, checks), (Err("the settings is bad".to_owned()), 2));
    }

    #[test]
    fn a_search_covers_what_is_newer_as_long_as_that_differs_by_members_alone() {
        let begun = many(3);
        let mut search =
            Search::new(begun.clone(), Excluded::default(), &Desired::default(), "why".to_owned());
        let mut now = begun;
        now.members.insert("p".into(), [member(1)].into());
        assert!(search.covers(&now));
        now.put_pool(pool("p"), &[member(1)]);
        assert!(!search.covers(&now));
        search.refused(&now);
        assert!(search.covers(&now));
    }
}

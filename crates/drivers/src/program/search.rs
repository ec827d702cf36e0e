//! The search for what a program refuses, a check at a time, so that nothing newer waits for all of it. It is about
//! what was desired when it began, or changes without end would keep it from ending. Pure: whoever has it renders
//! and checks.

use super::suspects::{self, Excluded, Suspect};
use crate::desired::Desired;
use crate::sift::Sift;

/// A search.
#[derive(Debug)]
pub(super) struct Search {
    /// What was desired when it began.
    pub(super) desired: Desired,
    /// The newest that was refused since.
    newest: Desired,
    /// What was left out when it began.
    excluded: Excluded,
    all: Vec<Suspect>,
    /// Those of them that are as they were when everything was accepted, and the others.
    unchanged: Vec<Suspect>,
    changed: Vec<Suspect>,
    stage: Stage,
    /// What the program said last.
    why: String,
    found: Vec<(Suspect, String)>,
}

/// What a search has shown that the program accepts.
#[derive(Debug)]
pub(super) struct Accepted {
    /// What was desired when the search began.
    pub(super) desired: Desired,
    /// What was left out then, and what the search has found.
    pub(super) excluded: Excluded,
}

/// What is tried next.
#[derive(Debug)]
enum Stage {
    /// Whether those who have not changed are accepted: mostly one that has is to blame.
    Unchanged,
    /// Whether what is left without any of them is.
    Nobody,
    /// Halves.
    Halves(Sift<Suspect>),
}

impl Search {
    /// Of what is refused, and why, beside what was accepted last.
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
        let stage = if tells { Stage::Unchanged } else { Stage::Nobody };
        let newest = desired.clone();
        Self { desired, newest, excluded, all, unchanged, changed, stage, why, found: Vec::new() }
    }

    /// Whether nothing is desired now that may not be refused: members alone make no difference.
    pub(super) fn covers(&self, now: &Desired) -> bool {
        let Desired { certificates, cookie_secret, pools, sites, listeners, .. } = &self.newest;
        *certificates == now.certificates
            && *cookie_secret == now.cookie_secret
            && *pools == now.pools
            && *sites == now.sites
            && *listeners == now.listeners
    }

    /// What is desired now is refused, too.
    pub(super) fn refused(&mut self, now: &Desired) {
        self.newest = now.clone();
    }

    /// What is to be left out of the next try. None: the search is over.
    pub(super) fn next(&self) -> Option<Excluded> {
        let part = match &self.stage {
            Stage::Unchanged => self.unchanged.clone(),
            Stage::Nobody => Vec::new(),
            Stage::Halves(sift) => sift.next()?,
        };
        Some(suspects::only(&self.excluded, &self.all, &part))
    }

    /// What the program said of it. An error: it refuses what is left without any suspect, too.
    pub(super) fn answer(&mut self, said: Option<String>) -> Result<(), String> {
        match (&mut self.stage, said) {
            (Stage::Unchanged, None) => {
                self.look_among(self.unchanged.clone(), self.changed.clone());
            }
            (Stage::Unchanged, Some(_)) => self.stage = Stage::Nobody,
            (Stage::Nobody, None) => self.look_among(Vec::new(), self.all.clone()),
            (Stage::Nobody, Some(why)) => return Err(why),
            (Stage::Halves(sift), said) => {
                let fits = said.is_none();
                self.why = said.unwrap_or_else(|| std::mem::take(&mut self.why));
                self.found.extend(sift.answer(fits).map(|it| (it.clone(), self.why.clone())));
            }
        }
        Ok(())
    }

    /// Some of these are refused beside those.
    fn look_among(&mut self, good: Vec<Suspect>, others: Vec<Suspect>) {
        if let [alone] = others.as_slice() {
            // It is tried already.
            self.found.push((alone.clone(), self.why.clone()));
        }
        self.stage = Stage::Halves(Sift::beside(good, others));
    }

    /// What the program accepts, now that the search is over.
    pub(super) fn accepted(self) -> Accepted {
        let Self { desired, mut excluded, found, .. } = self;
        for (suspect, why) in found {
            suspects::leave_out(&mut excluded, &suspect, why);
        }
        Accepted { desired, excluded }
    }

    /// Those that are refused, each with the reason.
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

    /// Searches for what is refused wherever one of these is in it; how many checks that takes.
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

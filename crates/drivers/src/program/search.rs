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
    /// None until it is known that the program accepts what is left without any of them.
    sift: Option<Sift<Suspect>>,
    /// What the program said last.
    why: String,
    found: Vec<(Suspect, String)>,
}

impl Search {
    /// Of what is refused, and why.
    pub(super) fn new(desired: Desired, excluded: Excluded, why: String) -> Self {
        let all = suspects::all(&desired, &excluded);
        let newest = desired.clone();
        Self { desired, newest, excluded, all, sift: None, why, found: Vec::new() }
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
        let part = match &self.sift {
            Some(sift) => sift.next()?,
            None => Vec::new(),
        };
        Some(suspects::only(&self.excluded, &self.all, &part))
    }

    /// What the program said of it. An error: it refuses what is left without any suspect, too.
    pub(super) fn answer(&mut self, said: Option<String>) -> Result<(), String> {
        let Some(sift) = &mut self.sift else {
            if let Some(why) = said {
                return Err(why);
            }
            if let [alone] = self.all.as_slice() {
                // It is tried already.
                self.found.push((alone.clone(), self.why.clone()));
            }
            self.sift = Some(Sift::new(self.all.clone()));
            return Ok(());
        };
        let fits = said.is_none();
        if let Some(why) = said {
            self.why = why;
        }
        self.found.extend(sift.answer(fits).map(|it| (it.clone(), self.why.clone())));
        Ok(())
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
    fn search(desired: Desired, bad: &BTreeSet<&str>) -> (Result<Vec<String>, String>, usize) {
        let refused = |excluded: &Excluded| {
            let is_in = |name: &&&str| !excluded.consumers.contains_key(&ingress(name));
            bad.iter().find(is_in).map(|name| format!("{name} is bad"))
        };
        let why = refused(&Excluded::default()).expect("a reason to search");
        let mut search = Search::new(desired, Excluded::default(), why);
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
        let (found, checks) = search(many(999), &["h321"].into());
        assert_eq!(found, Ok(vec!["h321: h321 is bad".to_owned()]));
        assert!(checks <= 21, "{checks}");
    }

    #[test]
    fn one_that_is_alone_is_found_when_the_rest_is_accepted() {
        let desired = web(8080, "web.example", vec![prefix("/", "p")]);
        assert_eq!(search(desired, &["web"].into()), (Ok(vec!["web: web is bad".to_owned()]), 1));
    }

    #[test]
    fn what_is_refused_without_any_suspect_is_nobodys() {
        let (found, checks) = search(many(9), &["the settings"].into());
        assert_eq!((found, checks), (Err("the settings is bad".to_owned()), 1));
    }

    #[test]
    fn a_search_covers_what_is_newer_as_long_as_that_differs_by_members_alone() {
        let begun = many(3);
        let mut search = Search::new(begun.clone(), Excluded::default(), "why".to_owned());
        let mut now = begun;
        now.members.insert("p".into(), [member(1)].into());
        assert!(search.covers(&now));
        now.put_pool(pool("p"), &[member(1)]);
        assert!(!search.covers(&now));
        search.refused(&now);
        assert!(search.covers(&now));
    }
}

//! How a move of an address by hand stands, from the reports of speakers. Pure.

use bowline_core::report::speaker::SpeakerReport;
use std::net::IpAddr;
use std::sync::Arc;

/// How a move stands.
#[derive(Debug, PartialEq)]
pub(crate) enum Moving {
    /// The node that should own the address does.
    Done,
    /// Another one does.
    At(Arc<str>),
    /// None does.
    Nowhere,
    /// The owner could not give the address away.
    Refused(Arc<str>),
    /// No speaker of the node reports.
    NoSpeaker(Vec<Arc<str>>),
}

/// How the move of an address to a node stands. `wish`: as it is written at the Address.
pub(crate) fn stands(reports: &[SpeakerReport], address: IpAddr, node: &str, wish: &str) -> Moving {
    if !reports.iter().any(|it| &*it.node == node) {
        return Moving::NoSpeaker(reports.iter().map(|it| it.node.clone()).collect());
    }
    let mut refused = reports.iter().filter_map(|it| it.links.not_moved.get(&address));
    if let Some(it) = refused.find(|it| &*it.wish == wish) {
        return Moving::Refused(it.reason.clone());
    }
    // During a move two reports may name themselves: the old owner's is out of date.
    let owners: Vec<_> = reports.iter().filter(|it| it.owned().any(|at| at == address)).collect();
    match owners.iter().find(|it| &*it.node == node).or(owners.first()) {
        Some(owner) if &*owner.node == node => Moving::Done,
        Some(owner) => Moving::At(owner.node.clone()),
        None => Moving::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::report::speaker::{NotMoved, OnLinks};

    fn address() -> IpAddr {
        [192, 0, 2, 1].into()
    }

    fn report(node: &str, owns: bool) -> SpeakerReport {
        let owned = owns.then(address);
        SpeakerReport::new(node.into(), "1".into(), [].into(), [], owned)
    }

    #[test]
    fn a_move_is_done_when_the_node_owns_the_address() {
        let stands = |reports: &[SpeakerReport]| stands(reports, address(), "b", "b/1");
        assert_eq!(stands(&[report("a", true), report("b", false)]), Moving::At("a".into()));
        assert_eq!(stands(&[report("a", false), report("b", false)]), Moving::Nowhere);
        assert_eq!(stands(&[report("a", true), report("b", true)]), Moving::Done);
        assert_eq!(stands(&[report("a", true)]), Moving::NoSpeaker(vec!["a".into()]));
    }

    #[test]
    fn only_the_refusal_of_this_wish_counts() {
        let not_moved = NotMoved { wish: "b/1".into(), reason: "it may not".into() };
        let links = OnLinks { not_moved: [(address(), not_moved)].into(), ..OnLinks::default() };
        let reports = [report("a", true).on_links(links), report("b", false)];
        let stands = |wish| stands(&reports, address(), "b", wish);
        assert_eq!(stands("b/1"), Moving::Refused("it may not".into()));
        assert_eq!(stands("b/2"), Moving::At("a".into()));
    }
}

//! What the leader tells of announced addresses: the condition of a Service. It decides with values; the controller
//! writes what it says.

use super::Speakers;
use crate::status::Condition;
use std::net::IpAddr;

/// Reason of the condition: nodes announce all addresses.
const ANNOUNCED: &str = "Announced";
/// Reason of the condition: an address is announced by no node.
const NOT_ANNOUNCED: &str = "NotAnnounced";
/// The most addresses that a message names. A Service has two, and more only while it moves.
const MOST_NAMED: usize = 4;

impl Speakers {
    /// The condition of a Service with these addresses. None: it has none, or no speaker runs: then announcing may be
    /// the work of another product. Nodes are not named, so nodes that come and go cause no write of each Service.
    pub fn condition(&self, addresses: &[IpAddr]) -> Option<Condition> {
        if addresses.is_empty() || !self.any() {
            return None;
        }
        let mut parts = Vec::new();
        let mut holds = true;
        for address in addresses {
            let by = self.announced_by(*address).cloned().unwrap_or_default();
            let how = match (by.owners.is_empty(), by.bgp.is_empty()) {
                (true, true) => None,
                (true, false) => Some("by BGP"),
                (false, true) => Some("by layer 2"),
                (false, false) => Some("by layer 2 and BGP"),
            };
            holds &= how.is_some();
            parts.push(match how {
                Some(how) => format!("{address} is announced {how}"),
                None => format!("no node announces {address}"),
            });
        }
        parts.truncate(MOST_NAMED);
        let reason = if holds { ANNOUNCED } else { NOT_ANNOUNCED };
        Some(Condition { holds, reason: reason.into(), message: parts.join("; ").into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::SpeakerLease;
    use crate::report::speaker::{Session, SpeakerReport};
    use std::time::Duration;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn speakers(up: bool) -> Speakers {
        let session = Session { up, routes: 1, reason: None };
        let told = [(at("192.0.2.1"), ["tor".into()].into())];
        let sessions = [("tor".into(), session)].into();
        let report =
            SpeakerReport::new("a".into(), "1".into(), sessions, told, [at("2001:db8::1")]);
        let lasts = Duration::from_secs(15);
        let lease = SpeakerLease { report: Some(report), renewed: "1".into(), lasts };
        let mut speakers = Speakers::default();
        speakers.apply("l".into(), lease, Duration::ZERO);
        speakers
    }

    fn said(speakers: &Speakers, addresses: &[&str]) -> Option<(bool, String, String)> {
        let addresses: Vec<_> = addresses.iter().map(|it| at(it)).collect();
        let told = speakers.condition(&addresses)?;
        Some((told.holds, told.reason.to_string(), told.message.to_string()))
    }

    #[test]
    fn all_addresses_of_a_service_have_to_be_announced() {
        let speakers = speakers(true);
        let both = "192.0.2.1 is announced by BGP; 2001:db8::1 is announced by layer 2";
        let told = |holds, reason: &str, message: &str| {
            Some((holds, reason.to_owned(), message.to_owned()))
        };
        let expected = told(true, "Announced", both);
        assert_eq!(said(&speakers, &["192.0.2.1", "2001:db8::1"]), expected);
        let one = "192.0.2.1 is announced by BGP; no node announces 192.0.2.2";
        let expected = told(false, "NotAnnounced", one);
        assert_eq!(said(&speakers, &["192.0.2.1", "192.0.2.2"]), expected);
    }

    #[test]
    fn a_session_that_is_down_announces_nothing() {
        let told = said(&speakers(false), &["192.0.2.1"]).unwrap();
        assert_eq!(told.2, "no node announces 192.0.2.1");
    }

    #[test]
    fn without_a_speaker_or_an_address_nothing_is_said() {
        assert_eq!(said(&Speakers::default(), &["192.0.2.1"]), None);
        assert_eq!(said(&speakers(true), &[]), None);
    }
}

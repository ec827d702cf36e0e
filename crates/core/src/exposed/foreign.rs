//! Tells the load balancer's own ports from ports on which other programs listen. Which process is the load balancer
//! is not known, so configurations say which ports are its own. Pure: texts and ports in, ports out. The runtime's
//! template role calls it.

use super::view::Machine;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Places where programs listen: the load balancer, or others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening(BTreeSet<(IpAddr, u16)>);

impl FromIterator<(IpAddr, u16)> for Listening {
    fn from_iter<I: IntoIterator<Item = (IpAddr, u16)>>(places: I) -> Self {
        Self(places.into_iter().collect())
    }
}

impl Listening {
    /// The places of strangers: the configuration in place does not name their ports. Without a configuration in
    /// place nothing is known. If the configuration that would be put in place is known, only ports that it names
    /// count: if a template writes no ports, the load balancer may be the one that listens.
    pub fn strangers(&self, in_place: &[String], would_be: Option<&[String]>) -> Self {
        if in_place.is_empty() {
            return Self::default();
        }
        let is_named = |port: u16, texts: &[String]| texts.iter().any(|text| names(text, port));
        let is_strange = |(_, port): &(IpAddr, u16)| {
            !is_named(*port, in_place) && would_be.is_none_or(|texts| is_named(*port, texts))
        };
        self.0.iter().copied().filter(is_strange).collect()
    }

    /// Whether a program listens there.
    pub fn contains(&self, place: (IpAddr, u16)) -> bool {
        self.0.contains(&place)
    }

    /// The machine with these listeners added.
    pub fn on(&self, machine: &Machine) -> Machine {
        let listening = machine.listening.union(&self.0).copied().collect();
        Machine { listening, ..machine.clone() }
    }
}

/// Whether a text has this number as a word of its own.
fn names(text: &str, number: u16) -> bool {
    let number = number.to_string();
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let mut found = text.match_indices(&number);
    found.any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
        !is_digit(before) && !is_digit(text.as_bytes().get(at + number.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(ports: &[u16]) -> Listening {
        ports.iter().map(|port| (Ipv4Addr::LOCALHOST.into(), *port)).collect()
    }

    fn texts(text: &str) -> [String; 1] {
        [text.to_owned()]
    }

    #[test]
    fn a_number_is_named_as_a_word_of_its_own() {
        let text = "bind 192.0.2.1:8080\nbind :443";
        for (number, named) in [(8080, true), (443, true), (80, false), (808, false), (44, false)] {
            assert_eq!(names(text, number), named, "{number}");
        }
    }

    #[test]
    fn who_listens_is_a_stranger_unless_the_configuration_in_place_names_the_port() {
        let others = at(&[22, 80]);
        assert_eq!(others.strangers(&texts("bind :80"), None), at(&[22]));
        let two = ["bind :80".to_owned(), "bind :22".to_owned()];
        assert_eq!(others.strangers(&two, None), at(&[]));
    }

    #[test]
    fn with_nothing_in_place_nobody_is_a_stranger() {
        let others = at(&[22, 80]);
        assert_eq!(others.strangers(&[], None), at(&[]));
        assert_eq!(others.strangers(&[], Some(&texts("bind :22"))), at(&[]));
    }

    #[test]
    fn only_ports_that_would_be_bound_are_strangers_where_that_is_known() {
        let others = at(&[22, 80, 443]);
        let in_place = texts("bind :80");
        assert_eq!(others.strangers(&in_place, Some(&texts("bind :80\nbind :443"))), at(&[443]));
        // A template that names no ports says nothing of who listens.
        assert_eq!(others.strangers(&in_place, Some(&texts("server a"))), at(&[]));
        assert_eq!(others.strangers(&in_place, Some(&[])), at(&[]));
    }

    #[test]
    fn strangers_are_added_to_what_a_machine_is_known_to_have() {
        let machine = at(&[9180]).on(&Machine::default());
        let both = at(&[22]).on(&machine);
        assert_eq!(both, at(&[22, 9180]).on(&Machine::default()));
        assert!(at(&[22]).contains((Ipv4Addr::LOCALHOST.into(), 22)));
    }
}

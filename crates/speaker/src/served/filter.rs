//! The nftables rules for served addresses, as a value and as a script. The ARP table keeps the kernel silent: requests
//! for these addresses do not reach it, and its own requests do not name them as their sender. Packet sockets, with which
//! speakers work, are not concerned by it. The other table drops packets to ports without a listener.

use super::lo::Seen;
use super::{Ports, Protocol, Served};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// The name of both tables.
pub(super) const TABLE: &str = "bowline_served";

/// What the rules say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// Elements of the sets of the ARP table and of the other one, by name.
    sets: BTreeMap<Set, BTreeSet<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    /// The kernel is silent about them.
    Silent,
    /// The address that requests from each interface name as their sender instead.
    Senders,
    /// Addresses of which the open ports are known.
    Known4,
    Known6,
    /// Their open ports.
    Open4,
    Open6,
}

impl Set {
    const ALL: [Self; 6] =
        [Self::Silent, Self::Senders, Self::Known4, Self::Known6, Self::Open4, Self::Open6];

    fn table(self) -> &'static str {
        if matches!(self, Self::Silent | Self::Senders) { "arp" } else { "inet" }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Senders => "senders",
            Self::Known4 => "known4",
            Self::Known6 => "known6",
            Self::Open4 => "open4",
            Self::Open6 => "open6",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Silent | Self::Known4 => "ipv4_addr",
            Self::Senders => "iface_index : ipv4_addr",
            Self::Known6 => "ipv6_addr",
            Self::Open4 => "ipv4_addr . inet_proto . inet_service",
            Self::Open6 => "ipv6_addr . inet_proto . inet_service",
        }
    }
}

impl Filter {
    /// For what is served, and what of earlier is still there.
    pub(super) fn of(served: &Served, seen: &Seen) -> Self {
        let mut filter = Self::default();
        let left = seen.lo.iter().filter(|it| *it.1).map(|it| it.0);
        for address in served.addresses.keys().chain(left) {
            if address.is_ipv4() {
                filter.put(Set::Silent, address.to_string());
            }
        }
        // kube-proxy in IPVS mode has the addresses of Services on every node. An address of the node itself stays
        // reachable, whatever is announced.
        for address in served.silent.iter().filter(|it| !seen.own.contains(*it)) {
            if address.is_ipv4() {
                filter.put(Set::Silent, address.to_string());
            }
        }
        for (address, ports) in &served.addresses {
            let Ports::Only(ports) = ports else { continue };
            let (known, open) = match address {
                IpAddr::V4(_) => (Set::Known4, Set::Open4),
                IpAddr::V6(_) => (Set::Known6, Set::Open6),
            };
            filter.put(known, address.to_string());
            for (protocol, port) in ports {
                let protocol = match protocol {
                    Protocol::Tcp => "tcp",
                    Protocol::Udp => "udp",
                };
                filter.put(open, format!("{address} . {protocol} . {port}"));
            }
        }
        if !filter.sets.is_empty() {
            for (index, address) in &seen.interfaces {
                filter.put(Set::Senders, format!("{index} : {address}"));
            }
        }
        filter
    }

    fn put(&mut self, set: Set, element: String) {
        self.sets.entry(set).or_default().insert(element);
    }

    /// Whether no rule is needed.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Turns what is in place into this. Without knowing what is in place, everything is replaced.
    pub(super) fn script(&self, before: Option<&Self>) -> String {
        match before {
            _ if self.sets.is_empty() => self.clear(),
            Some(before) if !before.sets.is_empty() => self.difference(before),
            _ => self.whole(),
        }
    }

    fn clear(&self) -> String {
        // A table is added before it is deleted, which fails where there is none.
        let clear = |family| format!("add table {family} {TABLE}\ndelete table {family} {TABLE}\n");
        ["arp", "inet"].map(clear).concat()
    }

    fn whole(&self) -> String {
        let mut script = self.clear();
        for family in ["arp", "inet"] {
            let _ = writeln!(script, "table {family} {TABLE} {{");
            for set in Set::ALL.into_iter().filter(|it| it.table() == family) {
                let word = if set == Set::Senders { "map" } else { "set" };
                let _ = writeln!(script, "  {word} {} {{ type {};", set.name(), set.kind());
                if let Some(elements) = self.sets.get(&set) {
                    let _ = writeln!(script, "    elements = {{ {} }}", join(elements));
                }
                script += "  }\n";
            }
            script += &if family == "arp" { arp_chains() } else { inet_chain() };
            script += "}\n";
        }
        script
    }

    fn difference(&self, before: &Self) -> String {
        let mut script = String::new();
        let none = BTreeSet::new();
        for set in Set::ALL {
            let old = before.sets.get(&set).unwrap_or(&none);
            let new = self.sets.get(&set).unwrap_or(&none);
            let gone: Vec<_> = old.difference(new).collect();
            let more: Vec<_> = new.difference(old).collect();
            for (verb, elements) in [("delete", gone), ("add", more)] {
                if !elements.is_empty() {
                    let (table, name) = (set.table(), set.name());
                    let elements = join(elements);
                    let _ =
                        writeln!(script, "{verb} element {table} {TABLE} {name} {{ {elements} }}");
                }
            }
        }
        script
    }
}

fn arp_chains() -> String {
    // An interface without an address of its own is in no map: the request is dropped.
    String::from(
        "  chain input { type filter hook input priority 0; policy accept;\n    \
         arp operation request arp daddr ip @silent drop\n  }\n  \
         chain output { type filter hook output priority 0; policy accept;\n    \
         arp saddr ip @silent arp saddr ip set oif map @senders\n    \
         arp saddr ip @silent drop\n  }\n",
    )
}

fn inet_chain() -> String {
    // After the translation of addresses (-100) and before the filters of others (0).
    let mut chain = String::from(
        "  chain input { type filter hook input priority -10; policy accept;\n    iif lo accept\n",
    );
    for (ip, known, open) in [("ip", Set::Known4, Set::Open4), ("ip6", Set::Known6, Set::Open6)] {
        let (known, open) = (known.name(), open.name());
        let _ = writeln!(
            chain,
            "    meta l4proto {{ tcp, udp }} {ip} daddr @{known} \
             {ip} daddr . meta l4proto . th dport != @{open} drop"
        );
    }
    chain + "  }\n"
}

fn join<'a>(elements: impl IntoIterator<Item = &'a String>) -> String {
    elements.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Both tables as nft shows them, without the elements of sets: to find out whether others changed them.
pub(super) fn shown() -> String {
    let show = |family| {
        let words = ["-t", "list", "table", family, TABLE];
        let output = Command::new("nft").args(words).stderr(Stdio::null()).output();
        output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default()
    };
    ["arp", "inet"].map(show).concat()
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use crate::served::lo::Seen;
    use crate::served::{Ports, Protocol, Served};
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::Ipv4Addr;

    fn served(addresses: &[(&str, &[u16])]) -> Served {
        let ports = |it: &[u16]| Ports::Only(it.iter().map(|it| (Protocol::Tcp, *it)).collect());
        let address = |(address, it): &(&str, &[u16])| (address.parse().expect("one"), ports(it));
        Served {
            addresses: addresses.iter().map(address).collect(),
            complete: true,
            ..Served::default()
        }
    }

    #[test]
    fn a_change_is_a_few_elements_also_when_interfaces_come() {
        let seen = |last| {
            let interfaces = (2..=last).map(|it| (it, Ipv4Addr::new(10, 0, 0, it as u8))).collect();
            Seen { interfaces, ..Seen::default() }
        };
        let (seen, later) = (seen(2), seen(3));
        let before = Filter::of(&served(&[("192.0.2.1", &[80]), ("2001:db8::1", &[80])]), &seen);
        let after = Filter::of(&served(&[("192.0.2.1", &[80, 443]), ("192.0.2.2", &[])]), &later);
        assert_eq!(
            after.script(Some(&before)).lines().collect::<BTreeSet<_>>(),
            BTreeSet::from([
                "add element arp bowline_served silent { 192.0.2.2 }",
                "add element arp bowline_served senders { 3 : 10.0.0.3 }",
                "add element inet bowline_served known4 { 192.0.2.2 }",
                "delete element inet bowline_served known6 { 2001:db8::1 }",
                "add element inet bowline_served open4 { 192.0.2.1 . tcp . 443 }",
                "delete element inet bowline_served open6 { 2001:db8::1 . tcp . 80 }",
            ])
        );
        let whole = after.script(None);
        assert!(whole.starts_with("add table arp bowline_served\ndelete table arp"), "{whole}");
        assert!(whole.contains("elements = { 2 : 10.0.0.2, 3 : 10.0.0.3 }"), "{whole}");
        let nothing = Filter::of(&served(&[]), &seen);
        assert!(nothing.script(Some(&after)).lines().count() == 4, "both tables go");
    }

    #[test]
    fn the_kernel_is_silent_about_addresses_that_are_left_from_an_earlier_start() {
        let lo = BTreeMap::from([
            ("192.0.2.9".parse().expect("one"), true),
            ("127.0.0.1".parse().expect("one"), false),
        ]);
        let seen = Seen { lo, ..Seen::default() };
        let script = Filter::of(&served(&[]), &seen).script(None);
        assert!(script.contains("elements = { 192.0.2.9 }"), "{script}");
        assert!(!script.contains("127.0.0.1"), "{script}");
    }

    #[test]
    fn the_kernel_is_silent_about_addresses_that_only_speakers_answer_for() {
        let silent = ["192.0.2.7", "192.0.2.1", "2001:db8::7"].map(|it| it.parse().expect("one"));
        let served = Served { silent: silent.into(), ..Served::default() };
        let own = ["192.0.2.1".parse().expect("one")].into();
        let script = Filter::of(&served, &Seen { own, ..Seen::default() }).script(None);
        assert!(script.contains("elements = { 192.0.2.7 }"), "not the node's own: {script}");
    }
}

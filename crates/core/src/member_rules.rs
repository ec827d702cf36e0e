//! Decides which addresses may be members, so that an agent sends traffic to them. Tenants write EndpointSlices, so an
//! address in one may be the agent's own, a metadata service on the link, or one of our load balancers, which would be
//! a loop. It does no I/O; the resolver and the view of kube2lb's templates apply its rules.

use ipnet::{IpNet, Ipv4Net};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The most members of one pool. A larger pool keeps the members that it has, and its consumer is told.
pub const MOST_MEMBERS: usize = 2_000;
/// The most members of all pools of one namespace on one load balancer. One Service behind many Ingresses or ports
/// counts its endpoints once for each pool.
pub const MOST_OF_NAMESPACE: usize = 20_000;
/// Members that one message names.
const MOST_NAMED: usize = 3;

/// The rules of an administrator and of an agent for members. The default allows no loopback and denies nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRules {
    /// Whether a member may be on loopback, as on a cluster of one machine.
    pub loopback: bool,
    /// Networks in which no member may be.
    pub denied: Vec<IpNet>,
    /// Sockets on which this process itself listens, such as its admin endpoint. An unspecified address stands for all
    /// of `machine`.
    pub listening: Vec<SocketAddr>,
    /// The addresses of this machine.
    pub machine: BTreeSet<IpAddr>,
    /// The addresses at which the listeners are opened in place of the plan's addresses. Empty: at the plan's
    /// addresses.
    pub here: Vec<IpAddr>,
}

/// Why a member gets no traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unfit {
    /// It stands for no machine, or for this one.
    Unspecified,
    /// It stands for this machine.
    Loopback,
    /// It may reach something on the agent's link, such as a metadata service.
    LinkLocal,
    /// It stands for several machines.
    Multicast,
    /// It stands for all machines.
    Broadcast,
    /// It is in a network that an administrator denies.
    Denied(IpNet),
    /// It is an address of one of our load balancers.
    LoadBalancer,
    /// The agent itself listens there.
    Agent,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspecified => f.write_str("an unspecified address"),
            Self::Loopback => f.write_str("a loopback address"),
            Self::LinkLocal => f.write_str("a link-local address"),
            Self::Multicast => f.write_str("a multicast address"),
            Self::Broadcast => f.write_str("the broadcast address"),
            Self::Denied(net) => write!(f, "in {net}, which --deny-members lists"),
            Self::LoadBalancer => f.write_str("an address of a load balancer"),
            Self::Agent => f.write_str("where the agent itself listens"),
        }
    }
}

impl MemberRules {
    /// Why an address gets no traffic, whatever the plan says. None: it may be a member.
    pub fn refuse(&self, at: SocketAddr) -> Option<Unfit> {
        let ip = at.ip().to_canonical();
        self.kind(ip)
            .or_else(|| translated(ip).and_then(|inner| self.kind(inner)))
            .or_else(|| self.denied_in(ip))
            .or_else(|| spellings(ip).any(|ip| self.is_own(ip, at.port())).then_some(Unfit::Agent))
    }

    /// Why no member may have an address of this kind.
    fn kind(&self, ip: IpAddr) -> Option<Unfit> {
        let loopback = (!self.loopback).then_some(Unfit::Loopback);
        match ip {
            // All of 0.0.0.0/8 is "this network"; Linux connects 0.0.0.0 to itself.
            IpAddr::V4(ip) if ip.octets()[0] == 0 => Some(Unfit::Unspecified),
            IpAddr::V4(ip) if ip.is_loopback() => loopback,
            IpAddr::V4(ip) if ip.is_link_local() => Some(Unfit::LinkLocal),
            IpAddr::V4(ip) if ip.is_multicast() => Some(Unfit::Multicast),
            IpAddr::V4(ip) if ip.is_broadcast() => Some(Unfit::Broadcast),
            IpAddr::V6(ip) if ip.is_unspecified() => Some(Unfit::Unspecified),
            IpAddr::V6(ip) if ip.is_loopback() => loopback,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(Unfit::LinkLocal),
            IpAddr::V6(ip) if ip.is_multicast() => Some(Unfit::Multicast),
            _ => None,
        }
    }

    fn denied_in(&self, ip: IpAddr) -> Option<Unfit> {
        let inner = translated(ip);
        let within = |net: &&IpNet| net.contains(&ip) || inner.is_some_and(|it| net.contains(&it));
        self.denied.iter().find(within).map(|net| Unfit::Denied(*net))
    }

    fn is_own(&self, ip: IpAddr, port: u16) -> bool {
        self.listening.iter().filter(|own| own.port() == port).any(|own| {
            let at = own.ip().to_canonical();
            at == ip || at.is_unspecified() && (ip.is_loopback() || self.machine.contains(&ip))
        })
    }
}

/// The addresses to which a member's address leads: itself, and the IPv4 address behind a translator.
pub(crate) fn spellings(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    let ip = ip.to_canonical();
    [Some(ip), translated(ip)].into_iter().flatten()
}

/// The IPv4 address that a translator at the well-known prefix (RFC 6052) would reach.
fn translated(ip: IpAddr) -> Option<IpAddr> {
    const PREFIX: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
    let IpAddr::V6(ip) = ip else { return None };
    let ip = ip.segments();
    let [high, low] = [ip[6], ip[7]];
    let inner = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    (ip[..6] == PREFIX).then_some(inner.into())
}

/// Reads a value of `--deny-members`: a CIDR, or a single address. A network of IPv4-mapped addresses denies the IPv4
/// addresses.
///
/// # Errors
///
/// A sentence that says what is accepted.
pub fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| "write a network such as 10.0.0.0/8, or an address".to_owned())?;
    let mapped = |net: &ipnet::Ipv6Net| {
        let inner: Ipv4Addr = Ipv6Addr::to_ipv4_mapped(&net.addr())?;
        Ipv4Net::new(inner, net.prefix_len().checked_sub(96)?).ok()
    };
    Ok(match &net {
        IpNet::V6(six) => mapped(six).map_or(net, IpNet::V4),
        IpNet::V4(_) => net,
    })
}

/// The endpoints of a pool that are left out, as far as one message can list them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first unfit endpoints, sorted.
    named: Vec<(SocketAddr, Unfit)>,
    /// The number of unfit endpoints.
    unfit: usize,
    /// The number of endpoints beyond the limit of a pool.
    over: usize,
    /// The number of endpoints beyond the limit of their namespace.
    crowded: usize,
}

impl LeftOut {
    /// Notes an endpoint that may not be a member. Endpoints come sorted.
    pub fn note(&mut self, at: SocketAddr, why: Unfit) {
        self.unfit += 1;
        if self.named.len() < MOST_NAMED {
            self.named.push((at, why));
        }
    }

    /// Notes the number of endpoints beyond the limit of a pool.
    pub fn note_over(&mut self, over: usize) {
        self.over = over;
    }

    /// Notes the number of endpoints beyond the limit of their namespace.
    pub fn note_crowded(&mut self, crowded: usize) {
        self.crowded = crowded;
    }

    /// Whether nothing is left out.
    pub fn is_nothing(&self) -> bool {
        self.unfit == 0 && self.over == 0 && self.crowded == 0
    }

    /// The message about unfit endpoints of this Service.
    pub fn unfit(&self, service: &str) -> Option<String> {
        let named: Vec<_> = self.named.iter().map(|(at, why)| format!("{at} ({why})")).collect();
        let more = match self.unfit - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = named.join(", ");
        (self.unfit > 0)
            .then(|| format!("members of Service {service} get no traffic: {named}{more}"))
    }

    /// The message about endpoints of this Service that are too many.
    pub fn over(&self, service: &str) -> Option<String> {
        let (number, why) = match (self.over, self.crowded) {
            (0, 0) => return None,
            (over, 0) => (over, format!("a pool can have at most {MOST_MEMBERS}")),
            (_, crowded) => {
                let most = format!("at most {MOST_OF_NAMESPACE} members of pools");
                let claim = "claim a load balancer for the namespace to have more";
                (
                    crowded,
                    format!(
                        "a namespace can have {most} on a load balancer that other namespaces may use; {claim}"
                    ),
                )
            }
        };
        let members = if number == 1 { "1 member" } else { &format!("{number} members") };
        Some(format!("{members} of Service {service} get no traffic: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn why(rules: &MemberRules, text: &str) -> Option<Unfit> {
        rules.refuse(at(text))
    }

    #[test]
    fn addresses_that_mean_the_agent_its_link_or_many_are_no_members() {
        let rules = MemberRules::default();
        for (text, expected) in [
            ("127.0.0.1:80", Unfit::Loopback),
            ("127.9.9.9:80", Unfit::Loopback),
            ("[::1]:80", Unfit::Loopback),
            ("[::ffff:127.0.0.1]:80", Unfit::Loopback),
            ("[64:ff9b::7f00:1]:80", Unfit::Loopback),
            ("169.254.169.254:80", Unfit::LinkLocal),
            ("[::ffff:169.254.169.254]:80", Unfit::LinkLocal),
            ("[64:ff9b::a9fe:a9fe]:80", Unfit::LinkLocal),
            ("[fe80::1]:80", Unfit::LinkLocal),
            ("0.0.0.0:80", Unfit::Unspecified),
            ("0.1.2.3:80", Unfit::Unspecified),
            ("[::]:80", Unfit::Unspecified),
            ("[::ffff:0.0.0.0]:80", Unfit::Unspecified),
            ("224.0.0.1:80", Unfit::Multicast),
            ("[ff02::1]:80", Unfit::Multicast),
            ("255.255.255.255:80", Unfit::Broadcast),
        ] {
            assert_eq!(why(&rules, text), Some(expected), "{text}");
        }
        for text in ["10.0.0.1:80", "192.0.2.1:1", "[2001:db8::1]:80", "[fd00::1]:80"] {
            assert_eq!(why(&rules, text), None, "{text}");
        }
    }

    #[test]
    fn loopback_is_allowed_where_it_is_said_and_the_agents_own_port_is_not() {
        let listening = vec![at("127.0.0.1:9180"), at("[::]:6443")];
        let machine = [IpAddr::from([192, 0, 2, 7])].into();
        let rules = MemberRules { loopback: true, listening, machine, ..MemberRules::default() };
        for (text, expected) in [
            ("127.0.0.1:8080", None),
            ("127.0.0.1:9180", Some(Unfit::Agent)),
            ("[::ffff:127.0.0.1]:9180", Some(Unfit::Agent)),
            ("127.0.0.2:9180", None),
            ("127.0.0.2:6443", Some(Unfit::Agent)),
            ("192.0.2.7:6443", Some(Unfit::Agent)),
            ("192.0.2.8:6443", None),
        ] {
            assert_eq!(why(&rules, text), expected, "{text}");
        }
    }

    #[test]
    fn networks_are_denied_in_every_spelling_of_an_address() {
        let denied = ["10.0.0.0/8", "::ffff:192.0.2.0/120", "fd00:ec2::254", "203.0.113.9"];
        let denied: Vec<_> = denied.iter().map(|text| network(text).unwrap()).collect();
        let rules = MemberRules { denied: denied.clone(), ..MemberRules::default() };
        for (text, expected) in [
            ("10.1.2.3:80", Some(0)),
            ("[::ffff:10.1.2.3]:80", Some(0)),
            ("[64:ff9b::a01:203]:80", Some(0)),
            ("192.0.2.77:80", Some(1)),
            ("[fd00:ec2::254]:80", Some(2)),
            ("[fd00:ec2::255]:80", None),
            ("203.0.113.9:80", Some(3)),
            ("203.0.113.10:80", None),
        ] {
            let expected = expected.map(|index: usize| Unfit::Denied(denied[index]));
            assert_eq!(why(&rules, text), expected, "{text}");
        }
        for bad in ["", "10.0.0.0/33", "shop", "10.0.0"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_names_some_and_counts_the_others() {
        let mut left = LeftOut::default();
        assert_eq!((left.unfit("shop/web"), left.over("shop/web")), (None, None));
        for last in 1..=5 {
            left.note(at(&format!("127.0.0.{last}:80")), Unfit::Loopback);
        }
        left.note_over(7);
        let said = "members of Service shop/web get no traffic: 127.0.0.1:80 (a loopback address), \
                    127.0.0.2:80 (a loopback address), 127.0.0.3:80 (a loopback address) and 2 more";
        assert_eq!(left.unfit("shop/web").as_deref(), Some(said));
        let said = "7 members of Service shop/web get no traffic: a pool can have at most 2000";
        assert_eq!(left.over("shop/web").as_deref(), Some(said));
    }
}

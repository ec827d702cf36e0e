//! Decides whether two requesters may share an address: the same key, the same load balancer, no port in common,
//! traffic that can be told apart, and one namespace unless the pool allows more. Pure functions, which
//! [`super::grant`] calls with the terms under which an address was granted: a later edit can cost only the editor
//! its address.

use super::record::{HolderKind, HolderRef, Port};
use super::request::{Labels, Sharing};
use crate::outcome::quote;
use std::fmt;
use std::sync::Arc;

/// The terms under which a requester has, or would have, an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) namespace: &'a Arc<str>,
    pub(super) key: Option<&'a Arc<str>>,
    /// None: it is on no load balancer.
    pub(super) load_balancer: Option<&'a Arc<str>>,
    /// Empty: all.
    pub(super) ports: &'a [Port],
    /// None: not known.
    pub(super) traffic: Option<Traffic<'a>>,
}

/// Which Pods traffic to an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic<'a> {
    pub(super) local_only: bool,
    pub(super) selector: &'a Labels,
}

impl<'a> Traffic<'a> {
    pub(super) fn of(sharing: &'a Sharing) -> Self {
        Self { local_only: sharing.local_only, selector: &sharing.selector }
    }

    fn goes_with(&self, other: &Self) -> bool {
        !self.local_only && !other.local_only || self.selector == other.selector
    }
}

/// Why two requesters cannot share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clash {
    pub(super) with: HolderRef,
    pub(super) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Key,
    Port(Port),
    Ports,
    Traffic,
    Namespace,
    /// The other holder is on this load balancer, or on none.
    Elsewhere(Option<Arc<str>>),
    /// The address has this many holders.
    Full(usize),
}

impl Clash {
    /// What would help a requester that asks for this address. Only Services share.
    pub(super) fn remedy(&self) -> &'static str {
        match self.why {
            Why::Key if self.with.kind == HolderKind::Service => {
                "ask for another address, or share it: give both Services the same bowline.dev/allow-shared-ip \
                 and different ports"
            }
            Why::Port(_) => "ask for another address, or use other ports",
            Why::Traffic => {
                "ask for another address, or use externalTrafficPolicy Cluster on both Services"
            }
            Why::Namespace => "ask for another address, or set the pool's sharingAcrossNamespaces",
            Why::Elsewhere(_) => "ask for another address, or put both on one load balancer",
            Why::Key | Why::Ports | Why::Full(_) => "ask for another address",
        }
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.with)?;
        match &self.why {
            Why::Key => f.write_str(", which does not share it under the same key"),
            Why::Port(port) => write!(f, ", which also has port {port}"),
            Why::Ports => f.write_str(", and one of the two may use any port"),
            Why::Traffic => f.write_str(
                ", and externalTrafficPolicy Local needs the same selector on both Services",
            ),
            Why::Namespace => f.write_str(
                " of another namespace, and the pool does not allow sharing across namespaces",
            ),
            Why::Elsewhere(Some(lb)) => {
                write!(f, ", which has it on load balancer {}", quote(lb))
            }
            Why::Elsewhere(None) => f.write_str(", which has it on no load balancer"),
            Why::Full(most) => {
                write!(f, " and others, and at most {most} Services can share an address")
            }
        }
    }
}

/// Whether two requesters may share an address. `across`: also across namespaces.
pub(super) fn may_share(one: Terms<'_>, other: Terms<'_>, across: bool) -> Result<(), Why> {
    if one.key.is_none() || one.key != other.key {
        return Err(Why::Key);
    }
    if one.namespace != other.namespace && !across {
        return Err(Why::Namespace);
    }
    // One load balancer would close what another one opens, and kube-proxy would take traffic of both.
    if one.load_balancer != other.load_balancer {
        return Err(Why::Elsewhere(other.load_balancer.cloned()));
    }
    if one.ports.is_empty() || other.ports.is_empty() {
        return Err(Why::Ports);
    }
    if let Some(port) = one.ports.iter().find(|port| other.ports.contains(port)) {
        return Err(Why::Port(*port));
    }
    match (one.traffic, other.traffic) {
        (Some(one), Some(other)) if one.goes_with(&other) => Ok(()),
        _ => Err(Why::Traffic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ObjectKey;
    use crate::plan::Transport;

    #[test]
    fn to_share_is_advised_only_where_a_service_has_the_address() {
        let clash = |kind| Clash {
            with: HolderRef { key: ObjectKey::new("shop", "web"), kind, uid: "1".into() },
            why: Why::Key,
        };
        assert!(clash(HolderKind::Service).remedy().contains("share it"));
        for kind in [HolderKind::LoadBalancer, HolderKind::ExternalIp] {
            assert_eq!(clash(kind).remedy(), "ask for another address");
        }
    }

    fn port(transport: Transport, number: u16) -> Port {
        Port { transport, number }
    }

    fn labels(app: &str) -> Labels {
        [("app".into(), app.into())].into()
    }

    #[test]
    fn two_share_only_with_the_same_key_disjoint_ports_and_traffic_that_fits() {
        use Transport::{Tcp, Udp};
        let (shop, bank): (Arc<str>, Arc<str>) = ("shop".into(), "bank".into());
        let (key, other_key): (Arc<str>, Arc<str>) = ("k".into(), "l".into());
        let (http, dns, dns_udp) = ([port(Tcp, 80)], [port(Tcp, 53)], [port(Udp, 53)]);
        let (web, api) = (labels("web"), labels("api"));
        let cluster = |selector| Some(Traffic { local_only: false, selector });
        let local = |selector| Some(Traffic { local_only: true, selector });
        let base = Terms {
            namespace: &shop,
            key: Some(&key),
            load_balancer: None,
            ports: &http,
            traffic: cluster(&web),
        };
        let with = Terms { ports: &dns, traffic: cluster(&api), ..base };
        let cases = [
            ("other ports, both Cluster", base, with, false, Ok(())),
            ("no key", base, Terms { key: None, ..with }, false, Err(Why::Key)),
            (
                "neither has a key",
                Terms { key: None, ..base },
                Terms { key: None, ..with },
                false,
                Err(Why::Key),
            ),
            ("another key", base, Terms { key: Some(&other_key), ..with }, false, Err(Why::Key)),
            (
                "a port in common",
                base,
                Terms { ports: &http, ..with },
                false,
                Err(Why::Port(http[0])),
            ),
            ("one number, two protocols", Terms { ports: &dns_udp, ..base }, with, false, Ok(())),
            ("any port", base, Terms { ports: &[], ..with }, false, Err(Why::Ports)),
            (
                "another namespace",
                base,
                Terms { namespace: &bank, ..with },
                false,
                Err(Why::Namespace),
            ),
            ("another namespace, allowed", base, Terms { namespace: &bank, ..with }, true, Ok(())),
            (
                "one Local, other Pods",
                base,
                Terms { traffic: local(&api), ..with },
                false,
                Err(Why::Traffic),
            ),
            (
                "both Local, other Pods",
                Terms { traffic: local(&web), ..base },
                Terms { traffic: local(&api), ..with },
                false,
                Err(Why::Traffic),
            ),
            (
                "one Local, the same Pods",
                base,
                Terms { traffic: local(&web), ..with },
                false,
                Ok(()),
            ),
            ("traffic not known", base, Terms { traffic: None, ..with }, false, Err(Why::Traffic)),
        ];
        let edge: Arc<str> = "edge".into();
        let on_edge = Terms { load_balancer: Some(&edge), ..with };
        assert_eq!(may_share(base, on_edge, true), Err(Why::Elsewhere(Some(edge.clone()))));
        assert_eq!(may_share(on_edge, base, true), Err(Why::Elsewhere(None)));
        let beside = Terms { load_balancer: Some(&edge), ..base };
        assert_eq!(may_share(on_edge, beside, false), Ok(()));
        for (what, one, other, across, expected) in cases {
            assert_eq!(may_share(one, other, across), expected, "{what}");
            assert_eq!(may_share(other, one, across), expected, "{what}, the other way round");
        }
    }
}

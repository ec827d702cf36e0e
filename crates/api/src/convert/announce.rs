//! Advertisements and BGPPeers, as the speaker gets them. A server with the schema accepts no value that cannot be
//! read; one that is stored all the same (the schema was replaced) makes a [`Problem`], and the speaker keeps what it
//! had.

use super::load_balancer::label_selector;
use super::read::name;
use crate::advertisement::Advertisement;
use crate::bgp_peer::{BGPPeer, PeerAsn, PeerKind};
use crate::selector::LabelSelector;
use bowline_core::announce::{
    self, Bfd, ByBgp, ByL2, Community, Covers, Lengths, PeerTarget, Route,
};
use bowline_core::objects;
use bowline_core::outcome::{Problem, Reason, quote};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

fn bad(field: &str, why: impl std::fmt::Display) -> Problem {
    Problem::new(Reason::BadValue, format!("{field}: {why}"))
}

fn names(all: &[String]) -> BTreeSet<Arc<str>> {
    all.iter().map(|it| it.as_str().into()).collect()
}

fn selector(
    field: &str,
    written: Option<&LabelSelector>,
) -> Result<Option<objects::LabelSelector>, Problem> {
    let Some(written) = written else { return Ok(None) };
    let unreadable = || bad(field, "values are needed with In and NotIn, and only with them");
    label_selector(written).map(Some).ok_or_else(unreadable)
}

/// An Advertisement.
pub fn advertisement(object: &Advertisement) -> Result<announce::Advertisement, Problem> {
    let Advertisement { metadata, spec } = object;
    let l2 = match &spec.l2 {
        None => None,
        Some(l2) => Some(ByL2 {
            interfaces: names(&l2.interfaces),
            preferred: selector(
                "spec.l2.preferredNodeSelector",
                l2.preferred_node_selector.as_ref(),
            )?,
        }),
    };
    let bgp = match &spec.bgp {
        None => None,
        Some(bgp) => {
            let (v4, v6) = (bgp.aggregation_length, bgp.aggregation_length_v6);
            let lengths = Lengths::new(v4, v6).ok_or_else(|| {
                let why = format!("{v4} or {v6} is not the length of a prefix");
                bad("spec.bgp.aggregationLength, aggregationLengthV6", why)
            })?;
            let communities = bgp
                .communities
                .iter()
                .map(|text| text.parse::<Community>())
                .collect::<Result<BTreeSet<_>, _>>()
                .map_err(|why| bad("spec.bgp.communities", why))?;
            let route = Route {
                local_pref: bgp.local_pref,
                med: bgp.med,
                prepend: bgp.prepend,
                communities,
            };
            if route != route.clone().bounded() {
                return Err(bad("spec.bgp", "prepend and communities do not fit into a message"));
            }
            Some(ByBgp { peers: names(&bgp.peers), lengths, route })
        }
    };
    Ok(announce::Advertisement {
        name: name(metadata),
        covers: Covers {
            pools: names(&spec.address_pools),
            pool_selector: selector(
                "spec.addressPoolSelector",
                spec.address_pool_selector.as_ref(),
            )?,
            load_balancers: names(&spec.load_balancers),
            services: selector("spec.serviceSelector", spec.service_selector.as_ref())?,
        },
        nodes: selector("spec.nodeSelector", spec.node_selector.as_ref())?,
        l2,
        bgp,
    })
}

/// A BGPPeer.
pub fn bgp_peer(object: &BGPPeer) -> Result<announce::Peer, Problem> {
    let BGPPeer { metadata, spec, .. } = object;
    let target = match (spec.peer_address, &spec.interface) {
        (Some(address), None) => PeerTarget::Address(usable("spec.peerAddress", address)?),
        (None, Some(interface)) => PeerTarget::Interface(interface.as_str().into()),
        _ => return Err(bad("spec", "exactly one of peerAddress and interface is needed")),
    };
    let hold_time = seconds("spec.holdTime", spec.hold_time.into(), 0, u16::MAX)?;
    if (1..3).contains(&hold_time) {
        return Err(bad("spec.holdTime", "must be 0s, or from 3s to 65535s"));
    }
    let restart = &spec.graceful_restart;
    let graceful_restart = match restart.enabled {
        false => None,
        true => {
            Some(seconds("spec.gracefulRestart.restartTime", restart.restart_time.into(), 1, 4095)?)
        }
    };
    let asn = match spec.peer_asn {
        PeerAsn::Number(0) => return Err(bad("spec.peerASN", "0 is not an AS number")),
        PeerAsn::Number(number) => announce::PeerAsn::Is(number),
        PeerAsn::Kind(PeerKind::External) => announce::PeerAsn::External,
        PeerAsn::Kind(PeerKind::Internal) => announce::PeerAsn::Internal,
    };
    if spec.my_asn == 0 {
        return Err(bad("spec.myASN", "0 is not an AS number"));
    }
    let router_id = spec.router_id;
    if router_id.is_some_and(|id| id.is_unspecified()) {
        return Err(bad("spec.routerID", "0.0.0.0 is no BGP identifier"));
    }
    let keepalive = spec.keepalive_time.map(Duration::from);
    if keepalive.is_some_and(|it| it.is_zero()) {
        return Err(bad("spec.keepaliveTime", "must be at least 1s"));
    }
    let name_of = |text: &Option<String>| text.as_deref().map(Into::into);
    Ok(announce::Peer {
        name: name(metadata),
        target,
        port: spec.peer_port,
        asn,
        my_asn: spec.my_asn,
        router_id,
        source: spec.source_address.map(|it| usable("spec.sourceAddress", it)).transpose()?,
        next_hop: spec.next_hop.map(|it| usable("spec.nextHop", it)).transpose()?,
        vrf: name_of(&spec.vrf),
        ttl_security: spec.ttl_security,
        listen: spec.listen,
        nodes: selector("spec.nodeSelector", spec.node_selector.as_ref())?,
        hold_time,
        keepalive_time: keepalive,
        connect_time: Duration::from(spec.connect_time).max(Duration::from_secs(1)),
        multi_hop: spec.ebgp_multi_hop,
        password_secret: spec.password_secret_ref.as_ref().map(|it| it.name.as_str().into()),
        graceful_restart,
        bfd: spec.bfd.as_ref().map(bfd).transpose()?,
    })
}

/// An address that a machine can have.
fn usable(field: &str, address: IpAddr) -> Result<IpAddr, Problem> {
    match address.is_unspecified() || address.is_multicast() {
        true => Err(bad(field, format!("{address} is no address of a machine"))),
        false => Ok(address),
    }
}

fn seconds(field: &str, time: Duration, least: u16, most: u16) -> Result<u16, Problem> {
    let seconds = u16::try_from(time.as_secs()).ok();
    let seconds = seconds.filter(|it| (least..=most).contains(it));
    seconds.ok_or_else(|| bad(field, format!("must be from {least}s to {most}s")))
}

fn bfd(spec: &crate::bgp_peer::BfdSpec) -> Result<Bfd, Problem> {
    if spec.echo {
        return Err(bad("spec.bfd.echo", "the echo function of BFD is not supported"));
    }
    let interval = |field: &str, interval: crate::duration::Interval| {
        let time = Duration::from(interval);
        let allowed = Duration::from_millis(10)..=Duration::from_secs(60);
        let refused =
            || bad(field, format!("{} is not between 10ms and 60s", quote(&interval.to_string())));
        allowed.contains(&time).then_some(time).ok_or_else(refused)
    };
    let number = |field: &str, number: u8, least: u8| {
        let number = NonZeroU8::new(number).filter(|it| it.get() >= least);
        number.ok_or_else(|| bad(field, format!("must be from {least} to 255")))
    };
    Ok(Bfd {
        receive_interval: interval("spec.bfd.receiveInterval", spec.receive_interval)?,
        transmit_interval: interval("spec.bfd.transmitInterval", spec.transmit_interval)?,
        detect_multiplier: number("spec.bfd.detectMultiplier", spec.detect_multiplier, 2)?,
        minimum_ttl: number("spec.bfd.minimumTTL", spec.minimum_ttl, 1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{HOSTILE, object};
    use serde_json::{Value, json};

    fn adv(spec: &str) -> Result<announce::Advertisement, Problem> {
        advertisement(&object(&format!("metadata: {{name: a}}\nspec: {spec}")))
    }

    fn peer(spec: &str) -> Result<announce::Peer, Problem> {
        bgp_peer(&object(&format!("metadata: {{name: tor}}\nspec: {{myASN: 64512, {spec}}}")))
    }

    #[test]
    fn an_advertisement_that_names_nothing_covers_everything_by_host_routes() {
        let expected = announce::Advertisement {
            name: "a".into(),
            covers: Covers::default(),
            nodes: None,
            l2: Some(ByL2::default()),
            bgp: Some(ByBgp::default()),
        };
        let read = adv("{l2: {}, bgp: {}}").unwrap();
        assert_eq!(read, expected);
        assert!(read.covers.is_everything());
        assert!(!adv("{loadBalancers: [edge], l2: {}}").unwrap().covers.is_everything());
    }

    #[test]
    fn every_field_of_an_advertisement_is_read() {
        let read = adv("{addressPools: [p], loadBalancers: [edge], \
            addressPoolSelector: {matchLabels: {a: b}}, serviceSelector: {matchLabels: {c: d}}, \
            nodeSelector: {matchLabels: {e: f}}, \
            l2: {interfaces: [eth1], preferredNodeSelector: {matchLabels: {g: h}}}, \
            bgp: {peers: [tor], aggregationLength: 24, aggregationLengthV6: 64, localPref: 0, med: 4294967295, \
              prepend: 3, communities: ['65000:1', 'large:1:2:3', no-export]}}")
        .unwrap();
        let label = |key: &str, value: &str| objects::LabelSelector {
            requirements: vec![objects::Requirement {
                key: key.into(),
                operator: objects::Operator::In(vec![value.into()]),
            }],
        };
        let expected = announce::Advertisement {
            name: "a".into(),
            covers: Covers {
                pools: ["p".into()].into(),
                pool_selector: Some(label("a", "b")),
                load_balancers: ["edge".into()].into(),
                services: Some(label("c", "d")),
            },
            nodes: Some(label("e", "f")),
            l2: Some(ByL2 { interfaces: ["eth1".into()].into(), preferred: Some(label("g", "h")) }),
            bgp: Some(ByBgp {
                peers: ["tor".into()].into(),
                lengths: Lengths::new(24, 64).unwrap(),
                route: Route {
                    local_pref: Some(0),
                    med: Some(u32::MAX),
                    prepend: 3,
                    communities: ["65000:1", "large:1:2:3", "no-export"]
                        .map(|it| it.parse().unwrap())
                        .into(),
                },
            }),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_peer_has_the_defaults_of_its_kind() {
        let expected = announce::Peer {
            name: "tor".into(),
            target: PeerTarget::Address("192.0.2.1".parse().unwrap()),
            port: 179,
            asn: announce::PeerAsn::Is(64513),
            my_asn: 64512,
            router_id: None,
            source: None,
            next_hop: None,
            vrf: None,
            ttl_security: false,
            listen: false,
            nodes: None,
            hold_time: 90,
            keepalive_time: None,
            connect_time: Duration::from_secs(10),
            multi_hop: false,
            password_secret: None,
            graceful_restart: Some(120),
            bfd: None,
        };
        assert_eq!(peer("peerAddress: 192.0.2.1, peerASN: 64513"), Ok(expected));
    }

    #[test]
    fn every_field_of_a_peer_is_read() {
        let read = peer("interface: eth1, peerASN: external, peerPort: 1179, routerID: 192.0.2.9, \
            nextHop: '2001:db8::9', vrf: blue, ttlSecurity: true, listen: true, \
            nodeSelector: {}, holdTime: 9s, keepaliveTime: 2s, connectTime: 1s, \
            passwordSecretRef: {name: tor}, gracefulRestart: {enabled: false}, \
            bfd: {receiveInterval: 100ms, transmitInterval: 1s, detectMultiplier: 5, minimumTTL: 250}")
        .unwrap();
        let expected = announce::Peer {
            name: "tor".into(),
            target: PeerTarget::Interface("eth1".into()),
            port: 1179,
            asn: announce::PeerAsn::External,
            my_asn: 64512,
            router_id: Some([192, 0, 2, 9].into()),
            source: None,
            next_hop: Some("2001:db8::9".parse().unwrap()),
            vrf: Some("blue".into()),
            ttl_security: true,
            listen: true,
            nodes: Some(objects::LabelSelector::default()),
            hold_time: 9,
            keepalive_time: Some(Duration::from_secs(2)),
            connect_time: Duration::from_secs(1),
            multi_hop: false,
            password_secret: Some("tor".into()),
            graceful_restart: None,
            bfd: Some(Bfd {
                receive_interval: Duration::from_millis(100),
                transmit_interval: Duration::from_secs(1),
                detect_multiplier: NonZeroU8::new(5).unwrap(),
                minimum_ttl: NonZeroU8::new(250).unwrap(),
            }),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn what_a_server_would_have_refused_is_refused_here_too() {
        for (spec, says) in [
            ("peerASN: 1", "exactly one of peerAddress and interface"),
            ("peerAddress: 192.0.2.1, interface: eth1, peerASN: 1", "exactly one"),
            ("peerAddress: 192.0.2.1, peerASN: 0", "0 is not an AS number"),
            ("peerAddress: 0.0.0.0, peerASN: 1", "0.0.0.0 is no address of a machine"),
            ("peerAddress: 'ff02::1', peerASN: 1", "ff02::1 is no address of a machine"),
            ("peerAddress: 192.0.2.1, peerASN: 1, holdTime: 2s", "0s, or from 3s"),
            ("peerAddress: 192.0.2.1, peerASN: 1, holdTime: 20h", "from 0s to 65535s"),
            ("peerAddress: 192.0.2.1, peerASN: 1, routerID: 0.0.0.0", "no BGP identifier"),
            ("peerAddress: 192.0.2.1, peerASN: 1, bfd: {echo: true}", "echo function"),
            ("peerAddress: 192.0.2.1, peerASN: 1, bfd: {receiveInterval: 1ms}", "between 10ms"),
            ("peerAddress: 192.0.2.1, peerASN: 1, bfd: {detectMultiplier: 1}", "from 2 to 255"),
            ("peerAddress: 192.0.2.1, peerASN: 1, bfd: {minimumTTL: 0}", "from 1 to 255"),
        ] {
            let problem = peer(spec).unwrap_err();
            assert!(problem.message.contains(says), "{spec}: {}", problem.message);
        }
        for (spec, says) in [
            ("{bgp: {aggregationLength: 0}}", "not the length of a prefix"),
            ("{bgp: {aggregationLengthV6: 129}}", "not the length of a prefix"),
            ("{bgp: {communities: ['1']}}", "\"1\" is not a community"),
            ("{bgp: {prepend: 101}}", "do not fit"),
            (
                "{nodeSelector: {matchExpressions: [{key: a, operator: In}]}}",
                "spec.nodeSelector: values",
            ),
        ] {
            let problem = adv(spec).unwrap_err();
            assert!(problem.message.contains(says), "{spec}: {}", problem.message);
        }
    }

    /// Nothing that a user writes is read as something else, and nothing panics.
    #[test]
    fn hostile_text_is_refused_or_stays_text() {
        for text in HOSTILE {
            let spec = json!({"bgp": {"communities": [text]}, "addressPools": [text]});
            let object = json!({"metadata": {"name": "a"}, "spec": spec});
            if let Ok(read) = serde_json::from_value(object).map(|it| advertisement(&it)) {
                let problem = read.expect_err(text);
                assert!(problem.message.contains("is not a community"), "{text:?}");
            }
            for field in
                ["peerAddress", "peerASN", "holdTime", "routerID", "nextHop", "sourceAddress"]
            {
                let mut spec = json!({"peerAddress": "192.0.2.1", "peerASN": 1, "myASN": 1});
                spec[field] = Value::from(*text);
                let object = json!({"metadata": {"name": "a"}, "spec": spec});
                if let Ok(Ok(read)) = serde_json::from_value(object).map(|it| bgp_peer(&it)) {
                    let known = ["::ffff:1.2.3.4"];
                    assert!(known.contains(text), "{field}: {text:?} is read as {read:?}");
                }
            }
        }
    }
}

//! MetalLB's BGPPeers with their BFDProfiles, as BGPPeers of Bowline. MetalLB connects from a node that one of several
//! selectors matches; here each selector is a BGPPeer of its own, and no two of them match the same node: two sessions of
//! one node with one router would end each other.

use super::announce::Losses;
use super::kinds::{BFDProfile, BGPPeer as Theirs, BGPPeerSpec as TheirSpec};
use super::{Loss, go_duration, selectors};
use crate::bgp_peer::{BGPPeerSpec, BfdSpec, PeerAsn, PeerKind};
use crate::duration::{Duration, Interval};
use crate::source::SecretRef;
use bowline_core::outcome::quote;
use kube::core::DynamicObject;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

/// Where the objects of both are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    pub(super) theirs: &'a str,
    pub(super) ours: &'a str,
}

/// A BGPPeer that the API serves as v1beta1 only. There, a hold time of 0 means that none is written.
pub fn old_peer(object: DynamicObject) -> Option<Theirs> {
    let mut peer: Theirs = object.try_parse().ok()?;
    let written = |text: &String| go_duration::parse(text).is_none_or(|time| !time.is_zero());
    peer.spec.hold_time = peer.spec.hold_time.filter(written);
    peer.spec.keepalive_time = peer.spec.keepalive_time.filter(written);
    Some(peer)
}

/// The BGPPeers for one, without their names: as many as there are selectors of nodes. Err: why there is none.
pub(super) fn specs(
    name: &str,
    theirs: &TheirSpec,
    profiles: &[BFDProfile],
    places: Places<'_>,
    losses: &mut Losses<'_>,
) -> Result<Vec<BGPPeerSpec>, String> {
    let (peer_address, interface) = target(theirs)?;
    let peer_asn = asn(theirs)?;
    let my_asn = match theirs.local_asn {
        0 => number("myASN", theirs.my_asn)?,
        local => number("localASN", local)?,
    };
    let nodes = selectors::one_of(&theirs.node_selectors)
        .ok_or("its nodeSelectors cannot be read, or are too many")?;
    let (hold_time, keepalive_time) = times(theirs, losses);
    let peer_port = match theirs.peer_port {
        0 => 179,
        port => port.try_into().map_err(|_| format!("peerPort {port} is no TCP port"))?,
    };
    if theirs.ebgp_multi_hop && interface.is_some() {
        losses.field("ebgpMultiHop", "true is left out: a router at an interface is on its link");
    }
    if theirs.disable_mp {
        let why = "true is left out: a session carries the families that the router agrees to; \
            let the router agree to one";
        losses.field("disableMP", why);
    }
    let spec = BGPPeerSpec {
        peer_address,
        interface: interface.clone(),
        peer_port,
        peer_asn,
        my_asn,
        router_id: router_id(theirs, losses),
        source_address: source(theirs, peer_address, losses),
        next_hop: None,
        vrf: some(&theirs.vrf),
        ttl_security: false,
        listen: false,
        node_selector: None,
        hold_time,
        keepalive_time,
        connect_time: connect_time(theirs, losses),
        ebgp_multi_hop: theirs.ebgp_multi_hop && interface.is_none(),
        password_secret_ref: password(name, theirs, places, losses)?,
        // MetalLB's default is false, and an upgrade of the speaker should lose no route.
        graceful_restart: Default::default(),
        bfd: bfd(theirs, profiles, losses),
    };
    if nodes.is_empty() {
        return Ok(vec![spec]);
    }
    Ok(nodes
        .into_iter()
        .map(|it| BGPPeerSpec { node_selector: Some(it), ..spec.clone() })
        .collect())
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn target(theirs: &TheirSpec) -> Result<(Option<IpAddr>, Option<String>), String> {
    match (theirs.peer_address.as_str(), theirs.interface.as_str()) {
        ("", "") => Err("it has neither peerAddress nor interface".to_owned()),
        (address, "") => match address.parse() {
            Ok(address) => Ok((Some(address), None)),
            Err(_) => Err(format!("peerAddress {} is no address", quote(address))),
        },
        ("", interface) => Ok((None, Some(interface.to_owned()))),
        _ => Err("it has both peerAddress and interface".to_owned()),
    }
}

fn asn(theirs: &TheirSpec) -> Result<PeerAsn, String> {
    match (theirs.peer_asn, theirs.dynamic_asn.as_str()) {
        (0, "") => Err("it has neither peerASN nor dynamicASN".to_owned()),
        (0, "internal") => Ok(PeerAsn::Kind(PeerKind::Internal)),
        (0, "external") => Ok(PeerAsn::Kind(PeerKind::External)),
        (0, other) => Err(format!("dynamicASN {} is neither internal nor external", quote(other))),
        (asn, "") => number("peerASN", asn).map(PeerAsn::Number),
        _ => Err("it has both peerASN and dynamicASN".to_owned()),
    }
}

fn number(field: &str, asn: i64) -> Result<u32, String> {
    let read = u32::try_from(asn).ok().filter(|it| *it > 0);
    read.ok_or_else(|| format!("{field} {asn} is no AS number"))
}

/// Hold time and keepalive time. MetalLB takes the one that is missing from the other.
fn times(theirs: &TheirSpec, losses: &mut Losses<'_>) -> (Duration, Option<Duration>) {
    const DEFAULT: u64 = 90;
    let mut read = |field, text: &Option<String>, allowed: fn(u64) -> bool, instead: &str| {
        let text = text.as_deref()?;
        let seconds = go_duration::parse(text).map(|it| it.as_secs()).filter(|it| allowed(*it));
        if seconds.is_none() {
            losses.field(field, format_args!("{} cannot be used; {instead}", quote(text)));
        }
        seconds
    };
    let keepalive = read(
        "keepaliveTime",
        &theirs.keepalive_time,
        |it| (1..=21_845).contains(&it),
        "a third of holdTime is used",
    );
    let hold = read(
        "holdTime",
        &theirs.hold_time,
        |it| it == 0 || (3..=65_535).contains(&it),
        "90s is used",
    );
    let hold = match (&theirs.hold_time, keepalive) {
        (None, Some(keepalive)) => keepalive * 3,
        _ => hold.unwrap_or(DEFAULT),
    };
    let keepalive = keepalive.filter(|it| {
        let fits = hold == 0 || it * 3 <= hold;
        if !fits {
            let why = format!("{it}s is more than a third of holdTime; a third is used");
            losses.field("keepaliveTime", why);
        }
        fits
    });
    (Duration::from_secs(hold), keepalive.map(Duration::from_secs))
}

fn connect_time(theirs: &TheirSpec, losses: &mut Losses<'_>) -> Duration {
    const DEFAULT: Duration = Duration::from_secs(10);
    let Some(text) = &theirs.connect_time else { return DEFAULT };
    let seconds = go_duration::parse(text).map(|it| it.as_secs());
    match seconds.filter(|it| (1..=65_535).contains(it)) {
        Some(seconds) => Duration::from_secs(seconds),
        None => {
            losses.field("connectTime", format_args!("{} cannot be used; 10s is", quote(text)));
            DEFAULT
        }
    }
}

fn router_id(theirs: &TheirSpec, losses: &mut Losses<'_>) -> Option<Ipv4Addr> {
    let text = some(&theirs.router_id)?;
    let read = text.parse::<Ipv4Addr>().ok().filter(|it| !it.is_unspecified());
    if read.is_none() {
        let why = "is not written as an IPv4 address; the first one of each node is used";
        losses.field("routerID", format_args!("{} {why}", quote(&text)));
    }
    read
}

fn source(theirs: &TheirSpec, peer: Option<IpAddr>, losses: &mut Losses<'_>) -> Option<IpAddr> {
    let text = some(&theirs.source_address)?;
    let read = text.parse::<IpAddr>().ok();
    let fits = read.filter(|it| peer.is_some_and(|peer| peer.is_ipv4() == it.is_ipv4()));
    if fits.is_none() {
        let why = match (peer, read) {
            (None, _) => {
                "is left out: a router at an interface is reached from its link-local address"
            }
            (_, None) => "is no address; the kernel chooses one",
            _ => "is of another family than peerAddress; the kernel chooses one",
        };
        losses.field("sourceAddress", format_args!("{} {why}", quote(&text)));
    }
    fits
}

/// The Secret that will have the password, and how a person fills it.
fn password(
    name: &str,
    theirs: &TheirSpec,
    places: Places<'_>,
    losses: &mut Losses<'_>,
) -> Result<Option<SecretRef>, String> {
    let Places { theirs: from, ours } = places;
    let secret = theirs.password_secret.name.as_str();
    let (field, secret, read) = match (secret, theirs.password.0) {
        ("", false) => return Ok(None),
        ("", true) => {
            let read =
                format!("get bgppeers.metallb.io {name} -n {from} -o jsonpath={{.spec.password}}");
            ("password", name, read)
        }
        (_, true) => return Err("it has both password and passwordSecret".to_owned()),
        // The name becomes part of a command that a person runs.
        (secret, false) if is_object_name(secret) => {
            let template = "'{{.data.password | base64decode}}'";
            let read = format!("get secret {secret} -n {from} -o go-template={template}");
            ("passwordSecret", secret, read)
        }
        (secret, false) => {
            return Err(format!("passwordSecret {} is not the name of a Secret", quote(secret)));
        }
    };
    let command = format!(
        "kubectl {read} | kubectl create secret generic {secret} -n {ours} --type kubernetes.io/basic-auth \
         --from-file=password=/dev/stdin"
    );
    losses.push(|of| Loss::Password { of, field, command });
    Ok(Some(SecretRef { name: secret.to_owned() }))
}

/// Whether Kubernetes takes this as the name of an object: lower case, digits, hyphens and dots.
fn is_object_name(text: &str) -> bool {
    let inside = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let part = |part: &str| {
        part.starts_with(|it: char| it.is_ascii() && inside(it as u8))
            && part.bytes().all(|it| inside(it) || it == b'-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn bfd(theirs: &TheirSpec, profiles: &[BFDProfile], losses: &mut Losses<'_>) -> Option<BfdSpec> {
    let name = some(&theirs.bfd_profile)?;
    let found = profiles.iter().find(|it| it.metadata.name.as_ref() == Some(&name));
    let Some(BFDProfile { spec, .. }) = found else {
        let why = "there is no such BFDProfile; the peer has no BFD";
        losses.field("bfdProfile", format_args!("{}: {why}", quote(&name)));
        return None;
    };
    if spec.echo_mode {
        let why = "true is left out: the echo function is not supported. Failures are found by \
            receiveInterval × detectMultiplier: make these shorter where that is too slow";
        losses.field("bfdProfile.echoMode", why);
    }
    if spec.passive_mode {
        let why = "true is left out: Bowline begins the session as well, which a router that begins it allows";
        losses.field("bfdProfile.passiveMode", why);
    }
    let mut read = |field, value: Option<i64>, least: i64, most: i64, default: i64, unit: &str| {
        let fits = value.is_none_or(|it| (least..=most).contains(&it));
        if let (false, Some(value)) = (fits, value) {
            let why = format!("{value} is not between {least} and {most}; {default}{unit} is used");
            losses.field(field, why);
        }
        value.filter(|_| fits).unwrap_or(default)
    };
    let receive = read("bfdProfile.receiveInterval", spec.receive_interval, 10, 60_000, 300, "ms");
    let transmit =
        read("bfdProfile.transmitInterval", spec.transmit_interval, 10, 60_000, 300, "ms");
    let multiplier = read("bfdProfile.detectMultiplier", spec.detect_multiplier, 2, 255, 3, "");
    let ttl = read("bfdProfile.minimumTtl", spec.minimum_ttl, 1, 254, 254, "");
    Some(BfdSpec {
        receive_interval: millis(receive),
        transmit_interval: millis(transmit),
        detect_multiplier: u8::try_from(multiplier).unwrap_or(3),
        echo: false,
        minimum_ttl: u8::try_from(ttl).unwrap_or(254),
    })
}

fn millis(value: i64) -> Interval {
    Interval::from_millis(value.unsigned_abs())
}

impl Losses<'_> {
    /// A field that is not taken over as it is.
    pub(super) fn field(&mut self, field: &'static str, why: impl Display) {
        self.push(|of| Loss::Field { of, field, why: why.to_string() });
    }
}

#[cfg(test)]
mod tests;

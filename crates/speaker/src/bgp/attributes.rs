//! Path attributes of an UPDATE. An attribute that cannot be read makes the routes of its message count as withdrawn and
//! leaves the session up, as RFC 7606 demands. Only where the prefixes themselves cannot be found the session ends.

use super::family::{Family, UNICAST};
use super::notification::{Kind, Refusal};
use super::open::AS_TRANS;
use super::wire::{Reader, put_prefix, put_with_length};
use ipnet::IpNet;
use std::net::{Ipv4Addr, Ipv6Addr};

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MED: u8 = 4;
const LOCAL_PREF: u8 = 5;
const ATOMIC_AGGREGATE: u8 = 6;
const AGGREGATOR: u8 = 7;
const COMMUNITIES: u8 = 8;
const MP_REACH: u8 = 14;
const MP_UNREACH: u8 = 15;
const AS4_PATH: u8 = 17;
const LARGE_COMMUNITIES: u8 = 32;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const LONG: u8 = 0x10;

/// Where a route was first learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Inside its AS.
    Igp,
    /// By EGP.
    Egp,
    /// Otherwise.
    Incomplete,
}

/// A part of an AS path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// In the order in which the route passed them, the last first.
    Sequence(Vec<u32>),
    /// In any order.
    Set(Vec<u32>),
}

/// The next hop of multiprotocol routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpNextHop {
    /// An IPv4 address, which only IPv4 routes have.
    V4(Ipv4Addr),
    /// An IPv6 address; a link-local one on a link without others.
    V6(Ipv6Addr),
    /// A global and a link-local address.
    V6Both(Ipv6Addr, Ipv6Addr),
}

/// Announced routes of any family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Their family.
    pub family: Family,
    /// Where they lead.
    pub next_hop: MpNextHop,
    /// The routes.
    pub prefixes: Vec<IpNet>,
}

/// Withdrawn routes of any family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreach {
    /// Their family.
    pub family: Family,
    /// The routes; none in an End-of-RIB.
    pub prefixes: Vec<IpNet>,
}

/// The attributes that are known here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Option<Origin>,
    /// AS_PATH. On a session with AS numbers of two bytes, larger ones are AS_TRANS when read.
    pub as_path: Option<Vec<Segment>>,
    /// NEXT_HOP, of the IPv4 routes outside of `reach`.
    pub next_hop: Option<Ipv4Addr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// ATOMIC_AGGREGATE.
    pub atomic_aggregate: bool,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
    /// LARGE_COMMUNITY.
    pub large_communities: Vec<[u32; 3]>,
    /// MP_REACH_NLRI.
    pub reach: Option<Reach>,
    /// MP_UNREACH_NLRI.
    pub unreach: Option<Unreach>,
}

/// Why an attribute is not used.
enum Fault {
    /// The routes of the message count as withdrawn.
    Withdraw(&'static str),
    /// The session ends.
    Reset(Refusal),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Reset(refusal)
    }
}

/// A value of another length, or with content that cannot be.
const MALFORMED: Fault = Fault::Withdraw("has a malformed value");

impl Attributes {
    /// Reads all attributes. Also returns the first fault for which the routes count as withdrawn.
    pub(super) fn decode(
        bytes: &[u8],
        four_octet: bool,
    ) -> Result<(Self, Option<String>), Refusal> {
        let (mut attributes, mut fault) = (Self::default(), None);
        let mut seen = [false; 256];
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let Some((flags, code, value)) = header(&mut reader) else {
                fault.get_or_insert_with(|| {
                    "the attributes are longer than their length says".to_owned()
                });
                break;
            };
            let again = std::mem::replace(&mut seen[usize::from(code)], true);
            if again && matches!(code, MP_REACH | MP_UNREACH) {
                let why = format!("the peer sent an UPDATE that has attribute {code} twice");
                return Err(Refusal::new(Kind::ATTRIBUTE_LIST, why));
            }
            // Of any other attribute the first one counts.
            let read = match again {
                true => Ok(()),
                false if !flags_are_right(flags, code) => {
                    Err(Fault::Withdraw("has the wrong flags"))
                }
                false => attributes.read(flags, code, value, four_octet),
            };
            match read {
                Ok(()) => {}
                Err(Fault::Reset(refusal)) => return Err(refusal),
                Err(Fault::Withdraw(what)) => {
                    fault.get_or_insert_with(|| format!("attribute {code} {what}"));
                }
            }
        }
        Ok((attributes, fault))
    }

    fn read(&mut self, flags: u8, code: u8, bytes: &[u8], four_octet: bool) -> Result<(), Fault> {
        let mut value = Reader::new(bytes);
        match code {
            ORIGIN => {
                self.origin = Some(match bytes {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    _ => return Err(MALFORMED),
                });
            }
            AS_PATH => self.as_path = Some(as_path(value, four_octet).ok_or(MALFORMED)?),
            NEXT_HOP => {
                self.next_hop = Some(value.v4().filter(|_| value.is_empty()).ok_or(MALFORMED)?)
            }
            MED => self.med = Some(value.u32().filter(|_| value.is_empty()).ok_or(MALFORMED)?),
            LOCAL_PREF => {
                self.local_pref = Some(value.u32().filter(|_| value.is_empty()).ok_or(MALFORMED)?)
            }
            // RFC 7606: without meaning for the choice of a route, so it is only left out.
            ATOMIC_AGGREGATE => self.atomic_aggregate = bytes.is_empty(),
            COMMUNITIES => {
                self.communities = array(bytes).ok_or(MALFORMED)?.map(u32::from_be_bytes).collect();
            }
            LARGE_COMMUNITIES => {
                let words: Vec<_> =
                    array(bytes).ok_or(MALFORMED)?.map(u32::from_be_bytes).collect();
                let (large, rest) = words.as_chunks();
                self.large_communities = large.to_vec();
                return rest.is_empty().then_some(()).ok_or(MALFORMED);
            }
            MP_REACH => self.reach = reach(value)?,
            MP_UNREACH => self.unreach = unreach(value)?,
            AS4_PATH | AGGREGATOR => {}
            _ if flags & OPTIONAL == 0 => return Err(Fault::Withdraw("is mandatory and unknown")),
            _ => {}
        }
        Ok(())
    }

    /// Why announced routes cannot have these attributes, if so.
    pub(super) fn missing(&self, classic: bool) -> Option<&'static str> {
        if self.origin.is_none() {
            return Some("the origin is missing");
        }
        if self.as_path.is_none() {
            return Some("the AS path is missing");
        }
        (classic && self.next_hop.is_none()).then_some("the next hop is missing")
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>, four_octet: bool) {
        // RFC 7606: first, so that it is found also where something behind it cannot be read.
        if let Some(reach) = &self.reach {
            put(out, OPTIONAL, MP_REACH, |out| put_reach(out, reach));
        }
        if let Some(unreach) = &self.unreach {
            put(out, OPTIONAL, MP_UNREACH, |out| {
                out.extend(unreach.family.afi().to_be_bytes());
                out.push(UNICAST);
                unreach.prefixes.iter().for_each(|prefix| put_prefix(out, prefix));
            });
        }
        if let Some(origin) = self.origin {
            put(out, TRANSITIVE, ORIGIN, |out| out.push(origin as u8));
        }
        if let Some(path) = &self.as_path {
            put(out, TRANSITIVE, AS_PATH, |out| put_as_path(out, path, four_octet));
        }
        if let Some(next_hop) = self.next_hop {
            put(out, TRANSITIVE, NEXT_HOP, |out| out.extend(next_hop.octets()));
        }
        if let Some(med) = self.med {
            put(out, OPTIONAL, MED, |out| out.extend(med.to_be_bytes()));
        }
        if let Some(local_pref) = self.local_pref {
            put(out, TRANSITIVE, LOCAL_PREF, |out| out.extend(local_pref.to_be_bytes()));
        }
        if self.atomic_aggregate {
            put(out, TRANSITIVE, ATOMIC_AGGREGATE, |_| {});
        }
        if !self.communities.is_empty() {
            put(out, OPTIONAL | TRANSITIVE, COMMUNITIES, |out| {
                out.extend(self.communities.iter().flat_map(|it| it.to_be_bytes()));
            });
        }
        // RFC 6793: behind AS_TRANS the path says nothing, so the true one travels beside it.
        let large = |asn: &u32| u16::try_from(*asn).is_err();
        if let Some(path) = self.as_path.as_ref().filter(|_| !four_octet)
            && path
                .iter()
                .any(|(Segment::Sequence(list) | Segment::Set(list))| list.iter().any(large))
        {
            put(out, OPTIONAL | TRANSITIVE, AS4_PATH, |out| put_as_path(out, path, true));
        }
        if !self.large_communities.is_empty() {
            put(out, OPTIONAL | TRANSITIVE, LARGE_COMMUNITIES, |out| {
                out.extend(self.large_communities.iter().flatten().flat_map(|it| it.to_be_bytes()));
            });
        }
    }
}

/// Flags, code and value of the next attribute.
fn header<'a>(reader: &mut Reader<'a>) -> Option<(u8, u8, &'a [u8])> {
    let (flags, code) = (reader.u8()?, reader.u8()?);
    let length = if flags & LONG == 0 { u16::from(reader.u8()?) } else { reader.u16()? };
    Some((flags, code, reader.bytes(length.into())?))
}

fn flags_are_right(flags: u8, code: u8) -> bool {
    let expected = match code {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => TRANSITIVE,
        MED | MP_REACH | MP_UNREACH => OPTIONAL,
        AGGREGATOR | COMMUNITIES | AS4_PATH | LARGE_COMMUNITIES => OPTIONAL | TRANSITIVE,
        _ => return true,
    };
    flags & (OPTIONAL | TRANSITIVE) == expected
}

/// A list of one or more values of four bytes.
fn array(bytes: &[u8]) -> Option<impl Iterator<Item = [u8; 4]>> {
    let (values, rest) = bytes.as_chunks::<4>();
    (rest.is_empty() && !values.is_empty()).then(|| values.iter().copied())
}

fn as_path(mut value: Reader<'_>, four_octet: bool) -> Option<Vec<Segment>> {
    let mut path = Vec::new();
    while !value.is_empty() {
        let (kind, count) = (value.u8()?, value.u8()?);
        let list: Option<Vec<_>> = (0..count)
            .map(|_| if four_octet { value.u32() } else { value.u16().map(u32::from) })
            .collect();
        let list = list.filter(|list| !list.is_empty())?;
        path.push(match kind {
            1 => Segment::Set(list),
            2 => Segment::Sequence(list),
            _ => return None,
        });
    }
    Some(path)
}

fn put_as_path(out: &mut Vec<u8>, path: &[Segment], four_octet: bool) {
    for segment in path {
        let (kind, list) = match segment {
            Segment::Set(list) => (1, list),
            Segment::Sequence(list) => (2, list),
        };
        // A path has one segment, and `Route` keeps it short.
        out.extend([kind, u8::try_from(list.len()).unwrap_or(u8::MAX)]);
        for asn in list.iter().take(usize::from(u8::MAX)) {
            match four_octet {
                true => out.extend(asn.to_be_bytes()),
                false => out.extend(u16::try_from(*asn).unwrap_or(AS_TRANS).to_be_bytes()),
            }
        }
    }
}

/// `None` for a family that is not exchanged here.
fn reach(mut value: Reader<'_>) -> Result<Option<Reach>, Fault> {
    let (afi, safi) = afi_safi(&mut value)?;
    let next_hop = value.u8().and_then(|length| value.bytes(length.into()));
    let (Some(next_hop), Some(_reserved)) = (next_hop, value.u8()) else {
        return Err(not_found("an MP_REACH_NLRI that is cut off").into());
    };
    let Some(family) = Family::from_wire(afi, safi) else { return Ok(None) };
    let mut hop = Reader::new(next_hop);
    let next_hop = match (family, next_hop.len()) {
        (Family::V4, 4) => hop.v4().map(MpNextHop::V4),
        (_, 16) => hop.v6().map(MpNextHop::V6),
        (_, 32) => hop.v6().zip(hop.v6()).map(|(global, link)| MpNextHop::V6Both(global, link)),
        _ => None,
    };
    let next_hop = next_hop.ok_or_else(|| not_found("a next hop of the wrong length"))?;
    Ok(Some(Reach { family, next_hop, prefixes: prefixes(value, family)? }))
}

fn put_reach(out: &mut Vec<u8>, reach: &Reach) {
    out.extend(reach.family.afi().to_be_bytes());
    out.push(UNICAST);
    match reach.next_hop {
        MpNextHop::V4(address) => {
            out.push(4);
            out.extend(address.octets());
        }
        MpNextHop::V6(address) => {
            out.push(16);
            out.extend(address.octets());
        }
        MpNextHop::V6Both(global, link) => {
            out.push(32);
            out.extend(global.octets());
            out.extend(link.octets());
        }
    }
    out.push(0);
    reach.prefixes.iter().for_each(|prefix| put_prefix(out, prefix));
}

fn unreach(mut value: Reader<'_>) -> Result<Option<Unreach>, Fault> {
    let (afi, safi) = afi_safi(&mut value)?;
    let Some(family) = Family::from_wire(afi, safi) else { return Ok(None) };
    Ok(Some(Unreach { family, prefixes: prefixes(value, family)? }))
}

fn afi_safi(value: &mut Reader<'_>) -> Result<(u16, u8), Refusal> {
    value
        .u16()
        .zip(value.u8())
        .ok_or_else(|| not_found("a multiprotocol attribute that is cut off"))
}

/// The prefixes up to the end. Where one cannot be read, neither can those behind it.
pub(super) fn prefixes(value: Reader<'_>, family: Family) -> Result<Vec<IpNet>, Refusal> {
    value.prefixes(family).ok_or_else(|| {
        let why = format!("the peer sent an UPDATE with an {family} prefix that cannot be read");
        Refusal::new(Kind::NETWORK, why)
    })
}

fn not_found(what: &str) -> Refusal {
    Refusal::new(Kind::OPTIONAL_ATTRIBUTE, format!("the peer sent an UPDATE with {what}"))
}

fn put(out: &mut Vec<u8>, flags: u8, code: u8, value: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    value(&mut bytes);
    match u8::try_from(bytes.len()) {
        Ok(length) => {
            out.extend([flags, code, length]);
            out.extend(bytes);
        }
        Err(_) => {
            out.extend([flags | LONG, code]);
            put_with_length(out, |out| out.extend(bytes));
        }
    }
}

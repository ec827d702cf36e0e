//! OPEN: who a speaker is and which capabilities it has (RFC 4271, 5492, 9072).

use super::family::{Family, PerFamily, UNICAST};
use super::notification::{Kind, Refusal};
use super::wire::Reader;
use std::net::Ipv4Addr;

/// RFC 6793: stands for an AS number that does not fit into two bytes.
pub const AS_TRANS: u16 = 23456;

const VERSION: u8 = 4;
/// The only optional parameter that is left.
const CAPABILITIES: u8 = 2;
/// RFC 9072: parameter lengths of two bytes follow.
const EXTENDED: u8 = 255;

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const EXTENDED_NEXT_HOP: u8 = 5;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTET_AS: u8 = 65;

/// Bits of the graceful restart capability.
const RESTARTED: u16 = 0x8000;
const NOTIFICATION: u16 = 0x4000;
const RESTART_TIME: u16 = 0x0fff;
const FORWARDING: u8 = 0x80;

/// An OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The AS number: of four bytes where the capability is there.
    pub asn: u32,
    /// The proposed hold time in seconds.
    pub hold_time: u16,
    /// The BGP identifier.
    pub id: Ipv4Addr,
    /// What the speaker can do.
    pub capabilities: Capabilities,
}

/// The capabilities that matter here. Others are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Families of routes; `None` without a multiprotocol capability, which means IPv4 only.
    pub families: Option<PerFamily<bool>>,
    /// AS numbers have four bytes.
    pub four_octet: bool,
    /// Routes are sent again on request.
    pub route_refresh: bool,
    /// IPv4 routes may have an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// Routes outlive a restart (RFC 4724).
    pub graceful_restart: Option<GracefulRestart>,
}

/// The graceful restart capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracefulRestart {
    /// The speaker has restarted.
    pub restarted: bool,
    /// A NOTIFICATION does not remove routes (RFC 8538). Never sent.
    pub notification: bool,
    /// How many seconds the speaker needs to come back, at most 4095.
    pub restart_time: u16,
    /// Per family: whether traffic went on while the speaker was away; `None` for a family that is not covered.
    pub forwarding: PerFamily<Option<bool>>,
}

impl Capabilities {
    /// The families that the speaker exchanges.
    pub fn families(&self) -> PerFamily<bool> {
        self.families.unwrap_or(PerFamily { v4: true, v6: false })
    }

    fn read(&mut self, code: u8, value: &[u8], asn: &mut u32) -> Option<()> {
        let mut value = Reader::new(value);
        match code {
            MULTIPROTOCOL => {
                let (afi, _reserved, safi) = (value.u16()?, value.u8()?, value.u8()?);
                // Set also by families of other kinds: the peer then has no IPv4 unless it says so.
                let families = self.families.get_or_insert_default();
                if let Some(family) = Family::from_wire(afi, safi) {
                    *families.get_mut(family) = true;
                }
            }
            ROUTE_REFRESH => self.route_refresh = true,
            EXTENDED_NEXT_HOP => {
                while !value.is_empty() {
                    let (afi, safi, next_hop) = (value.u16()?, value.u16()?, value.u16()?);
                    self.extended_next_hop |= (afi, safi, next_hop)
                        == (Family::V4.afi(), UNICAST.into(), Family::V6.afi());
                }
            }
            GRACEFUL_RESTART => {
                let flags = value.u16()?;
                let mut forwarding = PerFamily::default();
                while !value.is_empty() {
                    let (afi, safi, bits) = (value.u16()?, value.u8()?, value.u8()?);
                    if let Some(family) = Family::from_wire(afi, safi) {
                        *forwarding.get_mut(family) = Some(bits & FORWARDING != 0);
                    }
                }
                self.graceful_restart = Some(GracefulRestart {
                    restarted: flags & RESTARTED != 0,
                    notification: flags & NOTIFICATION != 0,
                    restart_time: flags & RESTART_TIME,
                    forwarding,
                });
            }
            FOUR_OCTET_AS => {
                *asn = value.u32()?;
                self.four_octet = true;
            }
            _ => {}
        }
        Some(())
    }

    fn encode(&self, asn: u32, out: &mut Vec<u8>) {
        for family in self.families.into_iter().flat_map(PerFamily::members) {
            let [high, low] = family.afi().to_be_bytes();
            out.extend([MULTIPROTOCOL, 4, high, low, 0, UNICAST]);
        }
        if self.route_refresh {
            out.extend([ROUTE_REFRESH, 0]);
        }
        if self.extended_next_hop {
            out.extend([EXTENDED_NEXT_HOP, 6, 0, 1, 0, UNICAST, 0, 2]);
        }
        if let Some(restart) = self.graceful_restart {
            let covered = Family::ALL.into_iter().filter_map(|family| {
                restart.forwarding.get(family).map(|forwarding| (family, forwarding))
            });
            let covered: Vec<_> = covered.collect();
            let flags = (u16::from(restart.restarted) * RESTARTED)
                | (u16::from(restart.notification) * NOTIFICATION)
                | (restart.restart_time & RESTART_TIME);
            let [high, low] = flags.to_be_bytes();
            out.extend([GRACEFUL_RESTART, 2 + 4 * covered.len() as u8, high, low]);
            for (family, forwarding) in covered {
                let [high, low] = family.afi().to_be_bytes();
                out.extend([high, low, UNICAST, u8::from(forwarding) * FORWARDING]);
            }
        }
        if self.four_octet {
            out.extend([FOUR_OCTET_AS, 4]);
            out.extend(asn.to_be_bytes());
        }
    }
}

impl Open {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        let version = reader.u8().ok_or_else(too_short)?;
        if version != VERSION {
            let why =
                format!("the peer speaks BGP version {version}; only version 4 is spoken here");
            return Err(Refusal::with(Kind::VERSION, vec![0, VERSION], why));
        }
        let asn = u32::from(reader.u16().ok_or_else(too_short)?);
        let hold_time = reader.u16().ok_or_else(too_short)?;
        let id = reader.v4().ok_or_else(too_short)?;
        let mut open = Self { asn, hold_time, id, capabilities: Capabilities::default() };
        let (mut parameters, extended) = parameters(&mut reader).ok_or_else(|| {
            Refusal::new(Kind::OPEN, "the lengths inside the peer's OPEN contradict each other")
        })?;
        while !parameters.is_empty() {
            let kind = parameters.u8();
            let length = match extended {
                true => parameters.u16(),
                false => parameters.u8().map(u16::from),
            };
            let value = length.and_then(|length| parameters.bytes(length.into()));
            match (kind, value) {
                (Some(CAPABILITIES), Some(value)) => open.read_capabilities(value)?,
                (Some(kind), Some(_)) => {
                    let why = format!("the peer sent the unknown optional parameter {kind}");
                    return Err(Refusal::new(Kind::PARAMETER, why));
                }
                _ => {
                    let why = "an optional parameter in the peer's OPEN is cut off";
                    return Err(Refusal::new(Kind::OPEN, why));
                }
            }
        }
        Ok(open)
    }

    fn read_capabilities(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let mut reader = Reader::new(value);
        while !reader.is_empty() {
            let code = reader.u8();
            let value = reader.u8().and_then(|length| reader.bytes(length.into()));
            let (Some(code), Some(value)) = (code, value) else {
                return Err(Refusal::new(Kind::OPEN, "a capability in the peer's OPEN is cut off"));
            };
            self.capabilities.read(code, value, &mut self.asn).ok_or_else(|| {
                let why = format!("capability {code} in the peer's OPEN has the wrong length");
                Refusal::new(Kind::OPEN, why)
            })?;
        }
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend(u16::try_from(self.asn).unwrap_or(AS_TRANS).to_be_bytes());
        out.extend(self.hold_time.to_be_bytes());
        out.extend(self.id.octets());
        let mut capabilities = Vec::new();
        self.capabilities.encode(self.asn, &mut capabilities);
        // At most 12 + 2 + 8 + 12 + 6 bytes.
        let length = capabilities.len() as u8;
        if length == 0 {
            return out.push(0);
        }
        out.extend([length + 2, CAPABILITIES, length]);
        out.extend(capabilities);
    }
}

/// The optional parameters, and whether their lengths have two bytes. `None` where the lengths do not add up.
fn parameters<'a>(reader: &mut Reader<'a>) -> Option<(Reader<'a>, bool)> {
    let length = reader.u8()?;
    let mut ahead = *reader;
    let extended = length != 0 && ahead.u8() == Some(EXTENDED);
    let length = if extended { ahead.u16()? } else { length.into() };
    let parameters = if extended { ahead } else { *reader };
    (parameters.rest().len() == usize::from(length)).then_some((parameters, extended))
}

fn too_short() -> Refusal {
    Refusal::new(Kind::BAD_LENGTH, "the peer sent an OPEN that is too short")
}

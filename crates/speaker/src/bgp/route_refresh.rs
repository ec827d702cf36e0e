//! ROUTE-REFRESH (RFC 2918): a peer asks to be told all routes of a family again.

use super::family::{Family, UNICAST};
use super::notification::{Kind, Refusal};
use super::wire::Reader;

/// A request for the routes of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRefresh {
    /// Which; `None` for a family that is not announced here, or for a mark of RFC 7313, which is not negotiated.
    pub family: Option<Family>,
}

impl RouteRefresh {
    pub(super) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut reader = Reader::new(body);
        match (reader.u16(), reader.u8(), reader.u8()) {
            (Some(afi), Some(subtype), Some(safi)) if reader.is_empty() => {
                let family = Family::from_wire(afi, safi).filter(|_| subtype == 0);
                Ok(Self { family })
            }
            _ => {
                let why = "the peer sent a ROUTE-REFRESH of the wrong length";
                Err(Refusal::with(Kind::REFRESH_LENGTH, body.to_vec(), why))
            }
        }
    }

    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let afi = self.family.map_or(0, Family::afi);
        out.extend(afi.to_be_bytes());
        out.extend([0, UNICAST]);
    }
}

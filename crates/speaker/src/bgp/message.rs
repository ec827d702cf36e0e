//! The five messages of BGP, and their common header.

use super::framer::Frame;
use super::notification::{Kind, Notification, Refusal};
use super::open::Open;
use super::route_refresh::RouteRefresh;
use super::update::Update;

/// Bytes of the header: a marker of ones, the length, the type.
pub const HEADER: usize = 19;

/// The longest message. Extended messages (RFC 8654) are not offered.
pub const LONGEST: usize = 4096;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who a speaker is and what it can do.
    Open(Open),
    /// Routes that are announced or withdrawn.
    Update(Box<Update>),
    /// Why the session ends.
    Notification(Notification),
    /// The speaker is alive.
    KeepAlive,
    /// Send all routes of a family again.
    RouteRefresh(RouteRefresh),
}

impl Message {
    /// Reads a message. `four_octet`: both sides use AS numbers of four bytes, which only UPDATE depends on.
    pub fn decode(frame: &Frame, four_octet: bool) -> Result<Self, Refusal> {
        let body = frame.body.as_slice();
        match frame.kind {
            1 => Open::decode(body).map(Self::Open),
            2 => Update::decode(body, four_octet).map(|it| Self::Update(Box::new(it))),
            3 => Notification::decode(body).map(Self::Notification),
            4 if body.is_empty() => Ok(Self::KeepAlive),
            4 => {
                let length = u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX);
                let why = "the peer sent a KEEPALIVE with content";
                Err(Refusal::with(Kind::BAD_LENGTH, length.to_be_bytes().to_vec(), why))
            }
            5 => RouteRefresh::decode(body).map(Self::RouteRefresh),
            kind => {
                let why = format!("the peer sent a message of the unknown type {kind}");
                Err(Refusal::with(Kind::BAD_TYPE, vec![kind], why))
            }
        }
    }

    /// Writes a message with its header.
    pub fn encode(&self, out: &mut Vec<u8>, four_octet: bool) {
        let at = out.len();
        out.extend([0xff; 16]);
        out.extend([0, 0]);
        match self {
            Self::Open(open) => {
                out.push(1);
                open.encode(out);
            }
            Self::Update(update) => {
                out.push(2);
                update.encode(out, four_octet);
            }
            Self::Notification(notification) => {
                out.push(3);
                notification.encode(out);
            }
            Self::KeepAlive => out.push(4),
            Self::RouteRefresh(refresh) => {
                out.push(5);
                refresh.encode(out);
            }
        }
        debug_assert!(out.len() - at <= LONGEST, "{self:?}");
        let length = u16::try_from(out.len() - at).unwrap_or(u16::MAX).to_be_bytes();
        if let Some(place) = out.get_mut(at + 16..at + 18) {
            place.copy_from_slice(&length);
        }
    }

    /// The bytes of a message that does not depend on the size of AS numbers.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.encode(&mut out, true);
        out
    }
}

#[cfg(test)]
mod tests;

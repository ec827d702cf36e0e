//! NOTIFICATION: the last message of a session, which says why it ends. Codes of RFC 4271, 4486, 6608, 7313, 9384, 9687;
//! the text that an operator adds to a shutdown (RFC 9003).

use super::wire::Reader;
use std::fmt;

/// Code and subcode of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u8, pub u8);

impl Kind {
    /// The marker of a message is not all ones.
    pub const NOT_SYNCHRONIZED: Self = Self(1, 1);
    /// The length in a header is impossible.
    pub const BAD_LENGTH: Self = Self(1, 2);
    /// The type of a message is unknown.
    pub const BAD_TYPE: Self = Self(1, 3);
    /// An OPEN that cannot be read.
    pub const OPEN: Self = Self(2, 0);
    /// A BGP version other than 4.
    pub const VERSION: Self = Self(2, 1);
    /// An AS number that is not the expected one.
    pub const PEER_AS: Self = Self(2, 2);
    /// A BGP identifier that cannot be.
    pub const IDENTIFIER: Self = Self(2, 3);
    /// An optional parameter other than capabilities.
    pub const PARAMETER: Self = Self(2, 4);
    /// A hold time of one or two seconds.
    pub const HOLD_TIME: Self = Self(2, 6);
    /// A capability is needed that the peer lacks.
    pub const CAPABILITY: Self = Self(2, 7);
    /// The lengths inside an UPDATE contradict each other.
    pub const ATTRIBUTE_LIST: Self = Self(3, 1);
    /// A multiprotocol attribute of which not even the prefixes can be found.
    pub const OPTIONAL_ATTRIBUTE: Self = Self(3, 9);
    /// A prefix that cannot be read.
    pub const NETWORK: Self = Self(3, 10);
    /// No message came within the hold time.
    pub const HOLD_TIMER: Self = Self(4, 0);
    /// A message other than OPEN while one is awaited.
    pub const IN_OPEN_SENT: Self = Self(5, 1);
    /// A message other than KEEPALIVE while one is awaited.
    pub const IN_OPEN_CONFIRM: Self = Self(5, 2);
    /// A second OPEN.
    pub const IN_ESTABLISHED: Self = Self(5, 3);
    /// An operator ends the session.
    pub const SHUTDOWN: Self = Self(6, 2);
    /// The peer is no longer configured.
    pub const DECONFIGURED: Self = Self(6, 3);
    /// An operator restarts the session.
    pub const RESET: Self = Self(6, 4);
    /// The connection is refused.
    pub const REJECTED: Self = Self(6, 5);
    /// The configuration of the session changed.
    pub const CONFIGURATION: Self = Self(6, 6);
    /// Both sides connected, and this connection loses.
    pub const COLLISION: Self = Self(6, 7);
    /// BFD says that the peer is not reached.
    pub const BFD_DOWN: Self = Self(6, 10);
    /// A ROUTE-REFRESH of an impossible length.
    pub const REFRESH_LENGTH: Self = Self(7, 1);
    /// The peer read nothing for too long.
    pub const SEND_HOLD: Self = Self(8, 0);
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What went wrong.
    pub kind: Kind,
    /// Depends on the kind; often the part of the message that is refused.
    pub data: Vec<u8>,
}

/// A message that is refused: the notification for the peer, and the reason in words for the status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// What the peer is told.
    pub notification: Notification,
    /// What the administrator is told.
    pub why: String,
}

impl Refusal {
    /// A refusal without data for the peer.
    pub fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self::with(kind, Vec::new(), why)
    }

    /// A refusal that shows the peer what is refused.
    pub fn with(kind: Kind, data: Vec<u8>, why: impl Into<String>) -> Self {
        Self { notification: Notification { kind, data }, why: why.into() }
    }
}

/// RFC 9003: the longest text of a shutdown, in bytes.
const LONGEST_TEXT: usize = 255;

impl Notification {
    /// A notification without data.
    pub fn new(kind: Kind) -> Self {
        Self { kind, data: Vec::new() }
    }

    /// An operator's shutdown or reset with a text, which is cut where it is too long.
    pub fn with_text(kind: Kind, text: &str) -> Self {
        let mut end = text.len().min(LONGEST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.as_bytes().get(..end).unwrap_or_default();
        let mut data = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
        data.extend(text);
        Self { kind, data }
    }

    /// The text that the operator of the peer added, as it came.
    pub fn text(&self) -> Option<&str> {
        if !matches!(self.kind, Kind::SHUTDOWN | Kind::RESET) {
            return None;
        }
        let mut data = Reader::new(&self.data);
        let length = data.u8()?;
        let text = std::str::from_utf8(data.bytes(length.into())?).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// What the administrator should look at when a peer sends it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.kind {
            Kind::PEER_AS => {
                "the peer expects another AS number here: compare myASN with its configuration"
            }
            Kind::IDENTIFIER => {
                "the peer refuses the router ID: two speakers may have the same one"
            }
            Kind::HOLD_TIME => "the peer does not accept the hold time",
            Kind::PARAMETER | Kind::CAPABILITY => "the peer lacks or requires a capability",
            Kind::HOLD_TIMER => "the peer received nothing within the hold time",
            Kind(6, 1) => "the peer accepts fewer routes",
            Kind::SHUTDOWN => "an operator shut the session down on the peer",
            Kind::DECONFIGURED | Kind::REJECTED => {
                "the peer does not accept this speaker: is its address a neighbor there?"
            }
            _ => return None,
        })
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, Refusal> {
        let mut body = Reader::new(body);
        match (body.u8(), body.u8()) {
            (Some(code), Some(subcode)) => {
                Ok(Self { kind: Kind(code, subcode), data: body.rest().to_vec() })
            }
            _ => Err(Refusal::new(
                Kind::BAD_LENGTH,
                "the peer sent a NOTIFICATION that is too short",
            )),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend([self.kind.0, self.kind.1]);
        out.extend(&self.data);
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let (Kind(6, 1), [_, _, _, limit @ ..]) = (self.kind, self.data.as_slice())
            && let Ok(limit) = <[u8; 4]>::try_from(limit)
        {
            write!(f, " (limit {})", u32::from_be_bytes(limit))?;
        }
        // Escaped: a router is no tenant, but its text may come from anywhere.
        self.text().map_or(Ok(()), |text| write!(f, " {text:?}"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = match self.0 {
            1 => "message header error",
            2 => "OPEN error",
            3 => "UPDATE error",
            4 => "hold timer expired",
            5 => "unexpected message",
            6 => "Cease",
            7 => "ROUTE-REFRESH error",
            8 => "send hold timer expired",
            _ => "unknown error",
        };
        let detail = match (self.0, self.1) {
            (1, 1) => "connection not synchronized",
            (1, 2) => "bad message length",
            (1, 3) => "bad message type",
            (2, 1) => "unsupported version",
            (2, 2) => "bad peer AS",
            (2, 3) => "bad BGP identifier",
            (2, 4) => "unsupported optional parameter",
            (2, 6) => "unacceptable hold time",
            (2, 7) => "unsupported capability",
            (3, 1) => "malformed attribute list",
            (3, 2) => "unrecognized well-known attribute",
            (3, 3) => "missing well-known attribute",
            (3, 4) => "attribute flags",
            (3, 5) => "attribute length",
            (3, 6) => "invalid origin",
            (3, 8) => "invalid next hop",
            (3, 9) => "optional attribute",
            (3, 10) => "invalid network",
            (3, 11) => "malformed AS path",
            (5, 1) => "in state OpenSent",
            (5, 2) => "in state OpenConfirm",
            (5, 3) => "in state Established",
            (6, 1) => "maximum number of prefixes reached",
            (6, 2) => "administrative shutdown",
            (6, 3) => "peer deconfigured",
            (6, 4) => "administrative reset",
            (6, 5) => "connection rejected",
            (6, 6) => "other configuration change",
            (6, 7) => "connection collision",
            (6, 8) => "out of resources",
            (6, 9) => "hard reset",
            (6, 10) => "BFD down",
            (7, 1) => "invalid message length",
            (_, 0) => return f.write_str(group),
            (code, subcode) => return write!(f, "{group} (code {code}, subcode {subcode})"),
        };
        write!(f, "{group}: {detail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_says_what_went_wrong() {
        for (notification, words) in [
            (Notification::new(Kind::PEER_AS), "OPEN error: bad peer AS"),
            (Notification::new(Kind::HOLD_TIMER), "hold timer expired"),
            (Notification::new(Kind(3, 200)), "UPDATE error (code 3, subcode 200)"),
            (Notification::new(Kind(99, 1)), "unknown error (code 99, subcode 1)"),
            (
                Notification { kind: Kind(6, 1), data: vec![0, 1, 1, 0, 0, 0, 100] },
                "Cease: maximum number of prefixes reached (limit 100)",
            ),
            (
                Notification::with_text(Kind::SHUTDOWN, "rack 4 \u{1b}[2J"),
                r#"Cease: administrative shutdown "rack 4 \u{1b}[2J""#,
            ),
            (Notification::new(Kind::SHUTDOWN), "Cease: administrative shutdown"),
        ] {
            assert_eq!(notification.to_string(), words);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let notification = Notification::with_text(Kind::SHUTDOWN, &"é".repeat(200));
        assert_eq!(notification.text(), Some("é".repeat(127).as_str()));
    }

    #[test]
    fn a_text_that_lies_about_its_length_is_no_text() {
        for data in [vec![], vec![9, b'a'], vec![2, 0xff, 0xfe]] {
            let notification = Notification { kind: Kind::SHUTDOWN, data };
            assert_eq!(notification.text(), None, "{notification:?}");
        }
    }
}

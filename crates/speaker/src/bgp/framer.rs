//! Cuts the bytes of a connection into messages. It holds one incomplete message at most, whatever a peer sends.

use super::message::{HEADER, LONGEST};
use super::notification::{Kind, Refusal};

/// What has arrived and is no whole message yet, in front of what was just read.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
    /// Where the next message begins: what is before it goes at the next push, all at once.
    begin: usize,
}

/// The type of a message and what follows its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The type in the header.
    pub kind: u8,
    /// The message without its header.
    pub body: Vec<u8>,
}

impl Framer {
    /// Adds what was read. The caller then takes every frame before it adds more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.begin));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, if there is one. After a refusal the connection cannot be read on.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Refusal> {
        let rest = self.bytes.get(self.begin..).unwrap_or_default();
        let Some((header, _)) = rest.split_first_chunk::<HEADER>() else {
            return match rest.iter().take(16).all(|byte| *byte == 0xff) {
                true => Ok(None),
                false => Err(not_synchronized()),
            };
        };
        let [marker @ .., high, low, kind] = header;
        if marker.iter().any(|byte| *byte != 0xff) {
            return Err(not_synchronized());
        }
        let (length, kind) = (usize::from(u16::from_be_bytes([*high, *low])), *kind);
        if !(HEADER..=LONGEST).contains(&length) {
            let why = format!("the peer sent a message of {length} bytes; 19 to 4096 are allowed");
            return Err(Refusal::with(Kind::BAD_LENGTH, vec![*high, *low], why));
        }
        let Some(body) = rest.get(HEADER..length) else { return Ok(None) };
        let frame = Frame { kind, body: body.to_vec() };
        self.begin += length;
        Ok(Some(frame))
    }
}

fn not_synchronized() -> Refusal {
    let why = "the peer sent bytes that are not BGP (no marker in front of a message)";
    Refusal::new(Kind::NOT_SYNCHRONIZED, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::Message;
    use proptest::prelude::*;

    #[test]
    fn bytes_of_another_protocol_are_refused_at_the_first_wrong_byte() {
        let mut framer = Framer::default();
        framer.push(b"H");
        let refused = framer.next_frame().unwrap_err();
        assert_eq!(refused.notification.kind, Kind::NOT_SYNCHRONIZED);
    }

    #[test]
    fn an_impossible_length_is_refused_and_shown_to_the_peer() {
        for length in [0u16, 18, 4097, u16::MAX] {
            let mut framer = Framer::default();
            let [high, low] = length.to_be_bytes();
            framer.push(&[0xff; 16]);
            framer.push(&[high, low, 4]);
            let refused = framer.next_frame().unwrap_err();
            assert_eq!(refused.notification.data, [high, low]);
        }
    }

    proptest! {
        #[test]
        fn messages_are_the_same_wherever_the_stream_is_cut(cuts in prop::collection::vec(1usize..40, 0..20)) {
            let mut stream = Vec::new();
            let text = crate::bgp::Notification::with_text(Kind::SHUTDOWN, "maintenance");
            for message in [Message::KeepAlive, Message::Notification(text), Message::KeepAlive] {
                message.encode(&mut stream, true);
            }
            let mut whole = Framer::default();
            whole.push(&stream);
            let expected: Vec<_> = std::iter::from_fn(|| whole.next_frame().unwrap()).collect();
            prop_assert_eq!(expected.len(), 3);
            let (mut framer, mut got, mut rest) = (Framer::default(), Vec::new(), stream.as_slice());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                framer.push(now);
                got.extend(std::iter::from_fn(|| framer.next_frame().unwrap()));
                rest = later;
            }
            prop_assert_eq!(got, expected);
        }
    }
}

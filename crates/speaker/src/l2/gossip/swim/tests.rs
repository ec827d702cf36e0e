use super::{Bytes, Node};
use crate::l2::member::MemberId;
use foca::{Codec, Header, Member, Message, State};

#[test]
fn messages_are_read_as_they_were_written() {
    let node = |id, at: &str| Node {
        id: MemberId(id),
        at: at.parse().expect("an address"),
        generation: id * 7,
    };
    let (src, dst, third) =
        (node(1, "192.0.2.1:7949"), node(2, "[2001:db8::1]:7949"), node(3, "10.0.0.1:1"));
    for message in [
        Message::Ping(1),
        Message::Ack(2),
        Message::PingReq { target: third, probe_number: 3 },
        Message::IndirectPing { origin: third, probe_number: 4 },
        Message::IndirectAck { target: third, probe_number: 5 },
        Message::ForwardedAck { origin: third, probe_number: 6 },
        Message::Announce,
        Message::Feed,
        Message::Gossip,
        Message::Broadcast,
        Message::TurnUndead,
    ] {
        let header = Header { src, src_incarnation: 9, dst, message };
        let mut bytes = Vec::new();
        Bytes.encode_header(&header, &mut bytes).expect("it fits");
        for cut in 0..bytes.len() {
            assert!(Bytes.decode_header(&bytes[..cut]).is_err(), "{header:?} cut at {cut}");
        }
        let mut rest = bytes.as_slice();
        assert_eq!(Bytes.decode_header(&mut rest).expect("a header"), header);
        assert!(rest.is_empty());
        let mut small = [0; 8];
        assert!(Bytes.encode_header(&header, small.as_mut_slice()).is_err());
    }
    for state in [State::Alive, State::Suspect, State::Down] {
        let member = Member::new(dst, 3, state);
        let mut bytes = Vec::new();
        Bytes.encode_member(&member, &mut bytes).expect("it fits");
        assert_eq!(Bytes.decode_member(bytes.as_slice()).expect("a member"), member);
    }
}

//! Bytes of a BGP peer: never a panic, and an UPDATE that was read is the same after it was written.
#![no_main]
use bowline_speaker::bgp::Message;
use bowline_speaker::bgp::framer::{Frame, Framer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut framer = Framer::default();
    framer.push(data);
    while let Ok(Some(frame)) = framer.next_frame() {
        read(&frame);
    }
    // A right header is hard to find by chance.
    if let Some((kind, body)) = data.split_first() {
        read(&Frame { kind: kind & 7, body: body.to_vec() });
    }
});

fn read(frame: &Frame) {
    let _ = Message::decode(frame, false);
    let Ok(Message::Update(update)) = Message::decode(frame, true) else { return };
    // Routes that count as withdrawn are not written, and a form that is longer than ours is not kept.
    if update.fault.is_some() || frame.body.len() > 1000 {
        return;
    }
    let message = Message::Update(update);
    let mut framer = Framer::default();
    framer.push(&message.bytes());
    let again = framer.next_frame().expect("a header").expect("a whole message");
    assert_eq!(Message::decode(&again, true).expect("it was read before"), message);
}

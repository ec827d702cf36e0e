//! ARP and NDP frames, and what the owners make of them.
#![no_main]
use bowline_speaker::l2::frame::{self, Frame, Mac};
use bowline_speaker::l2::member::MemberId;
use bowline_speaker::l2::owners::{Candidate, Event, Interfaces, Link, Owners};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::time::Duration;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = frame::parse(bytes) else { return };
    let address = match frame {
        Frame::Question(question) => {
            let answer = frame::answer(Mac([2, 0, 0, 0, 0, 1]), &question);
            assert!(matches!(frame::parse(&answer), Ok(Frame::Claim { .. })));
            question.address
        }
        Frame::Claim { address, .. } => address,
    };
    let mut now = Duration::from_secs(100);
    let mut owners = Owners::new(MemberId(1), 1, now);
    let link = Link { name: "eth0".into(), mac: Mac([2, 0, 0, 0, 0, 1]), usual: true };
    owners.handle(Event::Link(1, Some(link)), now);
    let interfaces = Arc::new(Interfaces::All);
    let candidate = Candidate { interfaces, preferred: false, draining: false };
    owners.handle(Event::Candidate(address, Some(candidate)), now);
    for _ in 0..20 {
        now += Duration::from_millis(300);
        owners.handle(Event::Heard(1, frame), now);
        let _ = owners.take(now);
    }
});

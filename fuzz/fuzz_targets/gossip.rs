//! Datagrams of other speakers, sealed and unsealed.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| bowline_speaker::l2::gossip::fuzz(bytes));

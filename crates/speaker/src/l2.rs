//! Layer 2: one node of a segment answers ARP and NDP questions for an address.

pub mod frame;

//! Reads numbers and parts of a message. A read beyond the end is `None`, never a panic.

use super::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn v4(&mut self) -> Option<Ipv4Addr> {
        self.u32().map(Ipv4Addr::from)
    }

    pub(super) fn v6(&mut self) -> Option<Ipv6Addr> {
        self.array::<16>().map(Ipv6Addr::from)
    }

    /// A prefix: its length in bits, then as many bytes as that takes. Bits beyond the length mean nothing.
    fn prefix(&mut self, family: Family) -> Option<IpNet> {
        let length = self.u8()?;
        let bytes = self.bytes(usize::from(length).div_ceil(8))?;
        Some(match family {
            Family::V4 => {
                let mut address = [0; 4];
                address.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Ipv4Net::new(address.into(), length).ok()?.trunc().into()
            }
            Family::V6 => {
                let mut address = [0; 16];
                address.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Ipv6Net::new(address.into(), length).ok()?.trunc().into()
            }
        })
    }

    /// All prefixes up to the end; `None` if one cannot be read.
    pub(super) fn prefixes(mut self, family: Family) -> Option<Vec<IpNet>> {
        let mut prefixes = Vec::new();
        while !self.is_empty() {
            prefixes.push(self.prefix(family)?);
        }
        Some(prefixes)
    }
}

/// How many bytes a prefix takes in a message.
pub(super) fn prefix_size(prefix: &IpNet) -> usize {
    1 + usize::from(prefix.prefix_len()).div_ceil(8)
}

pub(super) fn put_prefix(out: &mut Vec<u8>, prefix: &IpNet) {
    let bytes = prefix_size(prefix) - 1;
    out.push(prefix.prefix_len());
    match prefix {
        IpNet::V4(prefix) => out.extend(prefix.network().octets().iter().take(bytes)),
        IpNet::V6(prefix) => out.extend(prefix.network().octets().iter().take(bytes)),
    }
}

/// Writes what `body` writes, behind its length in two bytes.
pub(super) fn put_with_length(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0; 2]);
    body(out);
    let length = u16::try_from(out.len() - at - 2).unwrap_or(u16::MAX).to_be_bytes();
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&length);
    }
}

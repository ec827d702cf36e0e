//! Writes the PROXY protocol header, version 2, which tells a member the address of its client. It
//! is never parsed: Bowline trusts no such header from a client.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const LONGEST: usize = 16 + 36;

/// The header of a connection that the proxy opens for itself.
pub const LOCAL: [u8; 16] = *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A header in wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; LONGEST],
    length: usize,
}

/// The transport of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

impl Header {
    /// Says that the client at `source` connected to `destination`.
    pub fn new(source: SocketAddr, destination: SocketAddr, carrier: Carrier) -> Self {
        let carrier = match carrier {
            Carrier::Stream => 1,
            Carrier::Datagram => 2,
        };
        let mut header = Self { bytes: [0; LONGEST], length: 0 };
        header.put(&SIGNATURE);
        header.put(&[0x21]);
        match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                header.put(&[0x10 | carrier, 0, 12]);
                header.put(&from.octets());
                header.put(&to.octets());
            }
            (from, to) => {
                header.put(&[0x20 | carrier, 0, 36]);
                header.put(&six(from));
                header.put(&six(to));
            }
        }
        header.put(&source.port().to_be_bytes());
        header.put(&destination.port().to_be_bytes());
        header
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl Deref for Header {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Converts to IPv6, since both addresses of a header must be of one family.
fn six(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: &str, destination: &str, carrier: Carrier) -> Vec<u8> {
        Header::new(source.parse().unwrap(), destination.parse().unwrap(), carrier).to_vec()
    }

    #[test]
    fn four_byte_addresses_make_a_header_of_28_bytes() {
        let expected =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\xd4\x31\x01\xbb";
        assert_eq!(header("192.0.2.1:54321", "198.51.100.2:443", Carrier::Stream), expected);
        assert_eq!(
            header("[::ffff:192.0.2.1]:54321", "198.51.100.2:443", Carrier::Stream),
            expected
        );
    }

    #[test]
    fn sixteen_byte_addresses_make_a_header_of_52_bytes() {
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x22\0\x24".to_vec();
        expected.extend(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01");
        expected.extend(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02");
        expected.extend(b"\x00\x35\x14\xe9");
        assert_eq!(header("[2001:db8::1]:53", "[2001:db8::2]:5353", Carrier::Datagram), expected);
    }

    #[test]
    fn addresses_of_two_families_are_both_written_as_sixteen_bytes() {
        let bytes = header("192.0.2.1:1", "[2001:db8::2]:2", Carrier::Stream);
        assert_eq!(bytes[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(bytes[16..32], *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01");
    }
}

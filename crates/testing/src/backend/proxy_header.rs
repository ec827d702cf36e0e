//! Reads a PROXY protocol v2 header, for a backend that expects one.

use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::io::{AsyncRead, AsyncReadExt as _};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The addresses of a header, as `SOURCE -> DESTINATION`.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, String> {
    let mut fixed = [0; 16];
    stream.read_exact(&mut fixed).await.map_err(|e| format!("no PROXY header: {e}"))?;
    if fixed[..12] != SIGNATURE {
        return Err("no PROXY header".to_owned());
    }
    let mut rest = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    stream.read_exact(&mut rest).await.map_err(|e| format!("half a PROXY header: {e}"))?;
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    match (fixed[12], fixed[13]) {
        (0x20, _) => Ok("LOCAL".to_owned()),
        (0x21, 0x11) if rest.len() >= 12 => {
            let ip = |at: usize| Ipv4Addr::new(rest[at], rest[at + 1], rest[at + 2], rest[at + 3]);
            Ok(format!("{}:{} -> {}:{}", ip(0), port(8), ip(4), port(10)))
        }
        (0x21, 0x21) if rest.len() >= 36 => {
            let ip = |at: usize| {
                let bytes: [u8; 16] = rest[at..at + 16].try_into().unwrap_or_default();
                Ipv6Addr::from(bytes)
            };
            Ok(format!("[{}]:{} -> [{}]:{}", ip(0), port(32), ip(16), port(34)))
        }
        other => Err(format!("a PROXY header that is not for TCP: {other:x?}")),
    }
}

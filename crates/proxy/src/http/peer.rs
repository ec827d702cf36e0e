//! How the proxy connects to a member: timeouts, HTTP version, which kept connections it may use,
//! and the PROXY protocol header if the pool asks for one. The callbacks use it.

use super::connection::Connection;
use crate::options::Limits;
use crate::proxy_protocol::{Carrier, Header};
use crate::state::Shared;
use async_trait::async_trait;
use bowline_core::plan::{Pool, Speaks};
use pingora_core::connectors::L4Connect;
use pingora_core::protocols::l4::socket::SocketAddr as AnyAddr;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Concurrent streams on one HTTP/2 connection to a member.
const STREAMS: usize = 100;

/// The member as pingora's peer.
pub(super) fn to(
    member: SocketAddr,
    pool: &Pool,
    shared: &Shared,
    connection: &Connection,
) -> HttpPeer {
    let limits = &shared.options.limits;
    let mut peer = HttpPeer::new(member, false, String::new());
    let connect = or(pool.timeouts.connect_ms, limits.connect_time);
    let silence = silence(pool, limits);
    let options = &mut peer.options;
    options.connection_timeout = Some(connect);
    options.total_connection_timeout = Some(connect);
    options.read_timeout = Some(silence);
    options.write_timeout = Some(silence);
    options.idle_timeout = Some(limits.member_idle_time);
    if pool.speaks == Speaks::H2c {
        options.set_http_version(2, 2);
        options.max_h2_streams = STREAMS;
    }
    if pool.proxy_protocol {
        let header = Header::new(connection.client, connection.local, Carrier::Stream);
        options.custom_l4 = Some(Arc::new(Announced { header, patience: connect }));
        // The header is about one client's connection, so only that connection may use this one
        // again.
        peer.group_key = connection.id | 1 << 63;
    } else {
        peer.group_key = shared.generations.of(member);
    }
    peer
}

/// How long a member may be silent.
pub(super) fn silence(pool: &Pool, limits: &Limits) -> Duration {
    or(pool.timeouts.backend_ms, limits.backend_time)
}

fn or(milliseconds: Option<u32>, default: Duration) -> Duration {
    milliseconds.map_or(default, |ms| Duration::from_millis(u64::from(ms)))
}

/// Connects and sends the PROXY protocol header at once.
#[derive(Debug)]
struct Announced {
    header: Header,
    patience: Duration,
}

#[async_trait]
impl L4Connect for Announced {
    async fn connect(&self, member: &AnyAddr) -> Result<Stream> {
        let Some(member) = member.as_inet() else {
            return Err(Error::new_up(ErrorType::ConnectError));
        };
        let connecting = async {
            let mut stream = TcpStream::connect(member).await?;
            stream.write_all(&self.header).await?;
            std::io::Result::Ok(stream)
        };
        match tokio::time::timeout(self.patience, connecting).await {
            Ok(Ok(stream)) => Ok(stream.into()),
            Ok(Err(error)) => Err(Error::because(
                ErrorType::ConnectError,
                "connecting with a PROXY protocol header",
                error,
            )),
            Err(_) => Err(Error::new_up(ErrorType::ConnectTimedout)),
        }
    }
}

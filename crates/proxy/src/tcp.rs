//! TCP connections: each gets a member of the pool and is forwarded both ways until both sides are
//! done. It never looks at the bytes. Listeners accept and call [`serve`].

mod pump;
#[cfg(test)]
mod tests;

use crate::metrics::ListenerStats;
use crate::pool::{Client, Failure, Pick, Pool};
use crate::proxy_protocol::{Carrier, Header};
use pump::Pumped;
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How many members are tried before the client is refused.
const TRIES: usize = 3;
/// After this long without a byte, the other side is probed by a keepalive.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Time limits of connections.
#[derive(Clone)]
pub(crate) struct Limits {
    /// How long connecting to a member may take, if the plan does not say.
    pub(crate) connect: Duration,
    /// How long a connection may be silent both ways, if the plan does not say.
    pub(crate) idle: Duration,
    /// The same while places run short, at most.
    pub(crate) crowded: Duration,
    /// Whether places run short.
    pub(crate) is_crowded: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("connect", &self.connect).finish_non_exhaustive()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(3600),
            crowded: Duration::from_secs(75),
            is_crowded: Arc::new(|| false),
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both sides were done.
    Closed,
    /// One side broke it.
    Broken,
    /// Neither side sent anything for too long.
    Idle,
    /// The member was removed and its drain time is over.
    Drained,
    /// The client may not use the pool.
    Forbidden,
    /// No member could be connected to.
    NoMember,
}

/// Serves one connection to its end. It is closed when this is dropped.
pub(crate) async fn serve(
    client: TcpStream,
    client_addr: SocketAddr,
    local_addr: SocketAddr,
    pool: Arc<Pool>,
    limits: &Limits,
    stats: &Arc<ListenerStats>,
) -> Ended {
    if !pool.allows(client_addr.ip()) {
        ListenerStats::add(&stats.refused, 1);
        reset(&client);
        return Ended::Forbidden;
    }
    let _active = stats.begin();
    tune(&client);
    pass(client, client_addr, local_addr, &pool, limits, stats).await
}

async fn pass(
    client: TcpStream,
    client_addr: SocketAddr,
    local_addr: SocketAddr,
    pool: &Arc<Pool>,
    limits: &Limits,
    stats: &ListenerStats,
) -> Ended {
    let mut client = Whole { stream: client, ended: false };
    let config = pool.config();
    let patience = config.timeouts.connect_ms.map_or(limits.connect, millis);
    let Some((pick, mut member)) = connect(pool, client_addr, patience).await else {
        return Ended::NoMember;
    };
    let cancelled = pick.cancelled();
    let work = async {
        if config.proxy_protocol {
            let header = Header::new(client_addr, local_addr, Carrier::Stream);
            if member.write_all(&header).await.is_err() {
                pick.failed(Failure::Reset);
                return Ended::Broken;
            }
        }
        let idle = config.timeouts.backend_ms.map_or(limits.idle, millis);
        let most = || if (limits.is_crowded)() { limits.crowded.min(idle) } else { idle };
        let pumped = pump::pump(&mut client.stream, &mut member, most, stats).await;
        match pumped {
            Pumped::MemberBroke { answered: false } => pick.failed(Failure::Reset),
            Pumped::Done | Pumped::MemberBroke { .. } => pick.succeeded(),
            Pumped::ClientBroke | Pumped::Idle => {}
        }
        match pumped {
            Pumped::Done => Ended::Closed,
            Pumped::Idle => Ended::Idle,
            Pumped::ClientBroke | Pumped::MemberBroke { .. } => Ended::Broken,
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        () = cancelled => Ended::Drained,
    };
    // A reset by one side is passed on to the other.
    client.ended = ended != Ended::Broken;
    ended
}

/// A client's connection that is reset unless it came to its end: a connection that is cut short
/// must not look complete.
struct Whole {
    stream: TcpStream,
    ended: bool,
}

impl Drop for Whole {
    fn drop(&mut self) {
        if !self.ended {
            reset(&self.stream);
        }
    }
}

/// A member and a connection to it. A failed connection has sent nothing, so trying another member
/// is safe.
async fn connect(
    pool: &Arc<Pool>,
    client: SocketAddr,
    patience: Duration,
) -> Option<(Pick, TcpStream)> {
    let mut tried = Vec::new();
    while tried.len() < TRIES {
        let pick = pool.pick(&Client { addr: client.ip(), cookie: None }, &tried)?;
        match timeout(patience, TcpStream::connect(pick.address())).await {
            Ok(Ok(stream)) => {
                tune(&stream);
                return Some((pick, stream));
            }
            Ok(Err(error)) => {
                tracing::debug!(member = %pick.address(), %error, "cannot connect");
                pick.failed(Failure::Connect);
            }
            Err(_) => pick.failed(Failure::Connect),
        }
        tried.push(pick.address());
    }
    None
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// Small writes are sent at once, and a vanished peer is noticed. A socket that refuses either
/// option still works.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Makes the connection reset when it is dropped, so that its client does not wait.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

//! Moves bytes between two connections. A silent connection holds no buffer: bytes go through a
//! buffer of the thread, and only what the receiver does not take at once is kept, so that a slow
//! receiver slows its sender down.

use crate::metrics::ListenerStats;
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

const BUFFER: usize = 64 * 1024;
/// How often the idle time is read again.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// How the transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Both sides have closed.
    Done,
    /// The client's connection failed.
    ClientBroke,
    /// The member's connection failed.
    MemberBroke {
        /// Whether the member had sent something before.
        answered: bool,
    },
    /// Nothing moved for too long.
    Idle,
}

/// Which connection failed.
enum Broke {
    Reading,
    Writing,
}

/// Moves bytes both ways until both sides are done. A side that has closed its sending half still
/// receives.
pub(super) async fn pump(
    client: &mut TcpStream,
    member: &mut TcpStream,
    idle: impl Fn() -> Duration,
    stats: &ListenerStats,
) -> Pumped {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_member, mut to_member) = member.split();
    let activity = Activity::new();
    let answered = AtomicBool::new(false);
    let up = async {
        let moved = one_way(&mut from_client, &mut to_member, &activity, |n| {
            ListenerStats::add(&stats.bytes_in, n);
        });
        moved.await.map_err(|broke| match broke {
            Broke::Reading => Pumped::ClientBroke,
            Broke::Writing => Pumped::MemberBroke { answered: answered.load(Ordering::Relaxed) },
        })
    };
    let down = async {
        let moved = one_way(&mut from_member, &mut to_client, &activity, |n| {
            answered.store(true, Ordering::Relaxed);
            ListenerStats::add(&stats.bytes_out, n);
        });
        moved.await.map_err(|broke| match broke {
            Broke::Reading => Pumped::MemberBroke { answered: answered.load(Ordering::Relaxed) },
            Broke::Writing => Pumped::ClientBroke,
        })
    };
    tokio::select! {
        both = async { tokio::try_join!(up, down) } => both.err().unwrap_or(Pumped::Done),
        () = activity.ceased_for(idle) => Pumped::Idle,
    }
}

/// Moves bytes one way until their end, and passes the end on.
async fn one_way(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    activity: &Activity,
    count: impl Fn(u64),
) -> Result<(), Broke> {
    loop {
        from.readable().await.map_err(|_| Broke::Reading)?;
        match step(from, to)? {
            Step::NotReady => continue,
            Step::End => break,
            Step::Moved(n) => count(n as u64),
            Step::Stuck { moved, rest } => {
                activity.touch();
                to.write_all(&rest).await.map_err(|_| Broke::Writing)?;
                count((moved + rest.len()) as u64);
            }
        }
        activity.touch();
        tokio::task::coop::consume_budget().await;
    }
    to.shutdown().await.map_err(|_| Broke::Writing)
}

enum Step {
    NotReady,
    End,
    Moved(usize),
    /// The receiver takes no more for now.
    Stuck {
        moved: usize,
        rest: Vec<u8>,
    },
}

fn step(from: &ReadHalf<'_>, to: &WriteHalf<'_>) -> Result<Step, Broke> {
    SCRATCH.with_borrow_mut(|buffer| {
        let length = match not_blocking(from.try_read(buffer)).map_err(|_| Broke::Reading)? {
            None => return Ok(Step::NotReady),
            Some(0) => return Ok(Step::End),
            Some(length) => length,
        };
        let written = not_blocking(to.try_write(&buffer[..length])).map_err(|_| Broke::Writing)?;
        Ok(match written.unwrap_or(0) {
            written if written == length => Step::Moved(length),
            moved => Step::Stuck { moved, rest: buffer[moved..length].to_vec() },
        })
    })
}

fn not_blocking<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// When something last moved, as milliseconds since the start.
struct Activity {
    start: Instant,
    last: AtomicU64,
}

impl Activity {
    fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Resolves when nothing moved for the idle time, which is read again from time to time.
    async fn ceased_for(&self, idle: impl Fn() -> Duration) {
        loop {
            let last = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed));
            let idle = idle();
            if last.elapsed() >= idle {
                return;
            }
            sleep_until((last + idle).min(Instant::now() + LOOK_AGAIN)).await;
        }
    }
}

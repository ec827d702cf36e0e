//! Which side of an exchange must send next, and how long it may be silent. It is used where pingora has
//! no fitting timeout: for uploads to HTTP/2 members, where pingora's timeout starts with the head, and
//! for upgrades, where one timeout would hold for the handshake and the tunnel. [`super::callbacks`]
//! reports progress; [`super::scope`] ends the request when the time is over.

use super::scope::Verdict;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How often the timeout is read again: it may have changed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The side that must send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The client: its body is incomplete.
    Client,
    /// The member.
    Member,
    /// Either side: a tunnel, or a response that began before the body was complete.
    Either,
}

/// Which side must send next, and since when.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
    turn: AtomicU8,
}

impl Pace {
    /// Starts now.
    pub(super) fn new(turn: Awaited) -> Arc<Self> {
        let turn = AtomicU8::new(turn as u8);
        Arc::new(Self { start: Instant::now(), last: AtomicU64::new(0), turn })
    }

    /// A side has sent something; now this side must send.
    pub(super) fn went_on(&self, turn: Awaited) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
        self.turn.store(turn as u8, Ordering::Relaxed);
    }

    /// The side that must send next.
    pub(super) fn turn(&self) -> Awaited {
        match self.turn.load(Ordering::Relaxed) {
            0 => Awaited::Client,
            1 => Awaited::Member,
            _ => Awaited::Either,
        }
    }

    /// Resolves when the side that must send was silent for longer than allowed.
    pub(super) fn over(
        self: Arc<Self>,
        allowed: impl Fn(Awaited) -> Duration + Send + 'static,
    ) -> BoxFuture<'static, Verdict> {
        let mut timer = Box::pin(sleep_until(Instant::now() + LOOK_AGAIN));
        Box::pin(std::future::poll_fn(move |cx| {
            loop {
                let turn = self.turn();
                let last = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed));
                let ends = last + allowed(turn);
                let now = Instant::now();
                if ends <= now {
                    return Poll::Ready(match turn {
                        Awaited::Client => Verdict::Slow,
                        Awaited::Member => Verdict::Silent,
                        Awaited::Either => Verdict::Idle,
                    });
                }
                let wake = ends.min(now + LOOK_AGAIN);
                if wake < timer.deadline() || timer.is_elapsed() {
                    timer.as_mut().reset(wake);
                }
                ready!(timer.as_mut().poll(cx));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long it takes until the exchange times out, and with which verdict.
    async fn over(pace: &Arc<Pace>) -> (Verdict, Duration) {
        let start = Instant::now();
        let allowed = |turn| match turn {
            Awaited::Client => SECOND * 10,
            Awaited::Member => SECOND,
            Awaited::Either => SECOND * 100,
        };
        (pace.clone().over(allowed).await, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_its_own_time() {
        for (turn, found, seconds) in [
            (Awaited::Client, Verdict::Slow, 10),
            (Awaited::Member, Verdict::Silent, 1),
            (Awaited::Either, Verdict::Idle, 100),
        ] {
            assert_eq!(over(&Pace::new(turn)).await, (found, SECOND * seconds));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_begins_anew_whenever_something_is_said() {
        let pace = Pace::new(Awaited::Client);
        let says = pace.clone();
        tokio::spawn(async move {
            for turn in [Awaited::Client, Awaited::Client, Awaited::Member] {
                tokio::time::sleep(SECOND * 9).await;
                says.went_on(turn);
            }
        });
        let (verdict, took) = over(&pace).await;
        assert_eq!(verdict, Verdict::Silent);
        assert!((SECOND * 28..SECOND * 33).contains(&took), "{took:?}");
    }
}

//! Places: what clients may have of a process, over all its listeners and proxies. A connection takes one,
//! and each further concurrent request on an HTTP/2 connection one more. UDP sessions have places of their
//! own, because a datagram can carry any source address. The [`ledger`] decides which client gets a place;
//! this module cuts the connections that lose theirs and wakes those that wait. Proxies that share places
//! also share health checks and ties.

mod budget;
mod client;
mod heads;
mod holders;
mod ledger;
mod said;

use crate::metrics::ListenerStats;
use crate::options::Limits;
use crate::pool::checks::Checks;
use crate::pool::ties::Ties;
use crate::udp::{Session, SessionTable};
pub(crate) use budget::{Budget, Taken};
use client::Client;
pub(crate) use heads::{HeadBytes, Heads};
use ledger::{Bounds, Gives, Id, Ledger, Level, Seat, Verdict};
use parking_lot::Mutex;
use said::Said;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Places for clients. Options that are clones of each other share them.
#[derive(Clone, Default)]
pub struct Places(Arc<OnceLock<Hall>>);

/// The places of a process.
#[derive(Clone)]
pub(crate) struct Hall {
    pub(crate) connections: Arc<Connections>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) checks: Arc<Checks>,
    pub(crate) ties: Arc<Ties>,
    /// Bytes of heads, for all requests together; each client has a share.
    pub(crate) heads: Arc<Heads>,
}

/// Places for connections and for concurrent requests. Each holds the handle that cuts its task, once the
/// task was started.
pub(crate) type Connections = Room<Option<AbortHandle>>;

/// Places for sessions of datagrams.
pub(crate) type Sessions = Room<Weak<Session>>;

impl Places {
    /// The places. The limits of the first caller count.
    pub(crate) fn of(&self, limits: &Limits) -> Hall {
        let hall = || Hall {
            connections: Room::new("connections", limits.connection_bounds(), Gives::Newest),
            sessions: Room::new("sessions", limits.session_bounds(), Gives::Oldest),
            checks: Checks::new(limits.checks),
            ties: Ties::new(limits.ties),
            heads: Heads::new(limits.all_header_bytes, limits.header_bytes),
        };
        self.0.get_or_init(hall).clone()
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Places")
    }
}

impl Limits {
    fn connection_bounds(&self) -> Bounds {
        Bounds {
            whole: self.connections.max(1),
            part: self.listener_connections.max(1),
            client: self.client_connections.max(1),
        }
    }

    fn session_bounds(&self) -> Bounds {
        let whole = self.sessions.max(1);
        Bounds {
            whole,
            part: self.listener_sessions.clamp(1, whole.div_ceil(2)),
            client: whole - whole / 4,
        }
    }
}

/// Places of one kind.
pub(crate) struct Room<C> {
    what: &'static str,
    bounds: Bounds,
    ledger: Mutex<Ledger<Held<C>>>,
    /// The number of places that are held, readable without the lock.
    total: AtomicUsize,
    freed: Notify,
    said: Said,
}

/// What is stored for a place.
struct Held<C> {
    part: Arc<Part>,
    cut: C,
}

/// A listener, as far as places are concerned.
pub(crate) struct Part {
    number: u64,
    held: AtomicUsize,
    freed: Notify,
    stats: Arc<ListenerStats>,
    /// The sessions of a UDP listener; not set for other listeners.
    sessions: OnceLock<Weak<SessionTable>>,
}

impl Part {
    /// A listener at which no place is held yet.
    pub(crate) fn new(stats: Arc<ListenerStats>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (held, freed) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { number, held, freed, stats, sessions: OnceLock::new() })
    }

    /// Sets the sessions of this listener.
    pub(crate) fn has_sessions(&self, sessions: &Arc<SessionTable>) {
        let _ = self.sessions.set(Arc::downgrade(sessions));
    }

    /// Ends the oldest session that is not in use, and returns its place.
    fn unused_session(&self) -> Option<Id> {
        self.sessions.get()?.upgrade()?.make_room()
    }
}

/// A place that is held until this is dropped, or until another client gets it.
pub(crate) struct Place<C> {
    room: Arc<Room<C>>,
    id: Id,
}

impl<C> Place<C> {
    pub(crate) fn id(&self) -> Id {
        self.id
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        self.room.release(self.id);
    }
}

/// The result of asking for a place.
enum Asked {
    Has(Id),
    Waits(Level),
    HasEnough,
}

impl<C> Room<C> {
    fn new(what: &'static str, bounds: Bounds, gives: Gives) -> Arc<Self> {
        Arc::new(Self {
            what,
            bounds,
            ledger: Mutex::new(Ledger::new(bounds, gives)),
            total: AtomicUsize::new(0),
            freed: Notify::new(),
            said: Said::default(),
        })
    }

    /// Asks for a place, and ends what loses its place for it.
    fn ask(
        &self,
        part: &Arc<Part>,
        client: IpAddr,
        cut: C,
        in_use: impl Fn(&C) -> bool,
        end: impl Fn(C),
    ) -> Asked {
        let client = Client::from(client);
        let seat = Seat { part: part.number, client };
        let held = Held { part: part.clone(), cut };
        let verdict = {
            let mut ledger = self.ledger.lock();
            let verdict = ledger.admit(seat, held, |held| in_use(&held.cut));
            self.total.store(ledger.total(), Ordering::Relaxed);
            verdict
        };
        match verdict {
            Verdict::Admitted(id, given) => {
                part.held.fetch_add(1, Ordering::Relaxed);
                for (_, held) in given {
                    held.part.held.fetch_sub(1, Ordering::Relaxed);
                    ListenerStats::add(&held.part.stats.displaced, 1);
                    self.said.displaced(self.what, client);
                    end(held.cut);
                }
                Asked::Has(id)
            }
            Verdict::Wait(level) => Asked::Waits(level),
            Verdict::Refused => {
                self.said.refused(self.what, client);
                Asked::HasEnough
            }
        }
    }

    /// Releases a place, if it is still held.
    pub(crate) fn release(&self, id: Id) {
        let mut ledger = self.ledger.lock();
        let held = ledger.release(id);
        self.total.store(ledger.total(), Ordering::Relaxed);
        drop(ledger);
        if let Some(held) = held {
            held.part.held.fetch_sub(1, Ordering::Relaxed);
            held.part.freed.notify_one();
            self.freed.notify_one();
        }
    }

    /// Whether places run short, in all or at this listener.
    pub(crate) fn is_crowded(&self, part: &Part) -> bool {
        let short = |held: &AtomicUsize, most: usize| {
            most.saturating_sub(held.load(Ordering::Relaxed)) < most / 10
        };
        short(&part.held, self.bounds.part) || short(&self.total, self.bounds.whole)
    }
}

impl Connections {
    /// Gets a place for one more connection of a client. Waits if no client holds more than one; None if
    /// the client has its share.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        part: &Arc<Part>,
        client: IpAddr,
    ) -> Option<Place<Option<AbortHandle>>> {
        let mut waited = false;
        loop {
            match self.ask(part, client, None, |_| false, cut) {
                Asked::Has(id) => {
                    if waited {
                        // There may be room for more, and the next waiting connection was not woken.
                        part.freed.notify_one();
                        self.freed.notify_one();
                    }
                    return Some(Place { room: self.clone(), id });
                }
                Asked::HasEnough => return None,
                Asked::Waits(Level::Part) => part.freed.notified().await,
                Asked::Waits(Level::Whole) => self.freed.notified().await,
            }
            waited = true;
        }
    }

    /// Gets a place for one more request of a client, at once or not at all.
    pub(crate) fn enter_now(
        self: &Arc<Self>,
        part: &Arc<Part>,
        client: IpAddr,
    ) -> Option<Place<Option<AbortHandle>>> {
        match self.ask(part, client, None, |_| false, cut) {
            Asked::Has(id) => Some(Place { room: self.clone(), id }),
            Asked::Waits(_) | Asked::HasEnough => None,
        }
    }

    /// Sets the task that has the place. If the place is no longer held, the task is aborted.
    pub(crate) fn carried_by(&self, id: Id, task: AbortHandle) {
        match self.ledger.lock().value(id) {
            Some(held) => held.cut = Some(task),
            None => task.abort(),
        }
    }

    /// Cuts all connections that are left at a listener.
    pub(crate) fn cut(&self, part: &Part) {
        let mut ledger = self.ledger.lock();
        let tasks: Vec<_> = ledger.at(part.number).into_iter().collect();
        let tasks = tasks.into_iter().filter_map(|id| ledger.value(id)?.cut.take());
        let tasks: Vec<_> = tasks.collect();
        drop(ledger);
        tasks.into_iter().for_each(|task| task.abort());
    }
}

fn cut(task: Option<AbortHandle>) {
    if let Some(task) = task {
        task.abort();
    }
}

impl Sessions {
    /// Gets a place for a session of a client. If every client holds at most one, an unused session ends:
    /// one of this listener if it has all that it may have, else one of the listener that has the most.
    pub(crate) fn enter(
        self: &Arc<Self>,
        part: &Arc<Part>,
        client: IpAddr,
        session: &Arc<Session>,
    ) -> Option<Place<Weak<Session>>> {
        let ask = || {
            let in_use = |session: &Weak<Session>| session.upgrade().is_some_and(|it| it.is_busy());
            self.ask(part, client, Arc::downgrade(session), in_use, |session| {
                if let Some(session) = session.upgrade() {
                    session.end();
                }
            })
        };
        let level = match ask() {
            Asked::Has(id) => return Some(Place { room: self.clone(), id }),
            Asked::Waits(level) => level,
            Asked::HasEnough => return None,
        };
        let from = match level {
            Level::Part => part.clone(),
            Level::Whole => self.ledger.lock().at_fullest()?.part.clone(),
        };
        self.release(from.unused_session()?);
        ListenerStats::add(&from.stats.displaced, 1);
        match ask() {
            Asked::Has(id) => Some(Place { room: self.clone(), id }),
            Asked::Waits(_) | Asked::HasEnough => None,
        }
    }

    /// More places than a test fills.
    #[cfg(test)]
    pub(crate) fn of(whole: usize, part: usize) -> Arc<Self> {
        Room::new("sessions", Bounds { whole, part, client: whole }, Gives::Oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn room(whole: usize, part: usize, client: usize) -> Arc<Connections> {
        Room::new("connections", Bounds { whole, part, client }, Gives::Newest)
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn a_displaced_connection_is_cut_also_if_it_is_still_being_started() {
        let (room, part) = (room(2, 2, 2), Part::new(Arc::default()));
        let first = room.enter(&part, address(1)).await.unwrap();
        let second = room.enter(&part, address(1)).await.unwrap();
        let third = room.enter(&part, address(2)).await.unwrap();
        assert_eq!(part.stats.displaced.load(Ordering::Relaxed), 1);
        let task = || tokio::spawn(std::future::pending::<()>());
        let (kept, gone) = (task(), task());
        room.carried_by(first.id(), kept.abort_handle());
        room.carried_by(second.id(), gone.abort_handle());
        assert!(gone.await.unwrap_err().is_cancelled());
        assert!(!kept.is_finished());
        room.cut(&part);
        assert!(kept.await.unwrap_err().is_cancelled());
        drop((first, second, third));
        assert_eq!(room.total.load(Ordering::Relaxed), 0);
        assert_eq!(part.held.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_newcomer_that_waits_gets_a_place_in_the_end() {
        let room = room(2, 2, 2);
        let parts = [Part::new(Arc::default()), Part::new(Arc::default())];
        let tasks: Vec<_> = (0..200)
            .map(|i| {
                let (room, part) = (room.clone(), parts[i % 2].clone());
                tokio::spawn(async move {
                    let place = room.enter(&part, address(i as u8)).await.unwrap();
                    tokio::task::yield_now().await;
                    drop(place);
                })
            })
            .collect();
        let all = futures::future::join_all(tasks);
        let all = tokio::time::timeout(Duration::from_secs(30), all).await.expect("all get in");
        assert!(all.into_iter().all(|one| one.is_ok()));
        assert_eq!(room.total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn places_are_short_when_less_than_a_tenth_is_left() {
        let (room, part) = (room(40, 20, 40), Part::new(Arc::default()));
        let other = Part::new(Arc::default());
        let enter = |at: &Arc<Part>| room.enter_now(at, address(1)).unwrap();
        let held: Vec<_> = (0..18).map(|_| enter(&part)).collect();
        assert!(!room.is_crowded(&part));
        let more = enter(&part);
        assert!(room.is_crowded(&part) && !room.is_crowded(&other));
        drop((held, more));
        assert!(!room.is_crowded(&part));
    }
}

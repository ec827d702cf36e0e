//! Which members of nginx do not answer. nginx has no state of members: it says only, of each request or connection, to
//! which members it could not connect. It says so at a socket of the driver, which then tries to connect to such a member
//! itself, until the member answers. So what is told is true and ends, no member is tried that failed no client, and nothing
//! that a client sends can accuse a member. A UDP port takes no connections: nothing is known of its members.

mod places;

use self::places::Places;
use super::log;
use crate::desired::Desired;
use bowline_core::fair_queue;
use bowline_core::update::FailingPool;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::sync::mpsc;

/// The name of the socket in the folder of nginx's files.
pub(super) const SOCKET: &str = "failing.sock";

/// How long a member may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most members that are tried at once. Namespaces have equal shares.
const MOST_TRIED: usize = 64;

/// The most members that are remembered between two looks.
const MOST_HEARD: usize = 4096;

/// The longest line: nginx tries up to three members for a request, and a few more after redirects of its own.
const LONGEST: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct FailingMembers {
    /// The members that nginx could not connect to since the last look.
    heard: Arc<Mutex<BTreeSet<SocketAddr>>>,
    /// The members that the driver could not connect to.
    down: BTreeSet<SocketAddr>,
    /// The members that have to be tried.
    waiting: BTreeSet<SocketAddr>,
    /// The members that are being tried.
    tried: BTreeSet<SocketAddr>,
    /// Whether such a member has answered.
    results: mpsc::UnboundedReceiver<(SocketAddr, bool)>,
    tells: mpsc::UnboundedSender<(SocketAddr, bool)>,
    places: Places,
    pools: Vec<FailingPool>,
}

impl FailingMembers {
    /// Begins to listen to nginx.
    pub(super) fn listen(socket: &Path) -> io::Result<Self> {
        match std::fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(socket)?;
        let failing = Self::default();
        let heard = Arc::clone(&failing.heard);
        tokio::spawn(async move {
            let mut buffer = vec![0; LONGEST];
            while let Ok(length) = socket.recv(&mut buffer).await {
                let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
                let mut heard = heard.lock();
                if heard.len() < MOST_HEARD {
                    heard.extend(unreached(log::line(&text)));
                }
            }
        });
        Ok(failing)
    }

    /// Takes in what was heard and which members have answered, and tries those that have not. While some are failing, it
    /// looks at the members of pools that changed, and at all members once for each new address that fails.
    pub(super) fn look(&mut self, desired: &Desired) {
        while let Ok((member, answers)) = self.results.try_recv() {
            self.tried.remove(&member);
            match answers {
                true => self.down.remove(&member),
                false => self.down.insert(member),
            };
        }
        let heard = std::mem::take(&mut *self.heard.lock());
        self.waiting.extend(&heard);
        self.places.follow(desired, &heard);
        let suspected = |it: &SocketAddr| {
            self.down.contains(it) || self.waiting.contains(it) || self.tried.contains(it)
        };
        self.places.retain(suspected);
        // Other addresses are those of members that were removed meanwhile.
        self.down.retain(|it| self.places.has(it));
        self.waiting.retain(|it| self.places.has(it));
        self.pools = self.places.failing(&self.down);
        if self.waiting.is_empty() {
            self.waiting.clone_from(&self.down);
        }
        let room = MOST_TRIED.saturating_sub(self.tried.len());
        let waiting = self.waiting.iter().filter(|it| !self.tried.contains(it));
        let next = waiting.filter_map(|it| Some((self.places.namespace(it, desired)?, *it)));
        for member in fair_queue::share(next, room) {
            self.waiting.remove(&member);
            self.tried.insert(member);
            let tells = self.tells.clone();
            tokio::spawn(async move {
                // The driver may have ended.
                let _ = tells.send((member, answers(member).await));
            });
        }
    }

    /// The pools with members that do not answer, by name.
    pub(super) fn pools(&self) -> Vec<FailingPool> {
        self.pools.clone()
    }
}

impl Default for FailingMembers {
    fn default() -> Self {
        let (tells, results) = mpsc::unbounded_channel();
        Self {
            heard: Arc::default(),
            down: BTreeSet::new(),
            waiting: BTreeSet::new(),
            tried: BTreeSet::new(),
            results,
            tells,
            places: Places::default(),
            pools: Vec::new(),
        }
    }
}

async fn answers(member: SocketAddr) -> bool {
    tokio::time::timeout(PATIENCE, TcpStream::connect(member)).await.is_ok_and(|it| it.is_ok())
}

/// The members in a line that nginx could not connect to. A line is `ADDRESSES|TIMES`: nginx writes `-` for the time of a
/// connection that was not made. Neither has a text that a client sent.
fn unreached(line: &str) -> Vec<SocketAddr> {
    let Some((members, times)) = line.split_once('|') else { return Vec::new() };
    let each = |list: &str| list.replace(" : ", ", ").split(", ").map(str::to_owned).collect();
    let (members, times): (Vec<String>, Vec<String>) = (each(members), each(times));
    let unreached = members.iter().zip(&times).filter(|(_, time)| *time == "-");
    unreached.filter_map(|(member, _)| member.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::pool;
    use bowline_core::update::{Member, MemberState};
    use std::net::TcpListener;

    fn desired(members: &[SocketAddr]) -> Desired {
        let ready = |at: &SocketAddr| Member { address: *at, weight: 1, state: MemberState::Ready };
        let mut desired = Desired::default();
        desired.pools.insert("p".into(), pool("p").into());
        desired.members.insert("p".into(), members.iter().map(ready).collect());
        desired
    }

    /// Looks until this many members are told, and returns what is told.
    async fn told(failing: &mut FailingMembers, desired: &Desired, count: u32) -> Vec<FailingPool> {
        let reached = async {
            loop {
                failing.look(desired);
                let told = failing.pools();
                if told.iter().map(|it| it.count).sum::<u32>() == count {
                    return told;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reached).await.expect("in time")
    }

    #[test]
    fn members_that_nginx_could_not_connect_to_are_read() {
        let read = |line| unreached(line).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(read("10.0.0.1:80|-"), ["10.0.0.1:80"]);
        assert_eq!(read("10.0.0.1:80, [fd00::1]:80|-, 0.001"), ["10.0.0.1:80"]);
        assert_eq!(read("10.0.0.1:80, 10.0.0.2:80 : 10.0.0.3:80|0.000, - : -").len(), 2);
        // All members were passed over.
        assert_eq!(read("service_shop_web|-"), [""; 0]);
        assert_eq!(read("10.0.0.1:80"), [""; 0]);
    }

    #[tokio::test]
    async fn a_member_is_told_while_it_does_not_answer_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join(SOCKET);
        let mut failing = FailingMembers::listen(&socket).unwrap();
        let [good, bad] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [answers, at] = [&good, &bad].map(|it| it.local_addr().unwrap());
        drop(bad);
        let desired = desired(&[answers, at]);
        let nginx = UnixDatagram::unbound().unwrap();
        let line = format!("<190>Nov 16 00:30:03 nginx: {at}, {answers}|-, -");
        nginx.send_to(line.as_bytes(), &socket).await.unwrap();
        let expected = FailingPool { pool: "p".into(), count: 1, named: vec![at] };
        assert_eq!(told(&mut failing, &desired, 1).await, [expected]);
        let _back = TcpListener::bind(at).unwrap();
        assert_eq!(told(&mut failing, &desired, 0).await, []);
    }

    #[tokio::test]
    async fn a_member_that_is_removed_is_forgotten() {
        let mut failing = FailingMembers::default();
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        failing.heard.lock().insert(at);
        told(&mut failing, &desired(&[at]), 1).await;
        let none = desired(&[]);
        assert_eq!(told(&mut failing, &none, 0).await, []);
        failing.look(&none);
        assert_eq!((failing.down.len(), failing.waiting.len()), (0, 0));
    }
}

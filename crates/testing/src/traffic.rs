//! Traffic between machines: a server that names itself, clients that open a connection for each request, and connections
//! that stay open. Only threads: a socket belongs to the machine of the thread that opens it.

use crate::{Machine, until};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a client waits before it calls a request failed.
const PATIENCE: Duration = Duration::from_secs(3);

/// How the reason begins when no connection was made.
const NO_CONNECTION: &str = "no connection: ";

/// Answers each line with its name. It runs until the test ends.
pub fn serve(machine: &Machine, address: IpAddr, port: u16, name: &str) {
    let listener = machine.on(|| TcpListener::bind((address, port)));
    let listener = listener.unwrap_or_else(|error| panic!("listen at {address}:{port}: {error}"));
    let name = name.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let name = name.clone();
            std::thread::spawn(move || answer(stream, &name));
        }
    });
}

fn answer(mut stream: TcpStream, name: &str) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    while let Some(Ok(_)) = lines.next() {
        stream.write_all(format!("{name}\n").as_bytes()).ok()?;
    }
    Some(())
}

/// A connection that stays open.
pub struct Session {
    stream: BufReader<TcpStream>,
    /// Which server answers.
    pub name: String,
}

impl Session {
    /// Opens one from a machine, and makes a request.
    pub fn open(machine: &Machine, to: SocketAddr) -> Result<Self, String> {
        machine.on(|| Self::open_here(to, PATIENCE))
    }

    /// The same with another patience, for a client that tries again.
    pub fn within(patience: Duration, machine: &Machine, to: SocketAddr) -> Result<Self, String> {
        machine.on(|| Self::open_here(to, patience))
    }

    fn open_here(to: SocketAddr, patience: Duration) -> Result<Self, String> {
        let because = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let stream = TcpStream::connect_timeout(&to, patience)
            .map_err(|error| format!("{NO_CONNECTION}{error}"))?;
        stream.set_read_timeout(Some(patience)).map_err(|it| because("timeout", it))?;
        stream.set_nodelay(true).map_err(|it| because("nodelay", it))?;
        let mut session = Self { stream: BufReader::new(stream), name: String::new() };
        session.name = session.ask()?;
        Ok(session)
    }

    /// One request.
    pub fn ask(&mut self) -> Result<String, String> {
        self.stream.get_mut().write_all(b"who\n").map_err(|error| format!("write: {error}"))?;
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("read: the connection was closed".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(format!("read: {error}")),
        }
    }
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When, since the clients began.
    pub after: Duration,
    /// Why.
    pub why: String,
}

/// What clients saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Answers, by the name of the server.
    pub answers: BTreeMap<String, usize>,
    /// Requests without an answer.
    pub failures: Vec<Failure>,
}

impl Seen {
    /// How many requests were answered.
    pub fn total(&self) -> usize {
        self.answers.values().sum()
    }

    /// The failures for which no connection was made.
    pub fn lost_attempts(&self) -> Vec<Failure> {
        self.failures.iter().filter(|it| it.why.starts_with(NO_CONNECTION)).cloned().collect()
    }
}

/// Clients that open a connection for each request, one after the other.
pub struct Clients {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts some.
    pub fn start(machine: &Machine, to: SocketAddr, count: usize) -> Self {
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let start = Instant::now();
        let client = |_| {
            let (seen, stop) = (seen.clone(), stop.clone());
            machine.on(|| std::thread::spawn(move || call(to, &seen, &stop, start)))
        };
        let threads = (0..count).map(client).collect();
        Self { seen, stop, threads }
    }

    /// Waits until they have had fifty more answers.
    pub fn go_on(&self) {
        let answers = || self.seen.lock().expect("not poisoned").total();
        let before = answers();
        until("clients have more answers", || match answers() {
            now if now >= before + 50 => Ok(()),
            now => Err(format!("{now} after {before}")),
        });
    }

    /// Ends them, and says what they saw.
    pub fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client");
        }
        std::mem::take(&mut self.seen.lock().expect("not poisoned"))
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the pace of the clients, so that they leave ports and time to others"
)]
fn call(to: SocketAddr, seen: &Mutex<Seen>, stop: &AtomicBool, start: Instant) {
    while !stop.load(Ordering::Relaxed) {
        let answer = Session::open_here(to, PATIENCE);
        let mut seen = seen.lock().expect("not poisoned");
        match answer {
            Ok(session) => *seen.answers.entry(session.name).or_default() += 1,
            Err(why) => seen.failures.push(Failure { after: start.elapsed(), why }),
        }
        drop(seen);
        std::thread::sleep(Duration::from_millis(8));
    }
}

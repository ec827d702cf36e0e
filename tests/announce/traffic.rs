//! Traffic between machines: a server that names itself, clients that open a connection for each request, and connections
//! that stay open. Only threads: a socket belongs to the machine of the thread that opens it.

use bowline_testing::{Machine, until};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a client waits before it calls a request failed.
const PATIENCE: Duration = Duration::from_secs(3);

/// Answers each line with its name. It runs until the test ends.
pub(crate) fn serve(machine: &Machine, address: IpAddr, port: u16, name: &str) {
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
pub(crate) struct Session {
    stream: BufReader<TcpStream>,
    /// Which server answers.
    pub(crate) name: String,
}

impl Session {
    pub(crate) fn open(machine: &Machine, to: SocketAddr) -> Result<Self, String> {
        machine.on(|| Self::open_here(to))
    }

    fn open_here(to: SocketAddr) -> Result<Self, String> {
        let because = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let stream =
            TcpStream::connect_timeout(&to, PATIENCE).map_err(|it| because("connect", it))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|it| because("timeout", it))?;
        stream.set_nodelay(true).map_err(|it| because("nodelay", it))?;
        let mut session = Self { stream: BufReader::new(stream), name: String::new() };
        session.name = session.ask()?;
        Ok(session)
    }

    /// One request.
    pub(crate) fn ask(&mut self) -> Result<String, String> {
        self.stream.get_mut().write_all(b"who\n").map_err(|error| format!("write: {error}"))?;
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("read: the connection was closed".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(format!("read: {error}")),
        }
    }
}

/// What clients saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Answers, by the name of the server.
    pub(crate) answers: BTreeMap<String, usize>,
    /// Requests without an answer: when, and why.
    pub(crate) failures: Vec<String>,
}

impl Seen {
    pub(crate) fn total(&self) -> usize {
        self.answers.values().sum()
    }
}

/// Clients that open a connection for each request, one after the other.
pub(crate) struct Clients {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub(crate) fn start(machine: &Machine, to: SocketAddr, count: usize) -> Self {
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
    pub(crate) fn go_on(&self) {
        let answers = || self.seen.lock().unwrap().total();
        let before = answers();
        until("clients have more answers", || match answers() {
            now if now >= before + 50 => Ok(()),
            now => Err(format!("{now} after {before}")),
        });
    }

    pub(crate) fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client");
        }
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the pace of the clients, so that they leave ports and time to others"
)]
fn call(to: SocketAddr, seen: &Mutex<Seen>, stop: &AtomicBool, start: Instant) {
    while !stop.load(Ordering::Relaxed) {
        let answer = Session::open_here(to);
        let mut seen = seen.lock().unwrap();
        match answer {
            Ok(session) => *seen.answers.entry(session.name).or_default() += 1,
            Err(why) => seen.failures.push(format!("after {:?}: {why}", start.elapsed())),
        }
        drop(seen);
        std::thread::sleep(Duration::from_millis(8));
    }
}

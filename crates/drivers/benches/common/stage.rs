//! What is measured alike of every program: so many Services, whose first one changes and is asked until it has.

use super::{apply, everything, members};
use bowline_core::update::{MemberChange, Update};
use bowline_drivers::Driver as _;
use bowline_drivers::desired::Desired;
use bowline_drivers::program::Driven;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// How many Services there are.
const SERVICES: [usize; 2] = [1_000, 5_000];
/// How many members each has.
pub(crate) const MEMBERS: u8 = 10;
/// Those that serve the first Service in turn. So many that no process of an old configuration is left when its
/// member's turn comes again: it would answer as if the change were live.
pub(crate) const TURNS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What an argument asks for: another number of Services, or nothing of this program.
pub(crate) fn asked(program: &str) -> Vec<usize> {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let number = |only: &str| only.strip_prefix(program)?.strip_prefix('-')?.parse().ok();
    match only {
        Some(only) if number(&only).is_some() => number(&only).into_iter().collect(),
        Some(only) if !program.contains(&only) => Vec::new(),
        _ => SERVICES.to_vec(),
    }
}

/// A program where packages put it, or wherever it is.
pub(crate) fn program(name: &str) -> PathBuf {
    let usual = Path::new("/usr/sbin").join(name);
    if usual.exists() { usual } else { name.into() }
}

/// One run: the Services, and who serves them.
pub(crate) struct Stage {
    name: String,
    services: usize,
    turns: Vec<SocketAddr>,
    others: Vec<SocketAddr>,
}

/// What a program needs to be reloaded for every change.
pub(crate) struct Plain<R, S, L> {
    /// Its files.
    pub(crate) render: R,
    /// Starts it with them.
    pub(crate) start: S,
    /// Tells it to load them again.
    pub(crate) reload: L,
}

impl Stage {
    pub(crate) async fn new(program: &str, services: usize, version: &str) -> Self {
        let name = format!("{program}-{services}");
        println!("{name}   {services} Services with {MEMBERS} members each, {version}");
        let mut turns = Vec::new();
        for name in TURNS {
            turns.push(backend(name).await);
        }
        // They must be there: a program would be busy with looking for them.
        let mut others = Vec::new();
        for _ in 0..MEMBERS {
            others.push(backend("other").await);
        }
        Self { name, services, turns, others }
    }

    pub(crate) fn says(&self, what: &str) {
        println!("{}   {what}", self.name);
    }

    /// All Services, on this port.
    pub(crate) fn everything(&self, port: u16) -> Update {
        everything(self.services, port, self.turns[0], &self.others)
    }

    /// Another member for the first Service, and who that is.
    pub(crate) fn change(&self, round: usize) -> (Update, &'static str) {
        let at = (round + 1) % TURNS.len();
        let members: MemberChange = members("p0", &[self.turns[at]]);
        (Update { members: vec![members], ..Update::default() }, TURNS[at])
    }

    /// Begins to drive a program, until the first Service is served.
    pub(crate) async fn begin(&self, driver: &mut Driven, port: u16) {
        let begun = Instant::now();
        apply(driver, &self.everything(port)).await;
        answered_by(port, TURNS[0]).await;
        self.says(&format!("from nothing to live: {}", shown(begun.elapsed())));
    }

    /// How long each of so many changes takes by a driver until a client meets it, sorted.
    pub(crate) async fn by_driver(
        &self,
        driver: &mut Driven,
        port: u16,
        changes: usize,
    ) -> Vec<Duration> {
        let mut times = Vec::new();
        for round in 0..changes {
            let begun = Instant::now();
            let (update, by) = self.change(round);
            apply(driver, &update).await;
            answered_by(port, by).await;
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        times
    }

    /// Everything rendered and the program reloaded for each of so many changes, without a check, which would take
    /// as long again; as a template and a notifier do it. The median.
    pub(crate) async fn by_reloads<R, S, L>(
        &self,
        changes: usize,
        plain: Plain<R, S, L>,
    ) -> Duration
    where
        R: Fn(&Path, &Desired) -> BTreeMap<String, Vec<u8>>,
        S: Fn(&Path) -> Child,
        L: AsyncFn(&Path, &Child),
    {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, port) = (folder.path(), free_port().await);
        let mut desired = Desired::default();
        desired.apply(&self.everything(port));
        let mut written = BTreeMap::new();
        let begun = Instant::now();
        let size = write(folder, (plain.render)(folder, &desired), &mut written);
        let took = shown(begun.elapsed());
        self.says(&format!("render and write: {took}, {:.1} MB", size / 1e6));
        let mut process = (plain.start)(folder);
        answered_by(port, TURNS[0]).await;
        let (mut times, mut rendered) = (Vec::new(), Vec::new());
        for round in 0..changes {
            let (update, by) = self.change(round);
            let begun = Instant::now();
            desired.apply(&update);
            write(folder, (plain.render)(folder, &desired), &mut written);
            rendered.push(begun.elapsed());
            (plain.reload)(folder, &process).await;
            answered_by(port, by).await;
            times.push(begun.elapsed());
        }
        let again = shown(median(&mut rendered));
        self.says(&format!("of which render and write again: {again}"));
        signal(&process, "-TERM");
        process.wait().expect("ended");
        median(&mut times)
    }

    /// One more that the program refuses: until it is found and told, while the rest is served.
    pub(crate) async fn refused(&self, driver: &mut Driven, bad: &Update) {
        let begun = Instant::now();
        let mut report = driver.apply(bad).await.expect("taken");
        while report.waiting {
            report = driver.changed().await.expect("news");
        }
        assert_eq!(report.refused.len(), 1, "{report:?}");
        self.says(&format!("one that is refused among all: found in {}", shown(begun.elapsed())));
    }

    /// How much longer one way takes than another.
    pub(crate) fn compare(&self, what: &str, [one, other]: [(&str, Duration); 2]) {
        let times = other.1.as_secs_f64() / one.1.as_secs_f64();
        let shown = [one, other].map(|(by, time)| format!("{} {by}", shown(time)));
        self.says(&format!("{what}: {}: {times:.1} × as long", shown.join(", ")));
    }
}

/// Sends a signal to a process that this started.
pub(crate) fn signal(process: &Child, name: &str) {
    Command::new("kill").args([name, &process.id().to_string()]).status().expect("kill");
}

/// Writes the files that are not as they were; how many bytes all have.
fn write(
    folder: &Path,
    files: BTreeMap<String, Vec<u8>>,
    before: &mut BTreeMap<String, Vec<u8>>,
) -> f64 {
    for (name, bytes) in files.iter().filter(|(name, bytes)| before.get(*name) != Some(*bytes)) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    *before = files;
    before.values().map(Vec::len).sum::<usize>() as f64
}

/// Asks until the host of the first Service is answered by this one.
pub(crate) async fn answered_by(port: u16, name: &str) {
    let until = Instant::now() + Duration::from_secs(120);
    while get(port).await.ok().as_deref() != Some(name) {
        assert!(Instant::now() < until, "{name} does not answer");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

async fn get(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET / HTTP/1.1\r\nHost: s0.example\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

/// Answers every request with its name.
async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    let length = name.len();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    if stream.write_all(format!("{head}{name}").as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    at
}

pub(crate) async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Megabytes that a process has in memory.
pub(crate) fn memory(pid: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).expect("kB") / 1e3
}

pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

pub(crate) fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

//! The speaker under test as a process: this test binary once more, which reads commands and prints its status.

use bowline_speaker::bfd;
use bowline_speaker::bgp::session::{Record, State};
use bowline_speaker::bgp::shell::{
    Bfd, Distance, Options, Password, Peer, Remote, Shell, Statuses,
};
use bowline_speaker::bgp::{Config, Route, Stop};
use bowline_testing::{Machine, until};
use ipnet::IpNet;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const IS_SPEAKER: &str = "BOWLINE_TEST_IS_SPEAKER";
/// The file for a recording of the session, if one is wanted.
const RECORDING: &str = "BOWLINE_TEST_RECORDING";

/// A peer as it is passed to the process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PeerOf {
    pub(crate) session: Config,
    /// Without an address, the router at the interface.
    pub(crate) address: Option<IpAddr>,
    pub(crate) interface: Option<String>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) proven: bool,
    pub(crate) password: Option<String>,
    /// The interval of BFD in milliseconds; the detect multiplier is 3.
    pub(crate) bfd: Option<u64>,
}

#[derive(Serialize, Deserialize)]
enum Order {
    Peers(BTreeMap<String, PeerOf>),
    Change(String, Vec<(IpNet, Option<Route>)>),
    Complete,
    Drain(bool),
    Stop(Stop),
}

/// The status of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) told: (usize, usize),
    pub(crate) failure: String,
    pub(crate) flaps: u64,
    pub(crate) ignored: u64,
    /// UPDATE messages to the peer.
    pub(crate) updates: u64,
    pub(crate) not_listening: Option<String>,
    pub(crate) bfd: String,
    pub(crate) bfd_flaps: u64,
}

/// A running speaker. It is killed when it is dropped.
pub(crate) struct Speaker {
    child: Child,
    orders: ChildStdin,
    status: Arc<Mutex<BTreeMap<String, Status>>>,
}

impl Speaker {
    /// Starts one on a machine.
    pub(crate) fn start(machine: &Machine) -> Self {
        Self::recorded(machine, None)
    }

    /// The same, with a recording of its session.
    pub(crate) fn recorded(machine: &Machine, recording: Option<&Path>) -> Self {
        let this = std::env::current_exe().expect("the path of this test");
        let mut child = machine.on(|| {
            Command::new(this)
                .args(["--exact", "process::speaker", "--nocapture"])
                .env(IS_SPEAKER, "yes")
                .envs(recording.map(|path| (RECORDING, path)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("start the speaker")
        });
        let orders = child.stdin.take().expect("a pipe");
        let status = Arc::<Mutex<BTreeMap<String, Status>>>::default();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let shared = status.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| line.starts_with('{')) {
                *shared.lock().unwrap() = serde_json::from_str(&line).expect("a status");
            }
        });
        Self { child, orders, status }
    }

    fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).expect("JSON");
        writeln!(self.orders, "{line}").expect("the speaker reads");
    }

    /// These are its peers.
    pub(crate) fn peers(&mut self, peers: impl IntoIterator<Item = (&'static str, PeerOf)>) {
        let peers = peers.into_iter().map(|(name, peer)| (name.to_owned(), peer));
        self.order(&Order::Peers(peers.collect()));
    }

    pub(crate) fn change(&mut self, peer: &str, changes: Vec<(IpNet, Option<Route>)>) {
        self.order(&Order::Change(peer.to_owned(), changes));
    }

    pub(crate) fn announce(&mut self, prefix: &str, route: Route) {
        self.change("router", vec![(prefix.parse().expect("a prefix"), Some(route))]);
    }

    pub(crate) fn withdraw(&mut self, prefix: &str) {
        self.change("router", vec![(prefix.parse().expect("a prefix"), None)]);
    }

    pub(crate) fn complete(&mut self) {
        self.order(&Order::Complete);
    }

    pub(crate) fn drain(&mut self, draining: bool) {
        self.order(&Order::Drain(draining));
    }

    /// The status of the peer `router`.
    pub(crate) fn status(&self) -> Option<Status> {
        self.status_of("router")
    }

    /// The status of a peer.
    pub(crate) fn status_of(&self, peer: &str) -> Option<Status> {
        self.status.lock().unwrap().get(peer).cloned()
    }

    /// Waits until the status of the peer is as wanted.
    pub(crate) fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        until(what, || match self.status() {
            Some(status) if wanted(&status) => Ok(status),
            other => Err(format!("{other:?}")),
        })
    }

    /// Stops it from running, so that it falls silent and its connections stay.
    pub(crate) fn freeze(&self) {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGSTOP).expect("stop the speaker");
    }

    pub(crate) fn until_established(&self) -> Status {
        self.until("the session is established", |it| it.state == State::Established)
    }

    /// Kills it as the kernel does when memory is short.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill the speaker");
        self.child.wait().expect("wait for the speaker");
    }

    /// Ends it, and waits until it has ended.
    pub(crate) fn stop(mut self, stop: Stop) {
        self.order(&Order::Stop(stop));
        until("the speaker ends", || match self.child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Its resident memory in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let file = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(file).expect("the speaker runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes what happens to a session to the file of the recording.
fn write_record(_: &str, record: Record) {
    static FILE: OnceLock<Mutex<File>> = OnceLock::new();
    let path = || std::env::var_os(RECORDING).expect("a recording is wanted");
    let file = FILE.get_or_init(|| Mutex::new(File::create(path()).expect("a file")));
    let line = serde_json::to_string(&record).expect("JSON");
    writeln!(file.lock().unwrap(), "{line}").expect("write the recording");
}

fn clock() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock").into()
}

/// Whether this process is to be the speaker.
pub(crate) fn is_speaker() -> bool {
    std::env::var_os(IS_SPEAKER).is_some()
}

/// Is the speaker until it is told to stop.
pub(crate) fn serve() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run());
}

/// The process. Without its variable in the environment it has nothing to do.
#[test]
fn speaker() {
    if is_speaker() {
        serve();
    }
}

async fn run() {
    let (orders, mut received) = tokio::sync::mpsc::unbounded_channel::<Order>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = orders.send(serde_json::from_str(&line).expect("an order"));
        }
        // The test has ended.
        std::process::exit(1);
    });
    let seed = u64::from(std::process::id());
    let mut shell = Shell::new(Options { clock, seed, listen_port: 179 });
    if std::env::var_os(RECORDING).is_some() {
        shell.record(write_record);
    }
    let mut status = shell.status();
    loop {
        tokio::select! {
            changed = status.changed() => {
                changed.expect("the shell runs");
                print(&status.borrow_and_update().clone());
            }
            order = received.recv() => match order.expect("the test runs") {
                Order::Peers(peers) => {
                    shell.set_peers(peers.into_iter().map(|(name, it)| (name, peer(it))).collect());
                }
                Order::Change(peer, changes) => assert!(shell.change(&peer, changes)),
                Order::Complete => shell.complete(),
                Order::Drain(draining) => shell.drain(draining),
                Order::Stop(stop) => return shell.stop(stop).await,
            },
        }
    }
}

fn peer(of: PeerOf) -> Peer {
    let remote = match (of.address, of.interface) {
        (Some(IpAddr::V6(address)), Some(interface)) => Remote::LinkLocal(address, interface),
        (Some(address), _) => Remote::Address(address),
        (None, interface) => Remote::Interface(interface.expect("an interface")),
    };
    Peer {
        session: of.session,
        remote,
        port: of.port,
        source: of.source,
        vrf: None,
        distance: if of.proven { Distance::LinkProven } else { Distance::Link },
        password: of.password.map(|it| Password::new(it).expect("a password")),
        bfd: of.bfd.map(|milliseconds| {
            let interval = Duration::from_millis(milliseconds);
            let parameters = bfd::Parameters::new(interval, interval, 3, false).expect("allowed");
            Bfd { parameters, minimum_ttl: NonZeroU8::MAX }
        }),
    }
}

fn print(statuses: &Statuses) {
    let of = statuses.iter().map(|(name, it)| {
        let session = &it.session;
        let status = Status {
            state: session.state,
            told: (session.told.v4, session.told.v6),
            failure: session.last_failure.clone().unwrap_or_default(),
            flaps: session.counters.flaps,
            ignored: session.counters.routes_ignored,
            updates: session.counters.updates_sent,
            not_listening: it.not_listening.clone(),
            bfd: match &it.bfd {
                None => String::new(),
                Some(Ok(state)) => format!("{state:?}"),
                Some(Err(why)) => why.clone(),
            },
            bfd_flaps: it.bfd_flaps,
        };
        (name, status)
    });
    let of: BTreeMap<_, _> = of.collect();
    println!("{}", serde_json::to_string(&of).expect("JSON"));
}

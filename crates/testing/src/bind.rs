//! A real DNS server for tests of names: BIND 9 with the zone `example.test` on a free loopback port,
//! updated by `nsupdate` as external-dns does. It answers for its own zones only and never asks another
//! server.

use crate::janitor::{Scratch, Service, on_path};
use crate::machine::Machine;
use crate::wait::until;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGES: &str = "bind9 bind9-dnsutils";

/// The negative TTL is short, because tests wait for it.
const ZONE: &str = "\
$TTL 60
@ SOA ns admin 1 60 60 60 1
@ NS ns
ns A 127.0.0.1
";

/// A running BIND. It is stopped by its pid when it is dropped.
pub struct Bind {
    scratch: Scratch,
    program: PathBuf,
    address: SocketAddr,
    machine: Option<Machine>,
    process: Option<Service>,
}

impl Bind {
    /// Starts a BIND. It also has the zone `broken.test`, which it cannot load, so every name in it is
    /// SERVFAIL. Names of other domains are REFUSED.
    pub fn new() -> Self {
        Self::start_at(free_port(), None)
    }

    /// The same on a machine of its own, at this address of it.
    pub fn on(machine: &Machine, address: IpAddr) -> Self {
        Self::start_at(SocketAddr::new(address, 53), Some(machine.clone()))
    }

    fn start_at(address: SocketAddr, machine: Option<Machine>) -> Self {
        let scratch = Scratch::new();
        // AppArmor may confine /usr/sbin/named and forbid the test's folder. A copy is not confined.
        let program = scratch.path().join("named");
        // A child process copies the file. If this process did, a child that another test starts
        // meanwhile could keep the copy open for writing, and the copy could not be executed.
        let copied = Command::new("cp").arg(program_at("named")).arg(&program).status();
        assert!(copied.expect("run cp").success(), "copy named");
        program_at("nsupdate");
        scratch.write("example.test.db", ZONE);
        scratch.write("named.conf", &configuration(scratch.path(), address));
        let mut bind = Self { scratch, program, address, machine, process: None };
        bind.start();
        bind
    }

    /// Its address for UDP and TCP, which a restart does not change.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Restarts it with all its records, and waits until it answers.
    pub fn start(&mut self) {
        self.stop();
        let file = self.scratch.path().join("named.conf").display().to_string();
        let args = ["-f", "-g", "-n", "1", "-c", &file].map(str::to_owned);
        let mut process = self.there(|| self.scratch.spawn("named", &self.program, &args));
        until("named answers", || {
            process.assert_alive();
            let log = process.log();
            let ready = log.lines().any(|line| line.ends_with(" running"));
            if ready { Ok(()) } else { Err(log) }
        });
        self.process = Some(process);
    }

    /// Stops it. It answers nothing until it is started again.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end();
        }
    }

    /// Sets exactly these records of the type for a name in `example.test`. A CNAME replaces all other
    /// records, and other records replace a CNAME.
    pub fn set(&self, name: &str, kind: &str, ttl: u32, values: &[&str]) {
        let old = if kind == "CNAME" { "" } else { kind };
        let mut changes = vec![format!("update delete {name}. {old}")];
        changes.push(format!("update delete {name}. CNAME"));
        changes
            .extend(values.iter().map(|value| format!("update add {name}. {ttl} {kind} {value}")));
        self.update(&changes);
    }

    /// Removes all records of the type from a name.
    pub fn remove(&self, name: &str, kind: &str) {
        self.update(&[format!("update delete {name}. {kind}")]);
    }

    /// Runs something on its machine.
    fn there<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        match &self.machine {
            None => run(),
            Some(machine) => machine.on(run),
        }
    }

    /// Runs several lines of `nsupdate` as one change.
    fn update(&self, changes: &[String]) {
        let mut command = Command::new(program_at("nsupdate"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.there(|| command.spawn()).expect("start nsupdate");
        let (ip, port) = (self.address.ip(), self.address.port());
        let changes = changes.join("\n");
        let script =
            format!("server {ip} {port}\nzone example.test\ncheck-names no\n{changes}\nsend\n");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(script.as_bytes()).expect("write to nsupdate");
        drop(input);
        let output = child.wait_with_output().expect("wait for nsupdate");
        assert!(output.status.success(), "{script}{output:?}");
    }
}

impl Default for Bind {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The programs of administrators are not on every `PATH`.
fn program_at(name: &str) -> PathBuf {
    let elsewhere = || Some(Path::new("/usr/sbin").join(name)).filter(|path| path.is_file());
    on_path(name).or_else(elsewhere).unwrap_or_else(|| {
        panic!("{name} is missing; install it with\n  sudo apt-get install -y {PACKAGES}")
    })
}

/// A port that is free for UDP and for TCP.
fn free_port() -> SocketAddr {
    until("a port is free for UDP and TCP", || {
        let tcp = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = tcp.local_addr().map_err(|error| error.to_string())?;
        UdpSocket::bind(address).map(|_| address).map_err(|error| error.to_string())
    })
}

fn configuration(dir: &Path, address: SocketAddr) -> String {
    let (dir, ip, port) = (dir.display(), address.ip(), address.port());
    format!(
        r#"options {{
  directory "{dir}";
  managed-keys-directory "{dir}";
  session-keyfile "{dir}/session.key";
  pid-file none;
  listen-on port {port} {{ {ip}; }};
  listen-on-v6 {{ none; }};
  recursion no;
  dnssec-validation no;
  notify no;
  check-names primary ignore;
}};
controls {{ }};
zone "example.test" {{ type primary; file "example.test.db"; allow-update {{ {ip}; }}; }};
zone "broken.test" {{ type primary; file "missing.db"; }};
"#
    )
}

//! FRR as the router of a test: zebra, bfdd and bgpd on one machine, with their files in the test's folder. Routes that
//! bgpd learns are in the machine's kernel.

use crate::{Machine, Scratch, Service, until};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running FRR.
pub struct Frr {
    scratch: Scratch,
    services: Vec<Service>,
    machine: Machine,
}

impl Frr {
    /// Starts the daemons with these configurations of bfdd and bgpd. bgpd listens before it has read its whole
    /// configuration, and each further line would reset a session: so this waits until it knows a line with `last`.
    pub fn start(machine: &Machine, bfdd: &str, bgpd: &[String], last: &str) -> Self {
        let mut frr =
            Self { scratch: Scratch::new(), services: Vec::new(), machine: machine.clone() };
        frr.scratch.write("zebra.conf", "no zebra nexthop kernel enable\n");
        frr.scratch.write("bfdd.conf", bfdd);
        frr.scratch.write("bgpd.conf", &(bgpd.join("\n") + "\n"));
        // The daemons are of a user of their own.
        let owned = Command::new("chown").args(["-R", "frr:frr"]).arg(frr.scratch.path()).status();
        assert!(
            owned.is_ok_and(|it| it.success()),
            "FRR needs root, and its user: sudo apt-get install -y frr"
        );
        for daemon in ["zebra", "bfdd", "bgpd"] {
            frr.daemon(daemon);
        }
        until("bgpd has read its configuration", || {
            let running = frr.show("show running-config");
            if running.contains(last) { Ok(()) } else { Err(running) }
        });
        frr
    }

    fn dir(&self) -> String {
        self.scratch.path().display().to_string()
    }

    fn daemon(&mut self, name: &str) {
        let dir = self.dir();
        let file = |it: &str| format!("{dir}/{it}");
        let (config, pid, zserv) =
            (file(&format!("{name}.conf")), file(&format!("{name}.of-frr")), file("zserv.api"));
        let mut args = vec!["-f", &config, "-i", &pid, "-z", &zserv, "--vty_socket", &dir];
        args.extend(["-P", "0", "--log", "stdout"]);
        // Its control socket would be at one place for all tests.
        let control = file("bfdd.sock");
        if name == "bfdd" {
            args.extend(["--bfdctl", &control]);
        }
        let args: Vec<_> = args.into_iter().map(str::to_owned).collect();
        let daemon = program(name);
        let mut service = self.machine.on(|| self.scratch.spawn(name, &daemon, &args));
        let socket = self.socket(name);
        until(&format!("{name} answers"), || {
            service.assert_alive();
            UnixStream::connect(&socket).map(|_| ()).map_err(|error| error.to_string())
        });
        self.services.push(service);
    }

    /// Where a daemon takes commands.
    fn socket(&self, daemon: &str) -> PathBuf {
        self.scratch.path().join(format!("{daemon}.vty"))
    }

    /// A connection to a daemon, for many commands or for times of milliseconds.
    pub fn vty(&self, daemon: &str) -> Vty {
        let mut vty = Vty(UnixStream::connect(self.socket(daemon)).expect("connect to FRR"));
        vty.ask("enable");
        vty
    }

    /// What the daemons have logged.
    pub fn log(&self) -> String {
        self.services.iter().map(Service::log).collect()
    }

    /// What a command prints.
    pub fn show(&self, command: &str) -> String {
        let output = Command::new(program("vtysh"))
            .args(["--vty_socket", &self.dir(), "-c", command])
            .output()
            .expect("run vtysh");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A connection to a daemon, as vtysh has one for each command.
pub struct Vty(UnixStream);

impl Vty {
    /// What a command prints. Three zeros and the result follow it.
    pub fn ask(&mut self, command: &str) -> String {
        self.0.write_all(command.as_bytes()).and_then(|()| self.0.write_all(&[0])).expect("ask");
        let (mut answer, mut buffer) = (Vec::new(), [0; 65_536]);
        while !matches!(answer.as_slice(), [.., 0, 0, 0, _]) {
            let length = self.0.read(&mut buffer).expect("an answer");
            assert!(length > 0, "FRR has ended");
            answer.extend_from_slice(&buffer[..length]);
        }
        answer.truncate(answer.len() - 4);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn program(name: &str) -> PathBuf {
    let folders = ["/usr/lib/frr", "/usr/sbin", "/usr/bin"].map(Path::new);
    let mut found = folders.iter().map(|folder| folder.join(name)).filter(|it| it.is_file());
    found.next().unwrap_or_else(|| {
        panic!("{name} is not installed; install it with\n  sudo apt-get install -y frr")
    })
}

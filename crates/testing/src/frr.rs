//! FRR as the router of a test: zebra, bfdd and bgpd on one machine, with their files in the test's folder. Routes that
//! bgpd learns are in the machine's kernel.

use crate::{Machine, Scratch, Service, until};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running FRR.
pub struct Frr {
    scratch: Scratch,
    services: Vec<Service>,
    machine: Machine,
}

impl Frr {
    /// Starts the daemons with these configurations of bfdd and bgpd. The last line of bgpd's must be `exit`.
    pub fn start(machine: &Machine, bfdd: &str, bgpd: &str) -> Self {
        let mut frr =
            Self { scratch: Scratch::new(), services: Vec::new(), machine: machine.clone() };
        frr.scratch.write("zebra.conf", "no zebra nexthop kernel enable\n");
        frr.scratch.write("bfdd.conf", bfdd);
        frr.scratch.write("bgpd.conf", bgpd);
        // The daemons are of a user of their own.
        let owned = Command::new("chown").args(["-R", "frr:frr"]).arg(frr.scratch.path()).status();
        assert!(
            owned.is_ok_and(|it| it.success()),
            "FRR needs root, and its user: sudo apt-get install -y frr"
        );
        for daemon in ["zebra", "bfdd", "bgpd"] {
            frr.daemon(daemon);
        }
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
        let socket = self.scratch.path().join(format!("{name}.vty"));
        until(&format!("{name} answers"), || {
            service.assert_alive();
            match std::os::unix::net::UnixStream::connect(&socket) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        });
        self.services.push(service);
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

fn program(name: &str) -> PathBuf {
    let folders = ["/usr/lib/frr", "/usr/sbin", "/usr/bin"].map(Path::new);
    let mut found = folders.iter().map(|folder| folder.join(name)).filter(|it| it.is_file());
    found.next().unwrap_or_else(|| {
        panic!("{name} is not installed; install it with\n  sudo apt-get install -y frr")
    })
}

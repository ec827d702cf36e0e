//! BIRD as the router of a test: a process of its own with a socket in the test's folder.

use bowline_testing::{Scratch, Service, eventually};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running BIRD.
pub(crate) struct Bird {
    _process: Service,
    control: PathBuf,
}

impl Bird {
    /// A router at an address that expects a node at another one.
    pub(crate) fn start(scratch: &Scratch, at: IpAddr, node: IpAddr) -> Self {
        let bird = find("bird");
        let control = scratch.path().join("bird.ctl");
        let text = format!(
            "router id {at};\n\
             log stderr all;\n\
             protocol device {{}}\n\
             protocol bgp node {{\n  \
               local {at} as 64513;\n  neighbor {node} as 64512;\n  multihop 2;\n  passive on;\n  \
               strict bind on;\n  graceful restart on;\n  \
               ipv4 {{ import all; export none; }};\n  ipv6 {{ import all; export none; }};\n\
             }}\n"
        );
        let config = scratch.write("bird.conf", &text);
        let args =
            ["-f", "-c", &config.display().to_string(), "-s", &control.display().to_string()]
                .map(str::to_owned);
        let process = scratch.spawn("bird", &bird, &args);
        Self { _process: process, control }
    }

    fn ask(&self, command: &str) -> Result<String, String> {
        let socket = self.control.display().to_string();
        let output = Command::new(find("birdc"))
            .args(["-r", "-s", &socket])
            .args(command.split(' '))
            .output()
            .map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the router has these prefixes of the node and no other.
    pub(crate) async fn has(&self, prefixes: &[String]) {
        let mut wanted = prefixes.to_vec();
        wanted.sort();
        eventually(&format!("the router has {wanted:?}"), || async {
            let said = self.ask("show route protocol node")?;
            let lines = said.lines().filter_map(|line| line.split_whitespace().next());
            let mut found: Vec<_> =
                lines.filter(|it| it.contains('/')).map(str::to_owned).collect();
            found.sort();
            if found == wanted { Ok(()) } else { Err(said) }
        })
        .await;
    }

    /// Everything about a prefix.
    pub(crate) fn route(&self, prefix: &str) -> String {
        self.ask(&format!("show route all for {prefix}")).expect("an answer of BIRD")
    }
}

/// Where a program of BIRD is.
pub(crate) fn find(program: &str) -> PathBuf {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(Path::new);
    let mut found = folders.iter().map(|folder| folder.join(program)).filter(|it| it.is_file());
    found.next().unwrap_or_else(|| {
        panic!("{program} is not installed; install it with\n  sudo apt-get install -y bird2")
    })
}

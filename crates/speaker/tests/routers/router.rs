//! What a test asks of a router, whichever it is.

use crate::network::{NODE, NODE_V6, Network, ROUTER, ROUTER_V6};
use crate::process::PeerOf;
use bowline_speaker::bgp::rib_out::NextHops;
use bowline_speaker::bgp::session::PeerAsn;
use bowline_speaker::bgp::{Config, PerFamily};
use bowline_testing::until;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How both sides are configured.
#[derive(Clone)]
pub(crate) struct Setup {
    /// The session runs over IPv6.
    pub v6: bool,
    /// Both are in one AS.
    pub(crate) internal: bool,
    pub(crate) password: Option<&'static str>,
    /// TTL security on both sides.
    pub(crate) proven: bool,
    pub(crate) graceful_restart: bool,
    pub(crate) bfd: bool,
    /// The router has a BFD session with this address of the node, too.
    pub(crate) bfd_beside: Option<&'static str>,
    /// BIRD's: what BFD tells begins a graceful restart.
    pub(crate) graceful_bfd: bool,
    pub(crate) hold_time: u16,
    /// The router waits for the speaker to connect.
    pub(crate) passive: bool,
    /// The speaker waits for the router to connect. Otherwise nobody can connect to it.
    pub(crate) listen: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            v6: false,
            internal: false,
            password: None,
            proven: false,
            graceful_restart: false,
            bfd: false,
            bfd_beside: None,
            graceful_bfd: false,
            hold_time: 9,
            passive: false,
            listen: false,
        }
    }
}

pub(crate) const ROUTER_ASN: u32 = 65_002;

impl Setup {
    pub(crate) fn asn(&self) -> u32 {
        if self.internal { ROUTER_ASN } else { 65_001 }
    }

    /// The address of the node that the session uses.
    pub(crate) fn node(&self) -> &'static str {
        if self.v6 { NODE_V6 } else { NODE }
    }

    /// The address of the router that the session uses.
    pub(crate) fn router(&self) -> &'static str {
        if self.v6 { ROUTER_V6 } else { ROUTER }
    }

    /// The speaker's side.
    pub(crate) fn peer(&self) -> PeerOf {
        PeerOf {
            session: Config {
                asn: self.asn(),
                router_id: Ipv4Addr::new(10, 0, 0, 1),
                peer_asn: PeerAsn::Is(ROUTER_ASN),
                families: PerFamily::BOTH,
                hold_time: self.hold_time,
                keepalive_time: None,
                connect_time: Duration::from_secs(1),
                connects: !self.listen,
                accepts: self.listen,
                graceful_restart: self.graceful_restart.then_some(60),
                next_hops: NextHops::default(),
            },
            address: Some(self.router().parse::<IpAddr>().expect("an address")),
            interface: None,
            source: None,
            port: 179,
            proven: self.proven,
            password: self.password.map(str::to_owned),
            bfd: self.bfd.then_some(100),
        }
    }
}

/// A route in the table of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) next_hop: String,
    pub(crate) path: Vec<u32>,
    /// As the router writes them, in its order.
    pub(crate) communities: Vec<String>,
    pub(crate) local_pref: Option<u32>,
    pub(crate) med: Option<u32>,
}

/// A running router with one neighbour: the node.
pub(crate) trait Router: Sized {
    fn start(network: &Network, setup: &Setup) -> Self;

    /// What the table has for a prefix.
    fn route(&self, prefix: &str) -> Option<Seen>;

    /// How many routes of the node are in the table: IPv4 and IPv6.
    fn count(&self) -> (usize, usize);

    /// Makes it ask the node for all its routes again. Returns `false` if it never does so.
    fn refresh(&self) -> bool;

    /// Ends the session, and makes it anew.
    fn reset(&self);

    /// Whether the session with the node is established.
    fn is_up(&self) -> bool;

    /// Everything that helps to understand a failure.
    fn log(&self) -> String;

    /// Waits for a route.
    fn until(&self, prefix: &str, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
        until(&format!("{prefix} {what}"), || match self.route(prefix) {
            Some(seen) if wanted(&seen) => Ok(seen),
            other => Err(format!("{other:?}\n{}", self.log())),
        })
    }

    fn until_there(&self, prefix: &str) -> Seen {
        self.until(prefix, "is in the table", |_| true)
    }

    fn until_gone(&self, prefix: &str) {
        until(&format!("{prefix} is not in the table"), || match self.route(prefix) {
            None => Ok(()),
            Some(seen) => Err(format!("{seen:?}\n{}", self.log())),
        });
    }
}

/// Where a program is; the test fails with the command that installs it.
pub(crate) fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/lib/frr".into()]);
    let found = dirs.map(|dir| dir.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is missing; install it with\n  sudo apt-get install -y {package}")
    })
}

/// The output of a program, also if it fails.
pub(crate) fn output(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("run {}: {e}", program.display()));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

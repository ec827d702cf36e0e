//! BIRD 2.

use crate::network::{Network, ROUTER};
use crate::router::{ROUTER_ASN, Router, Seen, Setup, output, program};
use bowline_testing::{Machine, Scratch, Service, until};

const PACKAGE: &str = "bird2";

pub(crate) struct Bird {
    scratch: Scratch,
    service: Service,
}

impl Bird {
    /// Starts it with this configuration.
    pub(crate) fn with(machine: &Machine, config: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write("bird.conf", config).display().to_string();
        let socket = scratch.path().join("bird.ctl").display().to_string();
        let args = ["-f", "-c", &file, "-s", &socket].map(str::to_owned);
        let bird = program("bird", PACKAGE);
        let mut service = machine.on(|| scratch.spawn("bird", &bird, &args));
        until("BIRD answers", || {
            service.assert_alive();
            match std::os::unix::net::UnixStream::connect(&socket) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        });
        Self { scratch, service }
    }

    /// What a command prints.
    pub(crate) fn show(&self, command: &str) -> String {
        let socket = self.scratch.path().join("bird.ctl").display().to_string();
        output(&program("birdc", PACKAGE), &["-s", &socket, command])
    }
}

impl Router for Bird {
    fn start(network: &Network, setup: &Setup) -> Self {
        let on = |on: bool| if on { "on" } else { "off" };
        let (node, router) = (setup.node(), setup.router());
        let password = setup.password.map(|it| format!("password \"{it}\";")).unwrap_or_default();
        let restart = if setup.graceful_restart { "on" } else { "off" };
        let beside = |it| format!("neighbor {it} dev \"eth0\" local {router};");
        let beside = setup.bfd_beside.map(beside).unwrap_or_default();
        let single = if setup.internal { "direct;" } else { "" };
        let config = format!(
            "log stderr all;
             router id {ROUTER};
             protocol device {{ scan time 1; }}
             protocol bfd {{ interface \"eth0\" {{ interval 100 ms; multiplier 3; }}; {beside} }}
             protocol bgp node {{
               local {router} as {ROUTER_ASN};
               neighbor {node} as {};
               hold time {};
               connect retry time 1;
               connect delay time 1;
               error wait time 1, 2;
               passive {};
               ttl security {};
               bfd {};
               graceful restart {restart};
               {single}
               {password}
               ipv4 {{ import all; export none; }};
               ipv6 {{ import all; export none; }};
             }}",
            setup.asn(),
            setup.hold_time,
            on(setup.passive),
            on(setup.proven),
            if setup.graceful_bfd { "graceful" } else { on(setup.bfd) },
        );
        Self::with(&network.router, &config)
    }

    fn route(&self, prefix: &str) -> Option<Seen> {
        let text = self.show(&format!("show route all for {prefix}"));
        text.lines().find(|line| line.split_whitespace().next() == Some(prefix))?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
            line.strip_prefix(':').map(|it| it.trim().to_owned())
        };
        let list = |name: &str| value(name).unwrap_or_default();
        let standard = list("BGP.community");
        let large = list("BGP.large_community");
        let standard =
            standard.split_whitespace().map(|it| it.trim_matches(['(', ')']).replace(',', ":"));
        let large = large
            .split(") (")
            .filter(|it| !it.is_empty())
            .map(|it| format!("large:{}", it.trim_matches(['(', ')']).replace(", ", ":")));
        Some(Seen {
            // Without a global address there is `::` in its place, and the link-local one follows.
            next_hop: list("BGP.next_hop")
                .split(' ')
                .find(|it| *it != "::")
                .unwrap_or("")
                .to_owned(),
            path: list("BGP.as_path").split_whitespace().filter_map(|it| it.parse().ok()).collect(),
            communities: standard.chain(large).collect(),
            local_pref: value("BGP.local_pref").and_then(|it| it.parse().ok()),
            med: value("BGP.med").and_then(|it| it.parse().ok()),
        })
    }

    fn count(&self) -> (usize, usize) {
        let of = |table: &str| {
            let text = self.show(&format!("show route table {table} count"));
            let line = text.lines().find(|line| line.contains(" of "));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|it| it.parse().ok()).unwrap_or(0)
        };
        (of("master4"), of("master6"))
    }

    fn refresh(&self) -> bool {
        self.show("reload in node");
        true
    }

    fn reset(&self) {
        self.show("restart node");
    }

    fn is_up(&self) -> bool {
        self.show("show protocols all node").contains("BGP state:          Established")
    }

    fn log(&self) -> String {
        format!("{}\n{}", self.service.log(), self.show("show protocols all node"))
    }
}

//! `bowline agent`: carries the traffic of one load balancer with the built-in proxy, HAProxy or nginx; or fills
//! templates, for a load balancer of any kind. It reads the flags and starts the role in `bowline_runtime`.

use super::config::ConfigFlag;
use super::connect::{Connect, OldNamespace};
use super::haproxy::HaproxyFlags;
use super::members::MembersFlag;
use super::nginx::NginxFlags;
use super::program::ProgramFlags;
use super::proxies::Proxies;
use super::proxy::ProxyFlags;
use super::role::{self, AdminFlag, GraceFlag};
use super::template::TemplateFlags;
use super::tmpfs;
use super::version;
use anyhow::Context as _;
use bowline_core::member_rules::MemberRules;
use bowline_core::objects;
use bowline_drivers::local_addresses::Elsewhere;
use bowline_drivers::template::Templates;
use bowline_runtime::agent;
use bowline_runtime::roles::{AgentOptions, RoleError};
use bowline_runtime::templates;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;

/// Carry the traffic of one load balancer on this machine.
///
/// Follows the Plans of the load balancer and the EndpointSlices, and keeps a proxy in step: the built-in
/// one, HAProxy or nginx. While the API is away, the agent serves what it knows; with --state also after a
/// restart.
///
/// With --template and without --load-balancer it fills templates with all LoadBalancer and NodePort
/// Services, of any class, for the program that reads the files.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline agent --load-balancer edge
  bowline agent --load-balancer edge --address 192.0.2.10 --access-log
  bowline agent --load-balancer edge --state /var/lib/bowline/edge
  bowline agent --config /etc/bowline/edge.yaml
  bowline agent --load-balancer edge --driver haproxy --exec
  bowline agent --load-balancer edge --driver nginx --exec
  bowline agent --template haproxy.cfg.tmpl --output /etc/haproxy/haproxy.cfg \
    --check 'haproxy -c -f {}' --notify pidfile:SIGUSR2:/run/haproxy.pid")]
pub(super) struct Agent {
    /// The LoadBalancer that this agent serves
    #[arg(long, value_name = "NAME", required_unless_present = "templates")]
    load_balancer: Option<String>,

    /// What carries the traffic
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t = Carrier::Builtin)]
    #[arg(conflicts_with = "templates")]
    driver: Carrier,

    /// Address to report for a load balancer without addresses of its own; may be repeated
    #[arg(long = "address", value_name = "IP", requires = "load_balancer")]
    addresses: Vec<IpAddr>,

    /// Listen at this address of the machine instead of those of the load balancer, as in a Pod behind a
    /// Service; one of each family, separated by commas or repeated
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    #[arg(requires = "load_balancer", conflicts_with = "templates")]
    listen: Vec<IpAddr>,

    #[command(flatten)]
    members: MembersFlag,

    /// Send traffic to members on loopback, too. Only for a machine that runs everything, as with `bowline
    /// up`: in a cluster it would let every tenant reach programs that listen on loopback
    #[arg(long, help_heading = "Members")]
    allow_loopback_members: bool,

    /// Keep the served state in this folder, to serve it after a restart while the API is away. The folder
    /// holds private keys, is made readable for its owner only, and belongs to one agent
    #[arg(long, value_name = "DIR", requires = "load_balancer", conflicts_with = "once")]
    #[arg(help_heading = "Process")]
    state: Option<PathBuf>,

    /// Say in the socket in this folder what is open, to the speaker of this node
    #[arg(long, value_name = "DIR", default_value = "/run/bowline", requires = "load_balancer")]
    #[arg(help_heading = "Process")]
    sockets: PathBuf,

    /// The node on which it runs, for its report: `bowline doctor` sees whether its speaker hears it
    /// [default: $NODE_NAME]
    #[arg(long, value_name = "NAME", env = "NODE_NAME", help_heading = "Process")]
    node_name: Option<String>,

    #[command(flatten)]
    grace: GraceFlag,

    #[command(flatten)]
    admin: AdminFlag,

    #[command(flatten)]
    _config: ConfigFlag,

    #[command(flatten)]
    proxy: ProxyFlags,

    #[command(flatten)]
    program: ProgramFlags,

    #[command(flatten)]
    haproxy: HaproxyFlags,

    #[command(flatten)]
    nginx: NginxFlags,

    #[command(flatten)]
    template: TemplateFlags,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    old: OldNamespace,
}

/// What carries the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Carrier {
    /// The proxy in this program
    Builtin,
    /// HAProxy 2.6 or newer
    Haproxy,
    /// nginx 1.20 or newer
    Nginx,
}

impl From<Carrier> for objects::Carrier {
    fn from(carrier: Carrier) -> Self {
        match carrier {
            Carrier::Builtin => Self::Builtin,
            Carrier::Haproxy => Self::Haproxy,
            Carrier::Nginx => Self::Nginx,
        }
    }
}

/// A running agent, with any driver.
type Running = Pin<Box<dyn Future<Output = Result<(), RoleError>>>>;

impl Agent {
    /// The member rules of an agent with this admin endpoint.
    fn rules(&self, admin: Option<SocketAddr>) -> MemberRules {
        let loopback = self.allow_loopback_members;
        MemberRules { loopback, ..self.members.rules(admin.as_slice()) }
    }

    pub(super) fn run(self) -> anyhow::Result<()> {
        if self.template.are_given() {
            return self.fill();
        }
        // The parser requires one of the two.
        let admin = self.admin.address();
        let members = MemberRules { here: self.listen.clone(), ..self.rules(Some(admin)) };
        let load_balancer = self.load_balancer.context("--load-balancer is missing")?;
        role::run(Some(admin), async |context| {
            let (client, cluster) = self.connect.client_and_marks().await?;
            let options = AgentOptions {
                namespace: self.old.or(self.connect.system),
                addresses: self.addresses,
                version: version::BUILD.to_owned(),
                grace: self.grace.time(),
                state_ends_with_pod: self.state.as_deref().is_some_and(tmpfs::ends_with_pod),
                state: self.state,
                cluster: Some(cluster),
                sockets: Some(self.sockets),
                node: self.node_name.filter(|name| !name.is_empty()),
                members,
                carrier: Some(self.driver.into()),
                ..AgentOptions::new(load_balancer.clone())
            };
            let running: Running = match self.driver {
                Carrier::Builtin => {
                    let state = options.state.as_deref();
                    let proxies = Proxies::new(self.proxy, &context.metrics, state)?;
                    let driver = proxies.driver(&load_balancer);
                    let driver = Elsewhere::new(driver, self.listen).except(admin);
                    Box::pin(agent::run(client, options, driver, context))
                }
                Carrier::Haproxy => {
                    let log = self.proxy.wants_access_log();
                    let driver = self.haproxy.driver(&self.program, log, &context.metrics).await?;
                    let driver = Elsewhere::new(driver, self.listen).except(admin);
                    Box::pin(agent::run(client, options, driver, context))
                }
                Carrier::Nginx => {
                    let log = self.proxy.wants_access_log();
                    let driver = self.nginx.driver(&self.program, log, &context.metrics).await?;
                    let driver = Elsewhere::new(driver, self.listen).except(admin);
                    Box::pin(agent::run(client, options, driver, context))
                }
            };
            Ok(running)
        })
    }

    /// Fills templates: for one load balancer, or for all exposed Services.
    fn fill(self) -> anyhow::Result<()> {
        let admin = match self.template.runs_once() {
            true => self.admin.given(),
            false => Some(self.admin.address()),
        };
        let rules = self.rules(admin);
        let (options, publisher, certificates) =
            self.template.read(self.grace.time(), rules.clone())?;
        let Some(load_balancer) = self.load_balancer else {
            return role::run(admin, async |context| {
                let client = self.connect.client().await?;
                Ok(templates::run(client, options, publisher, context))
            });
        };
        role::run(admin, async |context| {
            let (client, cluster) = self.connect.client_and_marks().await?;
            let driver = Templates::new(publisher, &options.domain, options.settle)
                .with_certificates(certificates);
            let once = options.once;
            let options = AgentOptions {
                namespace: self.old.or(self.connect.system),
                addresses: self.addresses,
                version: version::BUILD.to_owned(),
                grace: options.grace,
                state_ends_with_pod: self.state.as_deref().is_some_and(tmpfs::ends_with_pod),
                state: self.state,
                cluster: Some(cluster),
                members: rules,
                carrier: Some(objects::Carrier::Template),
                ..AgentOptions::new(load_balancer)
            };
            let running: Running = match once {
                Some(patience) => Box::pin(agent::once(client, options, driver, context, patience)),
                None => Box::pin(agent::run(client, options, driver, context)),
            };
            Ok(running)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        _agent: super::Agent,
    }

    /// The parser's error for a line.
    fn said(line: &str) -> Option<String> {
        let words = std::iter::once("agent").chain(line.split(' '));
        Line::try_parse_from(words).err().map(|error| error.to_string())
    }

    #[test]
    fn flags_that_templates_would_not_heed_are_refused() {
        let templates = "--template t --output o";
        for flags in [
            "--address 192.0.2.1",
            "--driver nginx",
            "--load-balancer edge --default-port-mode tcp",
            "--load-balancer edge --default-lb-ip 192.0.2.1",
            "--load-balancer edge --address 192.0.2.1 --once",
            "--once-timeout 3",
            "--certificates c",
        ] {
            let said = said(&format!("{templates} {flags}"));
            let flag = flags.split(' ').rfind(|word| word.starts_with("--")).unwrap_or_default();
            assert!(said.as_ref().is_some_and(|said| said.contains(flag)), "{flags}: {said:?}");
        }
        assert_eq!(said(templates), None);
        assert_eq!(said(&format!("{templates} --once --once-timeout 3 --default-lb-ip ::")), None);
        assert_eq!(said(&format!("{templates} --load-balancer edge --address 192.0.2.1")), None);
        assert!(said("--load-balancer edge --settle 5").is_some());
    }
}

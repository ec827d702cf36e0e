//! What a role is started with: its options, the shared context, and why it may fail. `bowline controller` and `bowline
//! agent` start one role each, `bowline up` both in one process, with the same metrics, readiness and changes.

use crate::admin::Readiness;
use crate::agents_page::AgentsPage;
use crate::causes::causes;
use crate::dns::{DnsError, DnsOptions};
use crate::metrics::Metrics;
use crate::observe::Changes;
use bowline_api::names;
use bowline_api::provisioned_objects::Images;
use bowline_core::member_rules::MemberRules;
use bowline_core::objects::Carrier;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// The version of Bowline, for a process that does not know its commit.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the roles of a process share. A clone shares it too.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where roles count.
    pub metrics: Metrics,
    /// Where roles say what they wait for.
    pub readiness: Readiness,
    /// Where roles send changes.
    pub changes: Changes,
    /// Where agents say how they are.
    pub agents: AgentsPage,
    /// Where the admin endpoint is served. None: nowhere.
    pub admin: Option<SocketAddr>,
    /// True once the roles have to stop.
    pub shutdown: watch::Receiver<bool>,
}

impl Context {
    /// A context, and the sender that stops its roles with `true`.
    pub fn new() -> (Self, watch::Sender<bool>) {
        let (stop, shutdown) = watch::channel(false);
        let context = Self {
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            changes: Changes::default(),
            agents: AgentsPage::default(),
            admin: None,
            shutdown,
        };
        (context, stop)
    }

    /// Returns when the roles have to stop.
    pub async fn stopped(&self) {
        let mut shutdown = self.shutdown.clone();
        // A dropped sender means to stop, too.
        let _ = shutdown.wait_for(|stop| *stop).await;
    }

    /// The result of some work, which has this grace once the roles have to stop. None: it took longer.
    pub(crate) async fn within_grace<T>(
        &self,
        grace: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let late = async {
            self.stopped().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = late => None,
        }
    }
}

/// How the controller is started.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Bowline's own namespace.
    pub namespace: String,
    /// The mark of this cluster on objects outside it. None: the uid of namespace kube-system.
    pub cluster_id: Option<String>,
    /// Whether Services without a class are Bowline's.
    pub default_class: bool,
    /// The load balancer of consumers that name none.
    pub default_load_balancer: Option<String>,
    /// The DNS servers to ask, and how often. None: the servers of this machine, with the usual limits.
    pub dns: Option<DnsOptions>,
    /// How long a consumer that moved to another address is still served at the old one.
    pub address_grace: Duration,
    /// The ports for HTTP and HTTPS of Ingresses on load balancers that classes make and that this machine serves.
    /// None: proxies in the cluster serve them.
    pub local_ports: Option<(u16, u16)>,
    /// The images of proxies in the cluster.
    pub images: Images,
    /// Networks whose members get no traffic from the agents of these proxies.
    pub deny_members: Vec<IpNet>,
    /// Whether controllers choose a leader. If not, all of them write; every write is safe even then.
    pub election: bool,
    /// The unique name of this process among the controllers.
    pub identity: String,
    /// The version of this program, as the leader's Lease tells it.
    pub version: String,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            namespace: names::NAMESPACE.to_owned(),
            cluster_id: None,
            default_class: false,
            default_load_balancer: None,
            dns: None,
            address_grace: Duration::from_secs(60),
            local_ports: None,
            images: Images::default(),
            deny_members: Vec::new(),
            election: true,
            identity: identity(),
            version: VERSION.to_owned(),
        }
    }
}

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The load balancer that the agent serves.
    pub load_balancer: String,
    /// Bowline's own namespace.
    pub namespace: String,
    /// The addresses that it reports for a load balancer without fixed ones.
    pub addresses: Vec<IpAddr>,
    /// The unique name of this process among the agents.
    pub identity: String,
    /// The version of this program, as the agent's Lease tells it.
    pub version: String,
    /// How long work under way may take when the agent stops.
    pub grace: Duration,
    /// Which members get no traffic.
    pub members: MemberRules,
    /// The folder in which it stores what it serves, private keys included. None: it stores nothing.
    pub state: Option<PathBuf>,
    /// Whether that folder is deleted with the agent's Pod, as an emptyDir is. An agent that is told to end, and can
    /// report that, then leaves nothing behind that a later start could serve.
    pub state_ends_with_pod: bool,
    /// The marks of the cluster that the agent is configured for, as they change: it does not serve the kept state of
    /// an agent of another cluster. None: the agent is part of the cluster.
    pub cluster: Option<watch::Receiver<BTreeSet<String>>>,
    /// The uid of the LoadBalancer object. None: it is read from the Plans.
    pub uid: Option<String>,
    /// The folder of the socket at which the speaker of this node hears what is open. None: nobody is told.
    pub sockets: Option<PathBuf>,
    /// How long routers and other nodes have to learn that an address goes, before its listeners close.
    pub parting: Duration,
    /// The node on which it runs. None: it is not known.
    pub node: Option<String>,
    /// What it runs. It serves no load balancer that needs something else. None: whatever the load balancer needs.
    pub carrier: Option<Carrier>,
}

impl AgentOptions {
    /// How long a withdrawal takes to reach the routers near by.
    pub const PARTING: Duration = Duration::from_millis(250);

    /// Options for the agent of a load balancer, with defaults.
    pub fn new(load_balancer: impl Into<String>) -> Self {
        Self {
            load_balancer: load_balancer.into(),
            namespace: names::NAMESPACE.to_owned(),
            addresses: Vec::new(),
            identity: identity(),
            version: VERSION.to_owned(),
            grace: Duration::from_secs(10),
            state: None,
            state_ends_with_pod: false,
            cluster: None,
            uid: None,
            sockets: None,
            parting: Self::PARTING,
            node: None,
            carrier: None,
            members: MemberRules::default(),
        }
    }
}

/// Why a role does not start, or ends by itself.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// Something that the role needs first cannot be got from the API.
    #[error("{doing}: {}", causes(source))]
    Api {
        /// What was being done.
        doing: String,
        /// What the API said.
        source: Box<kube::Error>,
    },
    /// The import from another product failed.
    #[error("--import-metallb: {0}")]
    Import(#[from] crate::metallb::ImportError),
    /// DNS names cannot be looked up.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// A one-time run failed.
    #[error("{0}")]
    Template(String),
    /// The driver failed, and a retry does not help.
    #[error("the driver: {0}")]
    Driver(bowline_drivers::Error),
    /// A part that must run as long as the role has ended by itself.
    #[error("{0} has ended by itself")]
    Ended(&'static str),
}

impl RoleError {
    /// A one-time run was stopped before it was done.
    pub(crate) fn stopped() -> Self {
        Self::Template("stopped before it was done".to_owned())
    }
}

/// The name of this host.
pub fn host_name() -> Option<String> {
    let name = std::env::var("HOSTNAME").ok();
    let name = name.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// A unique name for this process: the host's name and a random part.
pub fn identity() -> String {
    let host = host_name().unwrap_or_else(|| "bowline".to_owned());
    format!("{host}_{:08x}", crate::random::number())
}

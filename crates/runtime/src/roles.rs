//! What a role is started with. `bowline controller` and `bowline agent` start one each, `bowline up`
//! both in one process, with the same metrics, readiness and changes.

use crate::admin::Readiness;
use crate::dns::{DnsError, DnsOptions};
use crate::metrics::Metrics;
use crate::observe::Changes;
use bowline_api::names;
use bowline_api::provisioned_objects::Images;
use bowline_core::members::MemberRules;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// What the roles of a process share. Cloning it shares it.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where they count.
    pub metrics: Metrics,
    /// Where they say that they are ready.
    pub readiness: Readiness,
    /// Where they tell what happens.
    pub changes: Changes,
    /// True once they are to stop.
    pub shutdown: watch::Receiver<bool>,
}

impl Context {
    /// A context, and what stops its roles: send true.
    pub fn new() -> (Self, watch::Sender<bool>) {
        let (stop, shutdown) = watch::channel(false);
        let context = Self {
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            changes: Changes::default(),
            shutdown,
        };
        (context, stop)
    }

    /// Returns when the roles are to stop.
    pub async fn stopped(&self) {
        let mut shutdown = self.shutdown.clone();
        // A sender that is gone can no longer change its mind: that too means to stop.
        let _ = shutdown.wait_for(|stop| *stop).await;
    }

    /// What comes of some work; once the roles are to stop it has the grace left. None: it took longer.
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
    /// The mark of this cluster on what is owned elsewhere. None: the uid of namespace kube-system.
    pub cluster_id: Option<String>,
    /// Whether Services without a class are ours.
    pub default_class: bool,
    /// Where consumers go that ask for nothing in particular.
    pub default_load_balancer: Option<String>,
    /// Whom to ask for DNS names, and how often. None: the servers of this machine, as usual.
    pub dns: Option<DnsOptions>,
    /// For how long somebody who moved to another address is still served at the old one.
    pub address_grace: Duration,
    /// The ports at which Ingresses are served, in clear text and over TLS, on load balancers that classes
    /// make and that this machine serves. None: they are served by proxies in the cluster.
    pub local_ports: Option<(u16, u16)>,
    /// What proxies in the cluster run from.
    pub images: Images,
    /// Networks in which the agents of those send traffic to no member.
    pub deny_members: Vec<IpNet>,
    /// Whether controllers choose a leader. Off, all of them write; every write is safe with that.
    pub election: bool,
    /// Who this process is among the controllers: unique.
    pub identity: String,
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
        }
    }
}

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Whose agent it is.
    pub load_balancer: String,
    /// Bowline's own namespace.
    pub namespace: String,
    /// The addresses that it reports for a load balancer without fixed ones.
    pub addresses: Vec<IpAddr>,
    /// Who this process is.
    pub identity: String,
    /// How long what is under way may take when it stops.
    pub grace: Duration,
    /// Which members get no traffic.
    pub members: MemberRules,
    /// The folder in which it keeps what it serves, private keys included. None: it keeps nothing.
    pub state: Option<PathBuf>,
    /// Whether that folder is gone with the agent's Pod, as an emptyDir is. Then an agent that is told to end, and
    /// can say so, leaves nothing behind that a later start could serve.
    pub state_ends_with_pod: bool,
    /// Marks of the cluster that the agent is configured for, whenever they change: what another cluster's agent kept is
    /// not served. None: the agent is part of it.
    pub cluster: Option<watch::Receiver<BTreeSet<String>>>,
    /// The uid of the LoadBalancer object. None: the Plans tell.
    pub uid: Option<String>,
}

impl AgentOptions {
    /// The agent of a load balancer, else with defaults.
    pub fn new(load_balancer: impl Into<String>) -> Self {
        Self {
            load_balancer: load_balancer.into(),
            namespace: names::NAMESPACE.to_owned(),
            addresses: Vec::new(),
            identity: identity(),
            grace: Duration::from_secs(10),
            state: None,
            state_ends_with_pod: false,
            cluster: None,
            uid: None,
            members: MemberRules::default(),
        }
    }
}

/// Why a role does not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// Something that is needed before anything else cannot be had from the API.
    #[error("{doing}: {source}")]
    Api {
        /// What was being done.
        doing: String,
        /// What the API said.
        source: Box<kube::Error>,
    },
    /// What another product has could not be taken over.
    #[error("--import-metallb: {0}")]
    Import(#[from] crate::metallb::ImportError),
    /// Names cannot be looked up.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// What was to be done once has failed.
    #[error("{0}")]
    Template(String),
    /// The driver cannot go on, whatever it is given next.
    #[error("the driver: {0}")]
    Driver(bowline_drivers::Error),
    /// A part that runs as long as the role has ended by itself.
    #[error("{0} has ended by itself")]
    Ended(&'static str),
}

impl RoleError {
    /// What was to be done once has not been done.
    pub(crate) fn stopped() -> Self {
        Self::Template("stopped before it was done".to_owned())
    }
}

/// A name for this process that no other has: the host's name and a random part.
pub fn identity() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "bowline".to_owned());
    format!("{host}_{:08x}", crate::random::number())
}

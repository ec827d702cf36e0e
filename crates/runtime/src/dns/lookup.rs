//! One look-up: asks the servers in turn until one gives a definite answer. Names are fully qualified,
//! aliases are followed, answers too long for a datagram are fetched over TCP. Nothing is cached: the
//! schedule asks when a TTL has ended, and then needs a new answer. `dns` calls it.

use super::{DnsError, failure};
use bowline_core::dns::{Answer, Answers, Failure, FailureKind, Families, Found, Name};
use bowline_core::objects::Family;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{self, RData, RecordType};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How many aliases a name may have before they count as a loop.
const MOST_ALIASES: usize = 16;

/// Asks a list of servers.
pub(super) struct Resolver {
    servers: Vec<Server>,
}

struct Server {
    address: SocketAddr,
    timeout: Duration,
    resolver: TokioResolver,
}

impl Resolver {
    pub(super) fn new(servers: &[SocketAddr], timeout: Duration) -> Result<Self, DnsError> {
        let server = |&address| Server::new(address, timeout);
        Ok(Self { servers: servers.iter().map(server).collect::<Result<_, _>>()? })
    }

    /// Asks for both families at the same time; each has its own answer.
    pub(super) async fn ask(&self, name: &Name, families: Families) -> Answers {
        let ask = async |family| match families.has(family) {
            true => Some(self.ask_family(name, family).await),
            false => None,
        };
        let (v4, v6) = futures::join!(ask(Family::V4), ask(Family::V6));
        Answers { v4, v6 }
    }

    /// The first server with a definite answer decides, also if the answer is that the name does not
    /// exist. If a server fails, the next one is asked; if all fail, the most informative failure is
    /// returned.
    async fn ask_family(&self, name: &Name, family: Family) -> Answer {
        let mut failures: Vec<(SocketAddr, Failure)> = Vec::new();
        for server in &self.servers {
            match server.ask(name, family).await {
                Ok(found) => return Ok(found),
                Err(failure) if is_final(failure.kind) => {
                    return Err(told(&[(server.address, failure)]));
                }
                Err(failure) => failures.push((server.address, failure)),
            }
        }
        Err(told(&failures))
    }
}

impl Server {
    /// Each server has its own resolver: one resolver for all would ask two servers at a time, take the
    /// first answer, and not go on after SERVFAIL.
    fn new(address: SocketAddr, timeout: Duration) -> Result<Self, DnsError> {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
        let connections = connections.map(|mut connection| {
            connection.port = address.port();
            connection
        });
        let server = NameServerConfig::new(address.ip(), true, connections.into());
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options(timeout);
        let resolver =
            builder.build().map_err(|why| DnsError { server: address, why: why.to_string() })?;
        Ok(Self { address, timeout, resolver })
    }

    async fn ask(&self, name: &Name, family: Family) -> Answer {
        let query = query(name)?;
        let kind = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        let lookup = match self.within(self.resolver.lookup(query.clone(), kind)).await {
            Ok(lookup) => lookup,
            Err(error) if failure::may_be_loop(&error) && self.is_loop(query).await => {
                return Err(Failure::new(FailureKind::CnameLoop, ""));
            }
            Err(error) => return Err(failed(&error)),
        };
        // The answer also holds the aliases that led to the addresses, and their TTLs count.
        let answers = lookup.answers().iter();
        let ours =
            answers.filter(|record| [kind, RecordType::CNAME].contains(&record.record_type()));
        let ttl = ours.clone().map(|record| record.ttl).min().unwrap_or_default();
        let addresses = ours.filter_map(|record| match &record.data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        });
        Found::new(family, addresses, Duration::from_secs(ttl.into()))
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, NetError> {
        tokio::time::timeout(self.timeout, asked).await.unwrap_or(Err(NetError::Timeout))
    }

    /// Whether the aliases of a name form a loop. If that cannot be found out: no.
    async fn is_loop(&self, name: rr::Name) -> bool {
        let follow = async { Ok(self.follow(name).await) };
        self.within(follow).await.unwrap_or(false)
    }

    /// Follows aliases one by one; the resolver library stops when it no longer expects an address.
    async fn follow(&self, mut name: rr::Name) -> bool {
        let mut seen = HashSet::new();
        while seen.len() < MOST_ALIASES {
            if !seen.insert(name.to_lowercase()) {
                return true;
            }
            let lookup = self.resolver.lookup(name, RecordType::CNAME).await;
            let alias = lookup.ok().and_then(|lookup| {
                lookup.answers().iter().find_map(|record| match &record.data {
                    RData::CNAME(alias) => Some(alias.0.clone()),
                    _ => None,
                })
            });
            match alias {
                Some(alias) => name = alias,
                None => return false,
            }
        }
        true
    }
}

fn options(timeout: Duration) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = timeout;
    // Lost datagrams are sent again within the timeout; a second attempt would double it.
    options.attempts = 0;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.preserve_intermediates = true;
    // The schedule limits look-ups; this is more than two families for each of them.
    options.max_active_requests = 1024;
    options
}

fn query(name: &Name) -> Result<rr::Name, Failure> {
    rr::Name::from_ascii(name.fully_qualified()).map_err(|error| failed(&NetError::from(error)))
}

fn failed(error: &NetError) -> Failure {
    let (kind, text) = failure::of(error);
    Failure::new(kind, text)
}

/// Whether asking another server is pointless.
fn is_final(kind: FailureKind) -> bool {
    kind.is_definite() || matches!(kind, FailureKind::CnameLoop | FailureKind::TooMany)
}

/// Combines the failures of all servers into one. A server that answered is more informative than one
/// that did not; among equals the server that was asked first counts.
fn told(failures: &[(SocketAddr, Failure)]) -> Failure {
    let silent = |kind| matches!(kind, FailureKind::Timeout | FailureKind::Unreachable);
    let first = failures.iter().min_by_key(|(_, failure)| silent(failure.kind));
    let Some((_, most_telling)) = first else {
        let text = "there is none; name one with --dns-server ADDR:PORT";
        return Failure::new(FailureKind::Unreachable, text);
    };
    let detail = |(server, failure): &(SocketAddr, Failure)| {
        let kind = match failures {
            [_] => String::new(),
            _ => format!(" {:?}", failure.kind),
        };
        match &*failure.text {
            "" => format!("{server}{kind}"),
            text => format!("{server}{kind} ({text})"),
        }
    };
    let details: Vec<String> = failures.iter().map(detail).collect();
    Failure::new(most_telling.kind, details.join(", "))
}

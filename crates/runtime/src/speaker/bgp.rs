//! Announces by BGP with the sessions of `bowline-speaker`. It turns the values of core into those of the sessions and
//! what sessions say into the report. What is announced on links is not its concern.

use super::announcer::{Announcer, Ending};
use super::metrics::Sessions;
use crate::clock;
use crate::metrics::Metrics;
use crate::random;
use bowline_core::announce::{self, Effect, Event, PeerAsn, PeerTarget};
use bowline_core::report::speaker::Session;
use bowline_speaker::bfd::Parameters;
use bowline_speaker::bgp::rib_out::NextHops;
use bowline_speaker::bgp::session::{Config, Status, Stop};
use bowline_speaker::bgp::shell::{
    Bfd, Distance, Options, Password, Peer, PeerStatus, Remote, Shell, Statuses,
};
use bowline_speaker::bgp::{Family, PerFamily, Route};
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::sync::watch;

/// The port at which peers connect.
const BGP: u16 = 179;

/// The routers that a node tells.
#[derive(Debug)]
pub struct Routers {
    shell: Shell,
    statuses: watch::Receiver<Statuses>,
    node: Arc<str>,
    wanted: BTreeMap<Arc<str>, Arc<announce::Peer>>,
    passwords: BTreeMap<Arc<str>, Vec<u8>>,
    /// The Secrets that are gone. Sessions go on with the passwords that were in them.
    gone: BTreeSet<Arc<str>>,
    /// What each peer is to be told, for peers that enter the set of the shell later.
    routes: BTreeMap<Arc<str>, BTreeMap<IpNet, Arc<Route>>>,
    /// The peers that the shell has.
    running: BTreeMap<String, Peer>,
    /// Why a wanted peer is not among them.
    refused: BTreeMap<Arc<str>, String>,
    complete: bool,
}

impl Routers {
    /// No sessions yet. It belongs to the tokio runtime that it is made in.
    pub fn new(node: &str, metrics: &Metrics) -> Self {
        let seed = u64::from(random::number()) << 32 | u64::from(random::number());
        let shell = Shell::new(Options { clock: clock::now, seed, listen_port: BGP });
        metrics.register(|it| it.register_collector(Box::new(Sessions::new(shell.status()))));
        Self {
            statuses: shell.status(),
            shell,
            node: node.into(),
            wanted: BTreeMap::new(),
            passwords: BTreeMap::new(),
            gone: BTreeSet::new(),
            routes: BTreeMap::new(),
            running: BTreeMap::new(),
            refused: BTreeMap::new(),
            complete: false,
        }
    }

    /// Hands the shell all peers that can be configured. A peer that enters the set is told its routes.
    fn configure(&mut self) {
        let before = std::mem::take(&mut self.refused);
        let mut peers = BTreeMap::new();
        for (name, peer) in &self.wanted {
            match self.peer(peer) {
                Ok(peer) => _ = peers.insert(name.to_string(), peer),
                Err(why) => {
                    if before.get(name) != Some(&why) {
                        tracing::warn!(peer = &**name, why, "no session is possible");
                    }
                    self.refused.insert(name.clone(), why);
                }
            }
        }
        let fresh: Vec<_> =
            peers.keys().filter(|name| !self.running.contains_key(*name)).cloned().collect();
        self.running.clone_from(&peers);
        self.shell.set_peers(peers);
        for name in fresh {
            let routes = self.routes.get(name.as_str()).into_iter().flatten();
            let routes = routes.map(|(prefix, route)| (*prefix, Some((**route).clone())));
            self.shell.change(&name, routes);
        }
        if self.complete {
            self.shell.complete();
        }
    }

    fn peer(&self, peer: &announce::Peer) -> Result<Peer, String> {
        let remote = match &peer.target {
            PeerTarget::Address(address) => Remote::Address(*address),
            PeerTarget::Interface(name) => Remote::Interface(name.to_string()),
        };
        let password = match &peer.password_secret {
            None => None,
            Some(secret) => {
                let bytes = self.passwords.get(secret).ok_or_else(|| {
                    format!("Secret {secret} of type kubernetes.io/basic-auth with the key password is missing")
                })?;
                let too_long = || format!("the password in Secret {secret} is empty or too long");
                Some(Password::new(bytes.clone()).ok_or_else(too_long)?)
            }
        };
        let bfd = match &peer.bfd {
            None => None,
            Some(bfd) => Some(Bfd {
                parameters: Parameters::new(
                    bfd.receive_interval,
                    bfd.transmit_interval,
                    bfd.detect_multiplier.get().into(),
                    false,
                )
                .map_err(|why| why.to_string())?,
                minimum_ttl: bfd.minimum_ttl,
            }),
        };
        let next_hops = match peer.next_hop {
            None => NextHops::default(),
            Some(IpAddr::V4(v4)) => NextHops { v4: Some(v4), ..NextHops::default() },
            Some(IpAddr::V6(v6)) => NextHops { v6: Some(v6), ..NextHops::default() },
        };
        let internal = match peer.asn {
            PeerAsn::Internal => true,
            PeerAsn::Is(asn) => asn == peer.my_asn,
            PeerAsn::External => false,
        };
        Ok(Peer {
            session: Config {
                asn: peer.my_asn,
                router_id: peer.router_id.unwrap_or_else(|| router_id(&self.node)),
                peer_asn: peer.asn,
                families: PerFamily::BOTH,
                hold_time: peer.hold_time,
                keepalive_time: peer.keepalive_time,
                connect_time: peer.connect_time,
                connects: true,
                accepts: peer.listen,
                graceful_restart: peer.graceful_restart,
                next_hops,
            },
            remote,
            port: peer.port,
            source: peer.source,
            vrf: peer.vrf.as_deref().map(ToOwned::to_owned),
            distance: match (peer.ttl_security, internal || peer.multi_hop) {
                (true, _) => Distance::LinkProven,
                (false, true) => Distance::Routed,
                (false, false) => Distance::Link,
            },
            password,
            bfd,
        })
    }
}

impl Announcer for Routers {
    fn carry_out(&mut self, effects: Vec<Effect>) {
        let mut changes = BTreeMap::<Arc<str>, Vec<(IpNet, Option<Route>)>>::new();
        let mut configure = false;
        for effect in effects {
            match effect {
                Effect::Peer(peer) => {
                    self.wanted.insert(peer.name.clone(), peer);
                    configure = true;
                }
                Effect::Forget(name) => {
                    self.wanted.remove(&name);
                    self.routes.remove(&name);
                    configure = true;
                }
                Effect::Announce(peer, prefix, route) => {
                    changes.entry(peer.clone()).or_default().push((prefix, Some((*route).clone())));
                    self.routes.entry(peer).or_default().insert(prefix, route);
                }
                Effect::Withdraw(peer, prefix) => {
                    changes.entry(peer.clone()).or_default().push((prefix, None));
                    self.routes.entry(peer).or_default().remove(&prefix);
                }
                Effect::Complete => self.complete = true,
                Effect::Hold(..)
                | Effect::Release(_)
                | Effect::Check(..)
                | Effect::Refuse(_)
                | Effect::Accept(_)
                | Effect::Offer(..)
                | Effect::Decline(_) => {}
            }
        }
        for (peer, changes) in changes {
            // A peer that the shell does not have yet is told all when it enters the set.
            self.shell.change(&peer, changes);
        }
        if configure {
            self.configure();
        } else if self.complete {
            self.shell.complete();
        }
    }

    fn password(&mut self, secret: Arc<str>, password: Option<Vec<u8>>) {
        let Some(password) = password else {
            // What is deleted may be made again in a moment. The router has the password still.
            if self.passwords.contains_key(&secret) && self.gone.insert(secret.clone()) {
                tracing::warn!(
                    secret = &*secret,
                    "the password is gone; sessions go on with the last one"
                );
            }
            return;
        };
        self.gone.remove(&secret);
        if self.passwords.get(&secret) != Some(&password) {
            self.passwords.insert(secret, password);
            self.configure();
        }
    }

    fn sessions(&self) -> BTreeMap<Arc<str>, Session> {
        let statuses = self.statuses.borrow();
        let said = |(name, peer): (&Arc<str>, &Arc<announce::Peer>)| {
            let mut session = match (self.refused.get(name), statuses.get(&**name)) {
                (Some(why), _) => {
                    Session { reason: Some(why.as_str().into()), ..Session::default() }
                }
                (None, Some(status)) => session(status),
                (None, None) => Session::default(),
            };
            if let Some(secret) = peer.password_secret.as_ref().filter(|it| self.gone.contains(*it))
            {
                let gone = || format!("Secret {secret} is gone: its last password is used").into();
                session.reason.get_or_insert_with(gone);
            }
            (name.clone(), session)
        };
        self.wanted.iter().map(said).collect()
    }

    fn owned(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    async fn changed(&mut self) -> Vec<Event> {
        // The shell lives as long as this, so its sender is there.
        let _ = self.statuses.changed().await;
        Vec::new()
    }

    async fn stop(self, ending: Ending) {
        let stop = match ending {
            Ending::Leave => Stop::Leave(format!("node {} leaves", self.node)),
            Ending::Upgrade => Stop::Upgrade,
        };
        self.shell.stop(stop).await;
    }
}

fn session(status: &PeerStatus) -> Session {
    let Status { peer, last_failure, told, held_back, .. } = &status.session;
    let up = peer.is_some();
    let held_back = || Family::ALL.into_iter().find_map(|family| held_back.get(family).clone());
    let bfd = || match &status.bfd {
        Some(Err(why)) => Some(format!("BFD: {why}")),
        _ => None,
    };
    let down = || last_failure.clone().or_else(|| status.not_listening.clone());
    let reason = if up { held_back().or_else(bfd) } else { down() };
    Session {
        up,
        routes: u32::try_from(told.v4 + told.v6).unwrap_or(u32::MAX),
        reason: reason.map(Into::into),
    }
}

/// The identifier of a node without a configured one: its first IPv4 address. A node without one takes a number from
/// its name, since an identifier need not be an address.
fn router_id(node: &str) -> Ipv4Addr {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = interfaces.filter_map(|it| Some(it.address?.as_sockaddr_in()?.ip()));
    let mut usable = addresses.filter(|it| !it.is_loopback() && !it.is_link_local());
    usable.next().unwrap_or_else(|| {
        let digest = Sha256::digest(node);
        let number = digest.iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        Ipv4Addr::from(number.max(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(secret: &str) -> Arc<announce::Peer> {
        Arc::new(announce::Peer {
            name: "tor-a".into(),
            nodes: None,
            target: PeerTarget::Address("192.0.2.1".parse().unwrap()),
            port: 179,
            asn: PeerAsn::External,
            my_asn: 64512,
            router_id: None,
            source: None,
            next_hop: None,
            vrf: None,
            ttl_security: false,
            listen: false,
            hold_time: 90,
            keepalive_time: None,
            connect_time: std::time::Duration::from_secs(120),
            multi_hop: false,
            password_secret: Some(secret.into()),
            graceful_restart: None,
            bfd: None,
        })
    }

    #[tokio::test]
    async fn a_session_goes_on_with_the_password_of_a_secret_that_is_gone() {
        let mut routers = Routers::new("node", &Metrics::default());
        routers.carry_out(vec![Effect::Peer(peer("tor-a"))]);
        assert!(routers.running.is_empty(), "no session without its password");
        routers.password("tor-a".into(), Some(b"hunter".to_vec()));
        let running = routers.running.clone();
        assert_eq!(running.len(), 1);
        routers.password("tor-a".into(), None);
        assert_eq!(routers.running, running, "the session stays as it is");
        let reason = routers.sessions()["tor-a"].reason.clone();
        assert_eq!(reason.as_deref(), Some("Secret tor-a is gone: its last password is used"));
        routers.password("tor-a".into(), Some(b"other".to_vec()));
        assert_ne!(routers.running, running, "the new password is used");
        assert_eq!(routers.sessions()["tor-a"].reason, None);
        routers.stop(Ending::Upgrade).await;
    }
}

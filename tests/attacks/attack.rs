//! Everything that evil does at once. Some of it is written with a pause between two writes, so that the API
//! itself stays quick on a small machine: what is attacked here is Bowline, not the API server.
//!
//! Some attacks of docs/security.md have tests of their own instead: more listeners than an agent can open (`listeners`)
//! needs an agent with few files, DNS names that never answer (`addresses silent`) a resolver that stays silent,
//! connections that hold old processes (`generations`) minutes, and certificates up to the limit of a namespace (`runtime
//! certificates`) 6,720 KiB, which an API server of a debug build copies for a minute.

use crate::stage::{Stage, TARGET};
use crate::tenants::{Evil, SHOP};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, Request, eventually, net};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How often a single attack writes.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a certificate is renewed. Each is a write of hundreds of KiB for the API server.
const RENEWAL: Duration = Duration::from_millis(400);
/// Idle connections of evil's, to each of two ports.
const IDLE: usize = 250;
/// Ingresses that want what shop has.
const GREEDY: usize = 30;
/// Ingresses to one Service with 900 members.
const WIDE: usize = 23;
/// Certificates that change, each of its own Ingress.
const CERTIFICATES: usize = 40;
/// The bytes of a certificate that mean nothing: with them it is nearly as large as one may be,
const PADDING: usize = 28_000;
/// and with these it is too large.
const TOO_MUCH: usize = 34_000;
/// HTTP/2 connections of evil's, and the requests on each that are never finished.
const SESSIONS: usize = 2;
const UNFINISHED: usize = 24;

/// What there is when evil begins: a pool that is for shop, and so many Ingresses of evil's that lead to one Service.
pub(crate) async fn prepare(stage: &Stage, evil: &Evil, ingresses: usize) {
    stage.cluster.owns("addresspool", &stage.lb);
    let range = format!("{}/119", pool_address(stage, 0));
    let to = json!({"namespaces": [stage.namespace]});
    let pool = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": stage.lb},
        "spec": {"addresses": [range], "allocateTo": to, "autoAssign": false},
    });
    stage.cluster.apply("", &pool).await;
    evil.apply(stage, objects::cluster_service("crowd", 80, TARGET)).await;
    let crowd = stream::iter(0..ingresses).map(|n| async move {
        let (name, host) = (format!("crowd-{n}"), format!("crowd-{n}.evil.example"));
        let rules = [(host.as_str(), "/", "Prefix", "crowd")];
        evil.apply(stage, objects::ingress(&name, &stage.lb, &rules)).await;
    });
    crowd.buffer_unordered(8).collect::<()>().await;
}

/// An address of the pool. Each stage has a pool of its own, by its address: stages may share a cluster.
fn pool_address(stage: &Stage, number: u16) -> IpAddr {
    let IpAddr::V6(vip) = stage.vip6 else { panic!("{} is no IPv6 address", stage.vip6) };
    let mut parts = vip.segments();
    (parts[0], parts[7]) = (0xfd97, number);
    parts[1] = vip.segments()[7];
    parts.into()
}

/// The host of what has this name.
fn host(name: &str) -> String {
    format!("{name}.evil.example")
}

/// Evil's doings.
pub(crate) struct Attacker<'a> {
    stage: &'a Stage,
    evil: &'a Evil,
    over: &'a AtomicBool,
    authority: Authority,
}

impl<'a> Attacker<'a> {
    pub(crate) fn new(stage: &'a Stage, evil: &'a Evil, over: &'a AtomicBool) -> Self {
        Self { stage, evil, over, authority: Authority::new() }
    }

    /// All that evil does until it is over.
    pub(crate) async fn attack(&self) {
        tokio::join!(
            self.take_hosts(),
            self.take_ports(),
            self.take_addresses(),
            self.change_members(),
            self.change_certificates(),
            self.write_nonsense(),
            self.change_what_a_crowd_uses(),
            self.ask_for_slow_checks(),
            self.hold_connections(),
            self.hold_requests(),
            self.send_datagrams(),
        );
    }

    /// Writes again and again until it is over.
    async fn again(&self, mut write: impl AsyncFnMut(usize)) {
        let mut round = 0;
        while !self.is_over() {
            write(round).await;
            round += 1;
            tokio::time::sleep(PAUSE).await;
        }
        assert!(round > 0, "an attack that wrote nothing");
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    async fn apply(&self, object: Value) {
        self.evil.apply(self.stage, object).await;
    }

    /// More than a namespace may have, and what no namespace may have: evil is told of each. This comes before
    /// [`Self::attack`], which causes so many refusals that Events wait for their budget.
    pub(crate) async fn want_too_much(&self) {
        let evil = &self.evil.namespace;
        let told = async |kind, name: &str, reason| {
            self.stage.told_in(evil, kind, name, reason).await;
        };
        self.members(0).await;
        told("Ingress", "old", "MemberRefused").await;
        // So many pools of `web` are more members than a namespace may have. They go again: what follows has enough.
        let wide: Vec<_> = (0..WIDE).map(|n| format!("wide-{n}")).collect();
        for name in &wide {
            self.evil.ingress(self.stage, name, &[&host(name)]).await;
        }
        // Which of them finds no room depends on the order in which the agent hears of them.
        eventually("an Ingress is told TooManyMembers", || async {
            let (_, events) = self.stage.cluster.get(&objects::path("Event", evil, "")).await;
            let events = events["items"].as_array().cloned().unwrap_or_default();
            let told = events.iter().any(|event| event["reason"] == "TooManyMembers");
            told.then_some(()).ok_or_else(|| format!("{} Events", events.len()))
        })
        .await;
        for name in &wide {
            self.stage.cluster.delete("Ingress", evil, name).await;
        }
        self.secured("large", TOO_MUCH).await;
        told("Ingress", "large", "TooManyCertificates").await;
        self.addresses(0).await;
        told("Service", "addresses", "AddressIgnored").await;
        self.nonsense(0).await;
        told("Ingress", "nonsense", "BadTuning").await;
    }

    /// A padded certificate for the host of this name, in a Secret of this name.
    async fn certificate(&self, name: &str, padding: usize) {
        let issued = self.authority.issue_padded(&[&host(name)], padding);
        self.apply(objects::tls_secret(name, &issued)).await;
    }

    /// An Ingress with a host of its own, and its certificate.
    async fn secured(&self, name: &str, padding: usize) {
        self.certificate(name, padding).await;
        let host = host(name);
        let rules = [(host.as_str(), "/", "Prefix", "web")];
        let mut ingress = objects::ingress(name, &self.stage.lb, &rules);
        ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": name}]);
        self.apply(ingress).await;
    }

    /// Ingresses that ask for shop's host, one after another, and each time all of them are refused.
    async fn take_hosts(&self) {
        self.again(async |round| {
            let host = if round.is_multiple_of(2) { SHOP } else { "old.example" };
            self.evil.ingress(self.stage, "old", &[host]).await;
            let host = if (round / GREEDY).is_multiple_of(2) { SHOP } else { "secure.example" };
            self.evil.ingress(self.stage, &format!("greedy-{}", round % GREEDY), &[host]).await;
        })
        .await;
    }

    /// A Service with the ports of all Ingresses, and 200 more that change.
    async fn take_ports(&self) {
        self.again(async |round| {
            let first = 7_080 + (round % 2) as u16;
            let many = (0..200).map(|n| (first + n, TARGET));
            let ports: Vec<_> = [(80, TARGET), (443, TARGET)].into_iter().chain(many).collect();
            let mut service = objects::service("ports", &self.stage.lb, &ports);
            // Node ports would cost the API server more than this costs Bowline.
            service["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
            self.apply(service).await;
        })
        .await;
    }

    /// Members at which nothing answers, each time others, and one that leads round in a circle. (The API
    /// itself refuses loopback and link-local addresses.)
    async fn change_members(&self) {
        self.again(async |round| self.members(round).await).await;
    }

    async fn members(&self, round: usize) {
        // Four networks a round: addresses come again after 4,096 rounds, long after HAProxy has let go of them.
        let first = round as u32 % 4_096 * 1_024;
        let at = |n: u32| IpAddr::from((0x0a80_0000 + first + n).to_be_bytes());
        let nothing = (0..900).map(at);
        let members: Vec<_> = nothing.chain([self.stage.vip]).map(Endpoint::ready).collect();
        self.apply(objects::slice("web", ("", TARGET, "TCP"), &members)).await;
    }

    /// Padded certificates, far more than evil has room for of its own, each renewed again and again.
    async fn change_certificates(&self) {
        self.again(async |round| {
            self.secured(&format!("c{}", round % CERTIFICATES), PADDING).await;
            tokio::time::sleep(RENEWAL).await;
        })
        .await;
    }

    /// Text that would be a directive if anything took it for one.
    async fn write_nonsense(&self) {
        self.again(async |round| self.nonsense(round).await).await;
    }

    async fn nonsense(&self, round: usize) {
        let host = format!("n{}.evil.example", round % 40);
        let rules = [(host.as_str(), "/{;}\"'\\", "Prefix", "web")];
        let mut ingress = objects::ingress("nonsense", &self.stage.lb, &rules);
        ingress["metadata"]["annotations"] = json!({
            "bowline.dev/algorithm": "}\nlisten evil\n",
            "bowline.dev/persistence": "cookie; include /etc/passwd",
        });
        self.apply(ingress).await;
    }

    /// `externalIPs` over a whole pool that is for shop.
    async fn take_addresses(&self) {
        self.again(async |round| self.addresses(round).await).await;
    }

    async fn addresses(&self, round: usize) {
        let first = (round % 2) as u16 * 256;
        let addresses = (first..first + 250).map(|n| pool_address(self.stage, n));
        let mut service = objects::cluster_service("addresses", 80, TARGET);
        service["spec"]["externalIPs"] = json!(addresses.collect::<Vec<_>>());
        self.apply(service).await;
    }

    /// One write by which the fragments of all Ingresses of the crowd change.
    async fn change_what_a_crowd_uses(&self) {
        self.again(async |round| {
            let algorithm =
                if round.is_multiple_of(2) { "least-connections" } else { "round-robin" };
            let mut service = objects::cluster_service("crowd", 80, TARGET);
            service["metadata"]["annotations"] = json!({"bowline.dev/algorithm": algorithm});
            self.apply(service).await;
        })
        .await;
    }

    /// Members that never answer a check.
    async fn ask_for_slow_checks(&self) {
        let mut service = objects::service("slow", &self.stage.lb, &[(7_900, TARGET)]);
        service["metadata"]["annotations"]["bowline.dev/health-check"] = json!("tcp");
        self.apply(service).await;
        self.again(async |round| {
            let third = (round % 2) as u8;
            let silent = (0..250u8).map(|n| Endpoint::ready([10, 99, third, n].into()));
            let members: Vec<_> = silent.collect();
            self.apply(objects::slice("slow", ("", TARGET, "TCP"), &members)).await;
        })
        .await;
    }

    /// Connections to both ports of the Ingresses on which nothing is ever sent.
    async fn hold_connections(&self) {
        let from = net::client4();
        let mut open = Vec::new();
        while !self.is_over() {
            let port = if open.len() % 2 == 0 { 80 } else { 443 };
            if open.len() < 2 * IDLE
                && let Ok(connection) = self.stage.dial(port).from(from).tcp().await
            {
                open.push(connection);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Requests side by side on HTTP/2 with large heads, which are never finished.
    async fn hold_requests(&self) {
        const HOST: &str = "c0.evil.example";
        let config = self.authority.trusted(&["h2"]);
        let dial = self.stage.dial(443).from(net::client4()).tls(&config, HOST).http2();
        let (mut sessions, mut requests) = (Vec::new(), JoinSet::new());
        while !self.is_over() {
            // What was refused, or gave way to others, is begun again.
            if requests.is_empty() {
                sessions.clear();
                for _ in 0..SESSIONS {
                    sessions.extend(dial.session().await);
                }
                for mut request in
                    sessions.iter().flat_map(|it| (0..UNFINISHED).filter_map(|_| it.beside().ok()))
                {
                    let never = Request::slowly(HOST, "/", &["x", "y"], Duration::from_secs(600));
                    let never = never.header("x", &"y".repeat(14_000));
                    requests.spawn(async move { request.send(never).await });
                }
            }
            while requests.try_join_next().is_some() {}
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Datagrams, each from another port.
    async fn send_datagrams(&self) {
        self.apply(objects::udp_service("datagrams", &self.stage.lb, 7_901, TARGET)).await;
        let from = net::client4();
        while !self.is_over() {
            if let Ok(socket) = self.stage.dial(7_901).from(from).udp().await {
                let _ = socket.send(b"nothing").await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

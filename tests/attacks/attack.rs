//! Everything that evil does at once. Some of it is written with a pause between two writes, so that the API
//! itself stays quick on a small machine: what is attacked here is Bowline, not the API server.

use crate::stage::{Stage, TARGET};
use crate::tenants::{Evil, SHOP};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, net};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a single attack writes.
const PAUSE: Duration = Duration::from_millis(100);
/// Idle connections of evil's, to each of two ports.
const IDLE: usize = 250;
/// Ingresses that want what shop has.
const GREEDY: usize = 30;
/// Certificates, each of them in use.
const CERTIFICATES: usize = 40;
/// The bytes of a certificate's file that mean nothing.
const PADDING: usize = 30_000;

/// What evil has when it begins: so many Ingresses that lead to one Service.
pub(crate) async fn prepare(stage: &Stage, evil: &Evil, ingresses: usize) {
    evil.apply(stage, objects::cluster_service("crowd", 80, TARGET)).await;
    let crowd = stream::iter(0..ingresses).map(|n| async move {
        let (name, host) = (format!("crowd-{n}"), format!("crowd-{n}.evil.example"));
        let rules = [(host.as_str(), "/", "Prefix", "crowd")];
        evil.apply(stage, objects::ingress(&name, &stage.lb, &rules)).await;
    });
    crowd.buffer_unordered(8).collect::<()>().await;
}

/// All that evil does until it is over.
pub(crate) async fn attack(stage: &Stage, evil: &Evil, over: &AtomicBool) {
    let attacker = Attacker { stage, evil, over, authority: Authority::new() };
    tokio::join!(
        attacker.take_hosts(),
        attacker.take_ports(),
        attacker.change_members(),
        attacker.change_certificates(),
        attacker.write_nonsense(),
        attacker.change_what_a_crowd_uses(),
        attacker.ask_for_slow_checks(),
        attacker.hold_connections(),
        attacker.send_datagrams(),
    );
}

struct Attacker<'a> {
    stage: &'a Stage,
    evil: &'a Evil,
    over: &'a AtomicBool,
    authority: Authority,
}

impl Attacker<'_> {
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
        self.again(async |round| {
            let third = |n: u16| (n >> 8) as u8 + (round % 2) as u8 * 4;
            let nothing = (0..900u16).map(|n| IpAddr::from([10, 98, third(n), n as u8]));
            let members: Vec<_> = nothing.chain([self.stage.vip]).map(Endpoint::ready).collect();
            self.apply(objects::slice("web", ("", TARGET, "TCP"), &members)).await;
        })
        .await;
    }

    /// Padded certificates, more than evil's share of the room, each renewed again and again.
    async fn change_certificates(&self) {
        self.again(async |round| {
            let name = format!("c{}", round % CERTIFICATES);
            let host = format!("{name}.evil.example");
            let mut issued = self.authority.issue(&[&host]);
            issued.certificate.extend(std::iter::repeat_n('\n', PADDING));
            self.apply(objects::tls_secret(&name, &issued)).await;
            let rules = [(host.as_str(), "/", "Prefix", "web")];
            let mut ingress = objects::ingress(&name, &self.stage.lb, &rules);
            ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": name}]);
            self.apply(ingress).await;
        })
        .await;
    }

    /// Text that would be a directive if anything took it for one.
    async fn write_nonsense(&self) {
        self.again(async |round| {
            let host = format!("n{}.evil.example", round % 40);
            let rules = [(host.as_str(), "/{;}\"'\\", "Prefix", "web")];
            let mut ingress = objects::ingress("nonsense", &self.stage.lb, &rules);
            ingress["metadata"]["annotations"] = json!({
                "bowline.dev/algorithm": "}\nlisten evil\n",
                "bowline.dev/persistence": "cookie; include /etc/passwd",
            });
            self.apply(ingress).await;
        })
        .await;
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

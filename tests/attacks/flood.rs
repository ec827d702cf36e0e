//! Everything at once: evil writes what a tenant can write, as fast as the API lets it, and holds connections,
//! while shop's client asks without a pause and shop changes its own Service. Nothing of shop's may fail, and its
//! changes go live. How fast beside a quiet run is printed here and measured by `make bench`.

use crate::programs::Program;
use crate::stage::{Stage, TARGET};
use crate::tenants::{Changing, Evil, SHOP, shop, unharmed};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, net};
use serde_json::json;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a single attack writes.
const PAUSE: Duration = Duration::from_millis(100);
/// Changes of shop's, before the attack and during it.
const CHANGES: usize = 6;
/// Idle connections of evil's.
const IDLE: usize = 500;

/// Writes again and again until it is over; whether anything was written.
async fn again(over: &AtomicBool, mut write: impl AsyncFnMut(usize)) {
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        write(round).await;
        round += 1;
        tokio::time::sleep(PAUSE).await;
    }
    assert!(round > 0);
}

/// Members at which nothing answers, each time others, and one that leads round in a circle. (The API itself
/// refuses loopback and link-local addresses.)
fn members(stage: &Stage, round: usize) -> Vec<Endpoint> {
    let third = |n: u16| (n >> 8) as u8 + (round % 2) as u8 * 4;
    let nothing = (0..900u16).map(|n| IpAddr::from([10, 98, third(n), n as u8]));
    nothing.chain([stage.vip]).map(Endpoint::ready).collect()
}

/// All that evil does until it is over.
pub(crate) async fn attack(stage: &Stage, evil: &Evil, over: &AtomicBool) {
    let authority = Authority::new();
    let hosts = again(over, async |round| {
        let host = if round % 2 == 0 { SHOP } else { "old.example" };
        evil.ingress(stage, "old", &[host]).await;
    });
    let ports = again(over, async |round| {
        let first = 80 + (round % 2) as u16;
        let many: Vec<_> = [(80, TARGET), (443, TARGET)]
            .into_iter()
            .chain((0..200).map(|n| (7_000 + first + n, TARGET)))
            .collect();
        evil.apply(stage, objects::service("ports", &stage.lb, &many)).await;
    });
    let slices = again(over, async |round| {
        let all = members(stage, round);
        evil.apply(stage, objects::slice("web", ("", TARGET, "TCP"), &all)).await;
    });
    let certificates = again(over, async |round| {
        let host = format!("c{}.evil.example", round % 40);
        let name = format!("c{}", round % 40);
        evil.apply(stage, objects::tls_secret(&name, &authority.issue(&[&host]))).await;
        let mut ingress = objects::ingress(&name, &stage.lb, &[(&host, "/", "Prefix", "web")]);
        ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": name}]);
        evil.apply(stage, ingress).await;
    });
    let nonsense = again(over, async |round| {
        let host = format!("n{}.evil.example", round % 40);
        let rules = [(host.as_str(), "/{;}\n\"'\\", "Prefix", "web")];
        let mut ingress = objects::ingress("nonsense", &stage.lb, &rules);
        ingress["metadata"]["annotations"] = json!({
            "bowline.dev/algorithm": "}\nlisten evil\n",
            "bowline.dev/persistence": "cookie; include /etc/passwd",
        });
        ingress["spec"]["rules"][0]["http"]["paths"][0]["path"] = json!("/{;}\"'\\");
        evil.apply(stage, ingress).await;
    });
    let connections = async {
        let from = net::client4();
        let mut open = Vec::new();
        while !over.load(Ordering::Relaxed) {
            if open.len() < IDLE
                && let Ok(connection) = stage.dial(80).from(from).tcp().await
            {
                open.push(connection);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::join!(hosts, ports, slices, certificates, nonsense, connections);
}

/// How long shop's changes took to go live, sorted: in a quiet run, in another one, and while evil attacks.
pub(crate) struct Measured {
    pub(crate) quiet: Vec<Duration>,
    pub(crate) quiet_again: Vec<Duration>,
    pub(crate) attacked: Vec<Duration>,
}

/// So many changes of shop's in each run, while its client asks without a pause.
pub(crate) async fn measure(stage: &Stage, changes: usize) -> Measured {
    let evil = Evil::new(stage).await;
    let _web = evil.web(stage).await;
    evil.ingress(stage, "old", &["old.example"]).await;
    let _shop = shop(stage).await;
    let mut changing = Changing::new(stage).await;
    let dial = stage.dial(80);
    let quiet = unharmed(&dial, changing.changes(stage, changes)).await;
    let quiet_again = unharmed(&dial, changing.changes(stage, changes)).await;
    let over = AtomicBool::new(false);
    let shops = async {
        let attacked = changing.changes(stage, changes).await;
        over.store(true, Ordering::Relaxed);
        attacked
    };
    let attacked = unharmed(&dial, async {
        let (attacked, ()) = tokio::join!(shops, attack(stage, &evil, &over));
        attacked
    });
    let attacked = attacked.await;
    // And shop keeps its host and listeners.
    let answer = stage.dial(80).get(SHOP, "/").await.and_then(|it| it.echo());
    assert_eq!(answer.map(|it| it.name).as_deref(), Ok("shop"));
    Measured { quiet, quiet_again, attacked }
}

/// The middle one of sorted times, in milliseconds.
pub(crate) fn median(times: &[Duration]) -> f64 {
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn flooded(program: Program) {
    program.play(async |stage| {
        let Measured { quiet, quiet_again, attacked } = measure(stage, CHANGES).await;
        eprintln!(
            "{program:?}: shop's changes go live in {:.0} ms, again {:.0} ms, attacked {:.0} ms (medians of \
             {CHANGES})",
            median(&quiet),
            median(&quiet_again),
            median(&attacked)
        );
    });
}

#[test]
fn the_built_in_proxy_serves_a_tenant_while_another_does_all_it_can() {
    flooded(Program::Builtin);
}

#[test]
fn haproxy_serves_a_tenant_while_another_does_all_it_can() {
    flooded(Program::Haproxy);
}

#[test]
fn nginx_serves_a_tenant_while_another_does_all_it_can() {
    flooded(Program::Nginx);
}

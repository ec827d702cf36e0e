//! Everything at once: evil does all that a tenant can do, while shop's client asks without a pause and shop changes
//! what it has. Nothing of shop's may fail, its address stays in its status, and its changes go live. How fast
//! beside quiet runs is printed here and measured by `make bench`.

use crate::attack::{Attacker, prepare};
use crate::changes::{Changes, Kind, Run};
use crate::programs::Program;
use crate::stage::Stage;
use crate::tenants::{Evil, SHOP, shop, unharmed};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How much is done.
pub(crate) struct Extent {
    /// Changes of each kind in a run.
    pub(crate) changes: usize,
    /// Runs without an attack.
    pub(crate) quiet: usize,
    /// Ingresses of evil's that lead to one Service.
    pub(crate) crowd: usize,
}

/// How long shop's changes took to go live.
pub(crate) struct Measured {
    pub(crate) quiet: Vec<Run>,
    pub(crate) attacked: Run,
}

impl Measured {
    /// The medians of the quiet runs in milliseconds, the least first.
    pub(crate) fn quiet(&self, kind: Kind) -> Vec<f64> {
        let mut medians: Vec<_> = self.quiet.iter().map(|run| median(&run[&kind])).collect();
        medians.sort_by(f64::total_cmp);
        medians
    }
}

/// The middle one of sorted times, in milliseconds.
pub(crate) fn median(times: &[Duration]) -> f64 {
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Shop's changes in quiet runs, and then while evil attacks. Shop's client asks without a pause all the time.
pub(crate) async fn measure(stage: &Stage, extent: &Extent) -> Measured {
    let evil = Evil::new(stage).await;
    let _web = evil.web(stage).await;
    evil.ingress(stage, "old", &["old.example"]).await;
    let _shop = shop(stage).await;
    let mut changes = Changes::new(stage).await;
    prepare(stage, &evil, extent.crowd).await;
    let dial = stage.dial(80);
    let mut quiet = Vec::new();
    for _ in 0..extent.quiet {
        quiet.push(unharmed(&dial, changes.run(stage, extent.changes)).await);
    }
    let over = AtomicBool::new(false);
    let shops = async {
        let run = changes.run(stage, extent.changes).await;
        over.store(true, Ordering::Relaxed);
        run
    };
    let attacker = Attacker::new(stage, &evil, &over);
    let attacked = unharmed(&dial, async {
        attacker.want_too_much().await;
        let attack = attacker.attack();
        let (run, (), ()) = tokio::join!(shops, attack, keeps_its_address(stage, &over));
        run
    });
    let attacked = attacked.await;
    let answer = dial.get(SHOP, "/").await.and_then(|it| it.echo());
    assert_eq!(answer.map(|it| it.name).as_deref(), Ok("shop"));
    stage.told_in(&evil.namespace, "Ingress", "old", "HostTaken").await;
    stage.told_in(&evil.namespace, "Service", "ports", "PortTaken").await;
    Measured { quiet, attacked }
}

/// The status of shop's Ingress shows the addresses of the load balancer until it is over.
async fn keeps_its_address(stage: &Stage, over: &AtomicBool) {
    let shown = stage.has_addresses("Ingress", "web", &[stage.vip, stage.vip6]).await;
    while !over.load(Ordering::Relaxed) {
        let now = stage.read("Ingress", "web").await;
        assert_eq!(now["status"]["loadBalancer"]["ingress"], shown);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn flooded(program: Program) {
    program.play(async |stage| {
        let measured = measure(stage, &Extent { changes: 1, quiet: 1, crowd: 100 }).await;
        for kind in Kind::ALL {
            let (quiet, attacked) = (measured.quiet(kind)[0], median(&measured.attacked[&kind]));
            eprintln!(
                "{program:?}: a change of {kind:?} goes live in {quiet:.0} ms, attacked in {attacked:.0} ms \
                 ({:.1} times as long)",
                attacked / quiet
            );
        }
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

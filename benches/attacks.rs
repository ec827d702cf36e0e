//! `make bench`: how soon a tenant's own changes go live while another tenant of the same load balancer does all
//! that a tenant can do, compared with quiet runs. Several quiet runs show the normal variation. The first tenant
//! sends requests all the time; one failed request ends the run. Asserts nothing about time.
#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

#[path = "../tests/attacks/attack.rs"]
mod attack;
#[path = "../tests/attacks/changes.rs"]
mod changes;
#[path = "../tests/attacks/flood.rs"]
#[allow(dead_code, reason = "shared with the attacks tests; each uses its part")]
mod flood;
#[path = "../tests/attacks/programs.rs"]
#[allow(dead_code, reason = "shared with the attacks tests; each uses its part")]
mod programs;
#[path = "../tests/traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;
#[path = "../tests/attacks/tenants.rs"]
mod tenants;

use changes::Kind;
use flood::{Extent, Measured, measure, median};
use programs::Program;

const EXTENT: Extent = Extent { changes: 10, quiet: 3, crowd: 500 };

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for program in [Program::Builtin, Program::Haproxy, Program::Nginx] {
        let name = format!("attacks-{program:?}").to_lowercase();
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            program.play(async |stage| print(&name, &measure(stage, &EXTENT).await));
        }
    }
}

fn print(name: &str, measured: &Measured) {
    let Extent { changes, quiet: runs, crowd } = EXTENT;
    println!(
        "{name}   medians of {changes} changes; {runs} quiet runs; {crowd} Ingresses attack; no request failed"
    );
    for kind in Kind::ALL {
        let quiet = measured.quiet(kind);
        let (least, middle, most) = (quiet[0], quiet[quiet.len() / 2], quiet[quiet.len() - 1]);
        let attacked = &measured.attacked[&kind];
        let longest = attacked.last().map(|it| it.as_secs_f64() * 1e3).unwrap_or_default();
        println!(
            "{name}   {:<12} quiet {middle:.1} ms (runs {:.2} to {:.2} ×), attacked {:.1} ms ({:.2} ×, longest \
             {longest:.0} ms)",
            format!("{kind:?}").to_lowercase(),
            least / middle,
            most / middle,
            median(attacked),
            median(attacked) / middle,
        );
    }
}

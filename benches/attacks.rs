//! `make bench`: how soon a tenant's own change goes live while another tenant of the same load balancer does all
//! that a tenant can do, beside quiet runs. Two quiet runs show how much a run differs by itself. Requests of the
//! first tenant go on all the time; one that fails ends the run. Asserts nothing about time.
#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

#[path = "../tests/attacks/flood.rs"]
#[allow(dead_code, reason = "shared with the attacks tests; each uses its part")]
mod flood;
#[path = "../tests/attacks/programs.rs"]
mod programs;
#[path = "../tests/traffic/stage.rs"]
#[allow(dead_code, reason = "shared with the traffic tests; each uses its part")]
mod stage;
#[path = "../tests/attacks/tenants.rs"]
mod tenants;

use flood::{Measured, measure, median};
use programs::Program;

/// Changes in each run.
const CHANGES: usize = 30;

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for program in [Program::Builtin, Program::Haproxy, Program::Nginx] {
        let name = format!("attacks-{program:?}").to_lowercase();
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            program.play(async |stage| print(&name, &measure(stage, CHANGES).await));
        }
    }
}

fn print(name: &str, Measured { quiet, quiet_again, attacked }: &Measured) {
    let (first, second, under) = (median(quiet), median(quiet_again), median(attacked));
    let longest = attacked.last().map(|it| it.as_secs_f64() * 1e3).unwrap_or_default();
    println!(
        "{name}   a change goes live after {first:.1} ms, in another quiet run {second:.1} ms ({:.2} ×), attacked \
         {under:.1} ms ({:.2} ×, longest {longest:.0} ms); medians of {CHANGES}, no request failed",
        second / first,
        under / first,
    );
}

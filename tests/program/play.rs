//! A stage whose agent drives the program of this binary's `edge`, and words for what is seen through it.

use crate::edge::{args, folder, master_in};
use crate::stage::{Stage, play_with};
use bowline_testing::{Dial, eventually, until};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program outlives an agent that is killed, as stages end theirs: it is ended with the test.
#[derive(Default)]
struct Left(Mutex<Option<String>>);

impl Drop for Left {
    fn drop(&mut self) {
        let Some(lb) = self.0.lock().ok().and_then(|mut lb| lb.take()) else { return };
        if let Some(pid) = master_in(&folder(&lb)) {
            signal(pid, "TERM");
        }
        let _ = std::fs::remove_dir_all(folder(&lb));
    }
}

/// Runs a test on a stage whose agent drives the program.
pub(crate) fn play(test: impl AsyncFnOnce(&mut Stage)) {
    let left = Left::default();
    let args = |lb: &str| {
        *left.0.lock().expect("no panic") = Some(lb.to_owned());
        args(lb)
    };
    play_with(&args, test);
}

/// Sends a signal to a process that this test started; whether it was still there.
pub(crate) fn try_signal(pid: u32, name: &str) -> bool {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    sent.expect("kill").success()
}

/// The same with one that must be there.
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(try_signal(pid, name), "kill -{name} {pid}");
}

/// The pid of its master. One that has just reloaded is away for a moment.
pub(crate) fn master(lb: &str) -> u32 {
    until("a master", || master_in(&folder(lb)).ok_or_else(|| "none".to_owned()))
}

/// A client that asks without a pause while something else happens: none of its requests may fail.
pub(crate) async fn unharmed<T>(dial: &Dial, host: &str, something: impl Future<Output = T>) -> T {
    let over = AtomicBool::new(false);
    let (mut good, mut bad) = (0, Vec::new());
    let client = async {
        while !over.load(Ordering::Relaxed) {
            match dial.get(host, "/").await {
                Ok(answer) if answer.status == 200 => good += 1,
                Ok(answer) => bad.push(format!("{}: {}", answer.status, answer.text())),
                Err(why) => bad.push(why),
            }
        }
    };
    let happens = async {
        let value = something.await;
        over.store(true, Ordering::Relaxed);
        value
    };
    let (value, ()) = tokio::join!(happens, client);
    assert!(bad.is_empty(), "{} of {} failed: {:?}", bad.len(), good + bad.len(), bad.first());
    assert!(good > 0);
    value
}

/// Waits until the status of an Ingress says that it is in force: from then on no request may meet what was before.
pub(crate) async fn in_force(stage: &Stage, ingress: &str) {
    stage.has_addresses("Ingress", ingress, &[stage.vip, stage.vip6]).await;
}

/// How often each answers of so many requests for a host, once all of them are answered: its members may reach the
/// agent after its plan.
pub(crate) async fn counts(dial: &Dial, host: &str, requests: usize) -> BTreeMap<String, usize> {
    eventually(&format!("{requests} answers of {host}"), || async {
        let mut counts = BTreeMap::new();
        for _ in 0..requests {
            *counts.entry(dial.get(host, "/").await?.echo()?.name).or_insert(0) += 1;
        }
        Ok(counts)
    })
    .await
}

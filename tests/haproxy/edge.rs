//! A stage whose agent drives HAProxy, and what can be seen of that HAProxy from outside.

use crate::stage::{Stage, play_with};
use bowline_testing::{Dial, eventually};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where the HAProxy of a load balancer has its files. Short: sockets have short names.
pub(crate) fn folder(lb: &str) -> PathBuf {
    std::env::temp_dir().join(format!("bhx-{}-{lb}", std::process::id()))
}

/// The HAProxy that is tested: another than the usual one if its path is in `BOWLINE_TEST_HAPROXY`.
fn program() -> String {
    let usual = "/usr/sbin/haproxy";
    let other = std::env::var("BOWLINE_TEST_HAPROXY").ok();
    other.unwrap_or_else(|| if Path::new(usual).exists() { usual } else { "haproxy" }.to_owned())
}

/// What the agent of a load balancer is started with.
pub(crate) fn args(lb: &str) -> Vec<String> {
    let folder = folder(lb).display().to_string();
    let program = program();
    let mut args = vec!["--driver", "haproxy", "--exec", "--haproxy-program", &program];
    args.extend(["--haproxy-folder", &folder, "--min-reload-interval", "1"]);
    args.into_iter().map(str::to_owned).collect()
}

/// HAProxy outlives an agent that is killed, as stages end theirs: it is ended with the test.
#[derive(Default)]
struct Left(Mutex<Option<String>>);

impl Drop for Left {
    fn drop(&mut self) {
        let Some(lb) = self.0.lock().ok().and_then(|mut lb| lb.take()) else { return };
        if let Some(pid) = try_master(&lb) {
            signal(pid, "TERM");
        }
        let _ = std::fs::remove_dir_all(folder(&lb));
    }
}

/// Runs a test on a stage whose agent drives HAProxy.
pub(crate) fn play(test: impl AsyncFnOnce(&mut Stage)) {
    let left = Left::default();
    let args = |lb: &str| {
        *left.0.lock().expect("no panic") = Some(lb.to_owned());
        args(lb)
    };
    play_with(&args, test);
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill").success(), "kill -{name} {pid}");
}

/// What HAProxy answers at one of its sockets.
pub(crate) fn ask(lb: &str, socket: &str, message: &str) -> Result<String, String> {
    ask_at(&folder(lb).join(socket), message)
}

fn ask_at(socket: &Path, message: &str) -> Result<String, String> {
    let asking = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{message}\n").as_bytes())?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    asking().map_err(|error| error.to_string())
}

/// What its master says. One that has just reloaded is away for a moment.
fn processes(lb: &str) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match ask(lb, "master.sock", "show proc") {
            Ok(answer) => return answer,
            Err(why) if Instant::now() >= until => panic!("no master: {why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Pids of its workers, without those that only finish what they have.
pub(crate) fn workers(lb: &str) -> Vec<u32> {
    let answer = processes(lb);
    let worker = |line: &str| {
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        (words.next()? == "worker").then_some(pid)
    };
    answer.lines().take_while(|line| !line.starts_with("# old")).filter_map(worker).collect()
}

/// The pid of its master.
pub(crate) fn master(lb: &str) -> u32 {
    processes(lb);
    try_master(lb).expect("a master")
}

fn try_master(lb: &str) -> Option<u32> {
    master_in(&folder(lb))
}

/// The pid of the master whose socket is in this folder, if it answers.
pub(crate) fn master_in(folder: &Path) -> Option<u32> {
    let answer = ask_at(&folder.join("master.sock"), "show proc").ok()?;
    let line = answer.lines().find(|line| line.contains("master"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Waits until no request is answered by anybody but these, and each of them answers.
pub(crate) async fn answered_by(dial: &Dial, host: &str, names: &[&str]) {
    eventually(&format!("{host} is answered by {names:?}"), || async {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..names.len() * 6 {
            seen.insert(dial.get(host, "/").await?.echo()?.name);
        }
        let want: std::collections::BTreeSet<_> = names.iter().map(|&it| it.to_owned()).collect();
        if seen == want { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

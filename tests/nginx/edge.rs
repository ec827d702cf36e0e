//! A stage whose agent drives nginx, and what can be seen of that nginx from outside.

use crate::stage::{Stage, play_with};
use bowline_testing::{Dial, eventually};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where the nginx of a load balancer has its files. Short: sockets have short names.
pub(crate) fn folder(lb: &str) -> PathBuf {
    std::env::temp_dir().join(format!("bng-{}-{lb}", std::process::id()))
}

/// What the agent of a load balancer is started with.
pub(crate) fn args(lb: &str) -> Vec<String> {
    let folder = folder(lb).display().to_string();
    let usual = "/usr/sbin/nginx";
    let program = if Path::new(usual).exists() { usual } else { "nginx" };
    let mut args = vec!["--driver", "nginx", "--exec", "--nginx-program", program];
    args.extend(["--nginx-folder", &folder, "--min-reload-interval", "1", "--access-log"]);
    args.into_iter().map(str::to_owned).collect()
}

/// nginx outlives an agent that is killed, as stages end theirs: it is ended with the test.
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

/// Runs a test on a stage whose agent drives nginx.
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

/// The process that answers at the status socket.
fn answering(lb: &str) -> Option<u32> {
    let mut stream = UnixStream::connect(folder(lb).join("status.sock")).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.trim_end().rsplit(' ').next()?.parse().ok()
}

fn status(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

fn parent(pid: u32) -> Option<u32> {
    status(pid).lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn try_master(lb: &str) -> Option<u32> {
    parent(answering(lb)?).filter(|pid| title(*pid).starts_with("nginx: master"))
}

fn title(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// The pid of its master.
pub(crate) fn master(lb: &str) -> u32 {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match try_master(lb) {
            Some(pid) => return pid,
            None if Instant::now() >= until => panic!("no master"),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Pids of its workers, without those that only finish what they have.
pub(crate) fn workers(lb: &str) -> BTreeSet<u32> {
    let master = master(lb);
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let mine = pids.filter(|pid| parent(*pid) == Some(master));
    mine.filter(|pid| !title(*pid).contains("shutting down")).collect()
}

/// Waits until no request is answered by anybody but these, and each of them answers.
pub(crate) async fn answered_by(dial: &Dial, host: &str, names: &[&str]) {
    let want: BTreeSet<_> = names.iter().map(|&it| it.to_owned()).collect();
    eventually(&format!("{host} is answered by {names:?}"), || async {
        let mut seen = BTreeSet::new();
        for _ in 0..names.len() * 6 {
            seen.insert(dial.get(host, "/").await?.echo()?.name);
        }
        if seen == want { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

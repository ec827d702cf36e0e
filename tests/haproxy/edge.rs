//! A stage whose agent drives HAProxy, and what can be seen of that HAProxy from outside.

use crate::play::try_signal;
use bowline_testing::until;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How its metrics begin.
pub(crate) const METRICS: &str = "bowline_haproxy_";
/// The flag that names the program.
pub(crate) const PROGRAM_FLAG: &str = "--haproxy-program";
/// Whether a shell script in its place is asked for a check.
pub(crate) const IS_CHECK: &str = "[ \"$1\" = -c ]";
/// The socket by which the agent knows it.
pub(crate) const SOCKET: &str = "admin.sock";
/// The folder of its example.
pub(crate) const EXAMPLE: &str = "haproxy";
/// What the README of its example prints, but for what servers answer.
pub(crate) const PRINTED: &[&str] =
    &["bowline_haproxy_reloads_total 0", "backend ingress:default:web:web:"];
/// Whether it learns of members while it runs.
pub(crate) const LEARNS: bool = true;
/// What clients send who meet no failure whatever changes.
pub(crate) const UNHARMED: &[&str] = &[];

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
    args.extend(["--haproxy-folder", &folder, "--min-reload-interval", "1", "--access-log"]);
    args.into_iter().map(str::to_owned).collect()
}

/// What HAProxy answers at one of its sockets.
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
    until("a master that answers", || ask_at(&folder(lb).join("master.sock"), "show proc"))
}

/// Pids of its workers, without those that only finish what they have.
pub(crate) fn workers(lb: &str) -> BTreeSet<u32> {
    let answer = processes(lb);
    let worker = |line: &str| {
        let mut words = line.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        (words.next()? == "worker").then_some(pid)
    };
    answer.lines().take_while(|line| !line.starts_with("# old")).filter_map(worker).collect()
}

/// The pid of the master whose socket is in this folder, if it answers.
pub(crate) fn master_in(folder: &Path) -> Option<u32> {
    let answer = ask_at(&folder.join("master.sock"), "show proc").ok()?;
    let line = answer.lines().find(|line| line.contains("master"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Those of its processes that outlive a change of members, hosts and certificates.
pub(crate) fn steady(lb: &str) -> BTreeSet<u32> {
    workers(lb)
}

/// Ends it without a word. Its master ends with its worker.
pub(crate) fn kill(lb: &str) {
    for worker in workers(lb) {
        try_signal(worker, "KILL");
    }
}

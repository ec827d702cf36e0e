//! A stage whose agent drives nginx, and what can be seen of that nginx from outside.

use crate::play::{master, signal, try_signal};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How its metrics begin.
pub(crate) const METRICS: &str = "bowline_nginx_";
/// The flag that names the program.
pub(crate) const PROGRAM_FLAG: &str = "--nginx-program";
/// Whether a shell script in its place is asked for a check.
pub(crate) const IS_CHECK: &str = "[ \"$3\" = -t ]";
/// The socket by which the agent knows it.
pub(crate) const SOCKET: &str = "status.sock";
/// The folder of its example.
pub(crate) const EXAMPLE: &str = "nginx";
/// What the README of its example prints, but for what servers answer.
pub(crate) const PRINTED: &[&str] =
    &["bowline_nginx_drift_total 0", "    upstream ingress_default_web_web_ {"];
/// Whether it learns of members while it runs.
pub(crate) const LEARNS: bool = false;
/// What clients send who meet no failure whatever changes.
pub(crate) const UNHARMED: &[&str] = &["-H", "Connection: close"];

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

/// The process that answers at the status socket.
fn answering(socket: &Path) -> Option<u32> {
    let mut stream = UnixStream::connect(socket).ok()?;
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

/// The pid of the master whose socket is in this folder, if it answers.
pub(crate) fn master_in(folder: &Path) -> Option<u32> {
    let sockets = [SOCKET, "status-2.sock"].map(|name| folder.join(name));
    let answering = sockets.iter().find_map(|socket| answering(socket))?;
    parent(answering).filter(|pid| title(*pid).starts_with("nginx: master"))
}

fn title(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// Pids of its workers, without those that only finish what they have.
pub(crate) fn workers(lb: &str) -> BTreeSet<u32> {
    let master = master(lb);
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let mine = pids.filter(|pid| parent(*pid) == Some(master));
    mine.filter(|pid| !title(*pid).contains("shutting down")).collect()
}

/// Those of its processes that outlive a change of members, hosts and certificates.
pub(crate) fn steady(lb: &str) -> BTreeSet<u32> {
    BTreeSet::from([master(lb)])
}

/// Ends it without a word.
pub(crate) fn kill(lb: &str) {
    let workers = workers(lb);
    // First, so that it replaces none of them.
    signal(master(lb), "KILL");
    for worker in workers {
        try_signal(worker, "KILL");
    }
}

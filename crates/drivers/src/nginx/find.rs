//! Finds nginx's processes: by their titles, by their parents, and by the status socket that they hold, also after its
//! file was removed. It only reads `/proc` and sends signals; the nginx driver calls it.

use crate::program::process;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The titles of nginx's processes.
const MASTER: &str = "nginx: master process";
const WORKER: &str = "nginx: worker process";

/// The kernel's flag for a process that was forked and has not executed another program since (`PF_FORKNOEXEC`).
const FORKED: u64 = 0x40;

/// The minimum time between the forks of two loads, in hundredths of a second: nginx waits for a tenth of a second
/// before it tells the earlier processes to end, and loads nothing meanwhile.
const EARLIER: u64 = 9;

/// Whether this process is an nginx master.
pub(super) fn is_master(pid: u32) -> bool {
    title(pid).starts_with(MASTER) && !begins(pid)
}

/// Whether this is a new worker that has not run yet: until then it has its master's title.
fn begins(pid: u32) -> bool {
    let of_master = |stat: Stat| stat.forked && title(stat.parent).starts_with(MASTER);
    title(pid).starts_with(MASTER) && stat(pid).is_some_and(of_master)
}

/// Whether a master has a worker from an earlier load than `worker`'s that still accepts connections.
pub(super) fn has_older(master: u32, worker: u32) -> bool {
    let Some(this) = stat(worker) else { return true };
    let began = |pid: u32| stat(pid).map(|it| it.began);
    workers(master).into_iter().filter_map(began).any(|began| began + EARLIER <= this.began)
}

/// The master of an nginx process, if it is alive.
pub(super) fn master_of(pid: u32) -> Option<u32> {
    parent(pid).filter(|master| is_master(*master))
}

/// The workers of a master that accept connections, or soon will.
pub(super) fn workers(master: u32) -> Vec<u32> {
    pids().filter(|pid| takes_connections(*pid) && parent(*pid) == Some(master)).collect()
}

/// The workers of a master that finish their connections, one list for each load, oldest first.
pub(super) fn finishing(master: u32) -> Vec<Vec<u32>> {
    let finishes = |pid: &u32| title(*pid).starts_with(WORKER) && !takes_connections(*pid);
    let finishing = pids().filter(finishes).filter_map(|pid| Some((pid, stat(pid)?)));
    let finishing = finishing.filter(|(_, stat)| stat.parent == master);
    by_load(finishing.map(|(pid, stat)| (stat.began, pid)).collect())
}

/// Groups processes by load. Each comes with the time of its fork.
fn by_load(mut forked: Vec<(u64, u32)>) -> Vec<Vec<u32>> {
    forked.sort_unstable();
    let mut loads: Vec<(u64, Vec<u32>)> = Vec::new();
    for (began, pid) in forked {
        match loads.last_mut() {
            Some((last, pids)) if began < *last + EARLIER => {
                *last = began;
                pids.push(pid);
            }
            _ => loads.push((began, vec![pid])),
        }
    }
    loads.into_iter().map(|(_, pids)| pids).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

/// Whether an nginx process accepts connections, or soon will. A worker that ends says so in its title, and has closed
/// its listeners by then.
pub(super) fn takes_connections(pid: u32) -> bool {
    let title = title(pid);
    title.starts_with(WORKER) && !title.contains("shutting down") || begins(pid)
}

fn title(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// The kernel's information about a process.
struct Stat {
    parent: u32,
    /// Whether it runs the same program as its parent.
    forked: bool,
    /// When it was forked, in hundredths of a second.
    began: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name, in parentheses, and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: field(4)?.try_into().ok()?,
        forked: field(9)? & FORKED != 0,
        began: field(22)?,
    })
}

fn parent(pid: u32) -> Option<u32> {
    Some(stat(pid)?.parent)
}

/// The sockets at these paths, by inode. The kernel keeps the path of a socket with a removed file.
fn sockets(paths: &[PathBuf]) -> BTreeMap<u64, &PathBuf> {
    // num, references, protocol, flags, type, state, inode, path
    let all = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    let socket = |line: &str| {
        let path = paths.iter().find(|path| line.ends_with(&format!(" {}", path.display())))?;
        Some((line.split_whitespace().nth(6)?.parse().ok()?, path))
    };
    all.lines().filter_map(socket).collect()
}

fn holds<'a>(pid: u32, sockets: &BTreeMap<u64, &'a PathBuf>) -> Option<&'a PathBuf> {
    let held = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let inode = |link: PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    };
    let mut inodes = held.filter_map(|it| inode(fs::read_link(it.path()).ok()?));
    inodes.find_map(|inode| sockets.get(&inode).copied())
}

/// The one of these sockets that a process holds.
pub(super) fn socket_of(pid: u32, paths: &[PathBuf]) -> Option<PathBuf> {
    holds(pid, &sockets(paths)).cloned()
}

/// The nginx processes that hold one of these sockets.
pub(super) fn holders(paths: &[PathBuf]) -> Vec<u32> {
    let sockets = sockets(paths);
    if sockets.is_empty() {
        return Vec::new();
    }
    pids()
        .filter(|pid| title(*pid).starts_with("nginx: ") && holds(*pid, &sockets).is_some())
        .collect()
}

/// Sends a signal, but only to a process with an nginx title, since pids are reused.
pub(super) fn signal(pid: u32, signal: Signal) -> bool {
    title(pid).starts_with("nginx: ") && process::signal(pid, signal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    /// Starts a shell with an nginx title. It prints its own and its child's pid, and waits.
    fn shell(name: &str, script: &str) -> (std::process::Child, Vec<u32>) {
        let run = format!("exec -a '{name}' bash -c '{script}\necho $$ $!\nread'");
        let mut child = Command::new("bash")
            .args(["-c", &run])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut line = String::new();
        let mut printed = BufReader::new(child.stdout.take().expect("its output"));
        printed.read_line(&mut line).expect("a line");
        let pids = line.split_whitespace().map(|it| it.parse().expect("a pid")).collect();
        (child, pids)
    }

    #[test]
    fn a_worker_that_has_not_run_yet_counts_as_one_and_not_as_a_master() {
        // A shell forks without executing a program, so the title stays; a process that executes one is a master of its
        // own, as in an upgrade of nginx.
        let (mut master, pids) =
            shell("nginx: master process /usr/sbin/nginx", "(kill -STOP $BASHPID) &");
        assert_eq!((is_master(pids[0]), is_master(pids[1])), (true, false));
        assert_eq!(workers(pids[0]), [pids[1]]);
        assert!(!has_older(pids[0], pids[1]));
        process::signal(pids[1], Signal::SIGKILL);
        master.kill().expect("it runs");
        master.wait().expect("it ends");

        let another = "(exec -a \"nginx: master process new\" sleep 60) &";
        let (mut master, pids) = shell("nginx: master process /usr/sbin/nginx", another);
        let other = pids[1];
        while !title(other).starts_with("nginx: master process new") {
            std::thread::yield_now();
        }
        assert!(is_master(other) && workers(pids[0]).is_empty());
        process::signal(other, Signal::SIGKILL);
        master.kill().expect("it runs");
        master.wait().expect("it ends");
    }

    #[test]
    fn processes_that_were_forked_together_are_of_one_load() {
        let forked = vec![(530, 7), (100, 1), (101, 3), (105, 2), (520, 6), (300, 4), (308, 5)];
        assert_eq!(by_load(forked), [vec![1, 3, 2], vec![4, 5], vec![6], vec![7]]);
        assert!(by_load(Vec::new()).is_empty());
    }

    #[test]
    fn one_that_ends_takes_no_connections() {
        for (name, takes) in [
            ("nginx: worker process", true),
            ("nginx: worker process is shutting down", false),
            ("nginx: cache manager process", false),
        ] {
            let (mut child, pids) = shell(name, "true");
            assert_eq!(takes_connections(pids[0]), takes, "{name}");
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }
}

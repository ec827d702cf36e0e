//! Finding nginx's processes: by how they call themselves, by whose children they are, and by the status socket
//! that they hold, which they go on holding when somebody removes its file.

use crate::program::process;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// How nginx calls its processes.
const MASTER: &str = "nginx: master process";
const WORKER: &str = "nginx: worker process";

/// Whether this process is a master of nginx.
pub(super) fn is_master(pid: u32) -> bool {
    title(pid).starts_with(MASTER)
}

/// The master of a process of nginx, if it is alive.
pub(super) fn master_of(pid: u32) -> Option<u32> {
    parent(pid).filter(|master| is_master(*master))
}

/// Those processes of a master that take connections.
pub(super) fn workers(master: u32) -> Vec<u32> {
    pids().filter(|pid| takes_connections(*pid) && parent(*pid) == Some(master)).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|it| it.file_name().to_str()?.parse().ok())
}

/// Whether a process of nginx still takes connections: one that ends says so in its title, and is deaf by then.
pub(super) fn takes_connections(pid: u32) -> bool {
    let title = title(pid);
    title.starts_with(WORKER) && !title.contains("shutting down")
}

fn title(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// The sockets at these paths, by inode. The kernel keeps the path of a socket whose file is gone.
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

/// Which of these sockets a process holds.
pub(super) fn socket_of(pid: u32, paths: &[PathBuf]) -> Option<PathBuf> {
    holds(pid, &sockets(paths)).cloned()
}

/// Those processes of nginx that hold one of these sockets.
pub(super) fn holders(paths: &[PathBuf]) -> Vec<u32> {
    let sockets = sockets(paths);
    if sockets.is_empty() {
        return Vec::new();
    }
    pids()
        .filter(|pid| title(*pid).starts_with("nginx: ") && holds(*pid, &sockets).is_some())
        .collect()
}

/// Sends a signal, only to what calls itself nginx: pids are given out again.
pub(super) fn signal(pid: u32, signal: Signal) -> bool {
    title(pid).starts_with("nginx: ") && process::signal(pid, signal)
}

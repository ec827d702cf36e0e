//! Processes of any program: runs one to ask or to check a file, starts one, and sends signals. It decides nothing;
//! drivers call it.

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The timeout of a check.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many files a process may open after it raises its soft limit.
pub(crate) fn files() -> u64 {
    /// The answer for a system without a limit.
    const MOST: u64 = 1 << 20;
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard.min(MOST))
}

/// Everything that a program prints with this argument.
pub(crate) async fn ask(program: &Path, question: &str) -> io::Result<String> {
    let output = Command::new(program).arg(question).stdin(Stdio::null()).output().await?;
    let printed = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// The complaint of a program about a file; none if it would load it.
pub(crate) async fn check(
    program: &Path,
    args: &[&str],
    config: &Path,
) -> io::Result<Option<String>> {
    let mut command = Command::new(program);
    command.args(args).arg(config).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(output) => output?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the check takes too long")),
    };
    if output.status.code().is_none() {
        // It may have been killed for lack of memory, which says nothing about the file.
        return Err(io::Error::other(format!("the check was ended: {}", output.status)));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success()).then(|| said.into_owned()))
}

/// Starts a program that outlives a killed agent, so that traffic goes on. The next agent finds and adopts it.
pub(crate) fn start(
    program: &Path,
    args: &[&str],
    config: &Path,
    stderr: Stdio,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(args).arg(config);
    command.stdin(Stdio::null()).stderr(stderr).process_group(0).kill_on_drop(false).spawn()
}

/// Whether the process runs.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Sends a signal. False: no such process, or it must not get signals from us.
pub(crate) fn signal(pid: u32, signal: Signal) -> bool {
    i32::try_from(pid).is_ok_and(|pid| pid > 1 && kill(Pid::from_raw(pid), signal).is_ok())
}

/// Terminates a process if it is a child of `parent` as seen from here. The check is needed because pids are reused,
/// and a process in another container has a pid of that container.
pub(crate) fn end_child(pid: u32, parent: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut found = status.lines().filter_map(|line| line.strip_prefix("PPid:"));
    parent > 1 && found.any(|it| it.trim() == parent.to_string()) && signal(pid, Signal::SIGTERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_child_of_the_process_that_is_named_is_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let own = std::process::id();
        assert!(!end_child(child.id(), child.id()));
        assert!(!end_child(own, own));
        assert!(child.try_wait().expect("known").is_none());
        assert!(end_child(child.id(), own));
        child.wait().expect("it ends");
    }

    #[tokio::test]
    async fn a_check_that_was_killed_says_nothing_of_the_file() {
        let config = Path::new("config");
        let check = async |script| check(Path::new("/bin/sh"), &["-c", script], config).await;
        check("kill -9 $$").await.expect_err("nothing is known");
        assert_eq!(check("echo no >&2; exit 1").await.expect("known"), Some("no\n".to_owned()));
        assert_eq!(check("exit 0").await.expect("known"), None);
    }
}

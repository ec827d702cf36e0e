//! The program itself: asking it for its version, letting it check a file, starting it and letting it go.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The oldest HAProxy that can be told of servers without experiments.
const OLDEST: (u32, u32) = (2, 6);
/// How long a check may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The oldest HAProxy that can be told of backends while it runs.
const ADDS_BACKENDS: (u32, u32) = (3, 4);

/// The version in what `haproxy -v` prints, if it is new enough; else why not.
pub(super) fn usable(printed: &str) -> Result<&str, String> {
    let version = printed.split_whitespace().skip_while(|word| *word != "version").nth(1);
    let version = version.ok_or_else(|| format!("no version in {:?}", printed.lines().next()))?;
    if numbers(version) < OLDEST {
        return Err(format!("HAProxy {version} cannot be told of servers while it runs; 2.6 can"));
    }
    Ok(version)
}

/// Whether a HAProxy of this version can be told of backends while it runs.
pub(super) fn adds_backends(version: &str) -> bool {
    numbers(version) >= ADDS_BACKENDS
}

fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|it| it.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// What `haproxy -v` prints.
pub(super) async fn version(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("-v").stdin(Stdio::null()).output().await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What HAProxy has against a file; nothing if it would load it.
pub(super) async fn check(program: &Path, config: &Path) -> io::Result<Option<String>> {
    let mut command = Command::new(program);
    command.arg("-c").arg("-f").arg(config).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(output) => output?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the check takes too long")),
    };
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let alert = said.lines().find(|line| line.contains("[ALERT]")).unwrap_or(said.trim());
    // Without the pid and the path of the file, which mean nothing to who reads it.
    let alert = alert.split(" : ").skip(1).last().unwrap_or(alert);
    Ok(Some(alert.chars().take(300).collect()))
}

/// Starts HAProxy with a master, which reloads when it is told to. It outlives us if we are killed, so that
/// traffic goes on; who comes after us finds it by its socket.
pub(super) fn start(program: &Path, config: &Path, master: &Path) -> io::Result<Child> {
    let socket = format!("{},mode,600,level,admin", master.display());
    let mut command = Command::new(program);
    command.arg("-W").arg("-S").arg(socket).arg("-f").arg(config);
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(false).spawn()
}

/// Asks a process to finish what it has and end.
pub(super) fn finish(pid: u32) {
    signal(pid, Signal::SIGUSR1);
}

/// Asks a process to end.
pub(super) fn end(pid: u32) {
    signal(pid, Signal::SIGTERM);
}

fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 1
    {
        // It may have ended already.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_two_point_six_are_told_apart() {
        let printed =
            |version| format!("HAProxy version {version} 2026/10/17 - https://haproxy.org/\n");
        assert_eq!(usable(&printed("2.6.12-1+deb12u4")), Ok("2.6.12-1+deb12u4"));
        assert_eq!(usable(&printed("3.4-dev1")), Ok("3.4-dev1"));
        assert!(usable(&printed("2.4.1")).is_err());
        assert!(usable("").is_err());
        assert_eq!(
            ["2.6.12", "3.3.9", "3.4.0", "4.0"].map(adds_backends),
            [false, false, true, true]
        );
    }
}

//! Runs an administrator's command in a shell with a time limit, and returns its output. A command
//! that starts a daemon is done when the shell exits; the daemon keeps its output. Checks and
//! notifiers call it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// The most bytes of a command's output that are kept.
const MOST_OUTPUT: usize = 4096;
/// How long the last output may take to arrive after the shell has exited.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Exit statuses from here on come from the shell: the command could not be run, or was killed.
const NOT_ITS_OWN: i32 = 126;

/// Why a command did not succeed, with what it printed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failed {
    /// The command ran and refuses.
    #[error("{0}")]
    Refused(String),
    /// No answer: the command could not be run, took too long, or was killed.
    #[error("{0}")]
    Unanswered(String),
}

/// Returns the output of a command, or why it failed, with its status and output.
pub(super) async fn run(
    command: &str,
    argument: Option<&OsStr>,
    limit: Duration,
) -> Result<String, Failed> {
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .arg("sh")
        .args(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| Failed::Unanswered(format!("cannot run /bin/sh: {error}")))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let printed = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|pipe| tokio::spawn(collect(pipe, printed.clone()))),
        child.stderr.take().map(|pipe| tokio::spawn(collect(pipe, printed.clone()))),
    ];
    let ended = tokio::time::timeout(limit, child.wait()).await;
    if ended.is_err()
        && let Some(group) = group
    {
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait().await;
    }
    let _ = tokio::time::timeout(LAST_WORDS, async {
        for reader in readers.into_iter().flatten() {
            let _ = reader.await;
        }
    })
    .await;
    let printed = String::from_utf8_lossy(&printed.lock()).trim().to_owned();
    let said = if printed.is_empty() { String::new() } else { format!("; it printed: {printed}") };
    match ended {
        Ok(Ok(status)) if status.success() => Ok(printed),
        Ok(Ok(status)) if status.code().is_some_and(|code| code < NOT_ITS_OWN) => {
            Err(Failed::Refused(format!("{status}{said}")))
        }
        Ok(Ok(status)) => Err(Failed::Unanswered(format!("{status}{said}"))),
        Ok(Err(error)) => Err(Failed::Unanswered(format!("cannot wait for it: {error}{said}"))),
        Err(_) => {
            let why = format!("it took longer than {limit:?} and was killed{said}");
            Err(Failed::Unanswered(why))
        }
    }
}

/// Reads to the end, so that a full pipe blocks no process, and keeps the beginning.
async fn collect(mut pipe: impl AsyncRead + Unpin, kept: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        let mut kept = kept.lock();
        let room = MOST_OUTPUT.saturating_sub(kept.len());
        kept.extend(buffer.iter().take(read.min(room)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_command_is_told_by_its_status_and_what_it_printed() {
        assert_eq!(run("echo fine", None, LIMIT).await, Ok("fine".to_owned()));
        let failed = run("echo no >&2; exit 3", None, LIMIT).await;
        let why = "exit status: 3; it printed: no";
        assert_eq!(failed, Err(Failed::Refused(why.to_owned())));
        for unanswered in ["exec /no/such/program", "kill -KILL $$", "sh -c 'kill -KILL $$'"] {
            let failed = run(unanswered, None, LIMIT).await;
            assert!(matches!(failed, Err(Failed::Unanswered(_))), "{unanswered} {failed:?}");
        }
        let argument = run("echo \"$1\"", Some(OsStr::new("a b")), LIMIT).await;
        assert_eq!(argument, Ok("a b".to_owned()));
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_killed_with_its_children() {
        let failed = run("echo begun; sleep 1000 & wait", None, Duration::from_millis(300)).await;
        let why = "it took longer than 300ms and was killed; it printed: begun";
        assert_eq!(failed, Err(Failed::Unanswered(why.to_owned())));
    }

    #[tokio::test]
    async fn a_daemon_that_is_left_behind_is_not_waited_for() {
        let begun = std::time::Instant::now();
        let started = run("sleep 5 & echo started", None, LIMIT).await;
        assert_eq!(started, Ok("started".to_owned()));
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}

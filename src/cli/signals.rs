//! Ctrl-C, SIGTERM and SIGHUP: the first signal requests an orderly end, the second an immediate one.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit code after a second signal.
pub(super) const AT_ONCE: i32 = 130;

/// The signals that end the process.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None: the process must outlive the terminal, as its parent process wants.
    hangup: Option<Signal>,
}

impl Signals {
    /// The handlers are in place when this returns, so that a signal during the start is not lost.
    pub(super) fn new() -> anyhow::Result<Self> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let hangup = match std::fs::read_to_string("/proc/self/status") {
            Ok(status) if ignores_hangup(&status) => None,
            _ => Some(signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?),
        };
        Ok(Self { interrupt, terminate, hangup })
    }

    /// Resolves at the next signal.
    pub(super) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether the parent process wants this one to outlive the terminal, as `nohup` does.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores_hangup;

    #[test]
    fn the_first_bit_of_the_mask_is_hangup() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}

//! Ctrl-C, SIGTERM and the end of the terminal: the first asks for an orderly end, the second for one at
//! once.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How a process ends that was told twice.
pub(super) const AT_ONCE: i32 = 130;

/// The signals that end a process, from now on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None: whoever started us wants us to outlive the terminal.
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

    /// Resolves on the next one.
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

/// Whether whoever started us wants us to outlive the terminal, as `nohup` does.
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

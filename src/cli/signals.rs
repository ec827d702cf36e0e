//! Ctrl-C, SIGTERM and the end of the terminal, as a future.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Resolves on Ctrl-C, on SIGTERM, or when the terminal is closed. The handlers are in place when this
/// returns, so that a signal during the start is not lost.
pub(super) fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut hangup = match std::fs::read_to_string("/proc/self/status") {
        Ok(status) if ignores_hangup(&status) => None,
        _ => Some(signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?),
    };
    Ok(async move {
        let closed = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = closed => {}
        }
    })
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

//! A socket of HAProxy: one connection for each message and its answer. It knows no command; the HAProxy driver calls
//! it.

use crate::program::worker::SOON;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

/// The timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket where HAProxy takes commands.
#[derive(Clone, Debug)]
pub(super) struct Socket {
    path: PathBuf,
}

impl Socket {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Sends a message, and returns the whole answer.
    pub(super) async fn ask(&self, message: &str) -> io::Result<String> {
        self.ask_for(message, PATIENCE).await
    }

    /// The same with another timeout.
    pub(super) async fn ask_for(&self, message: &str, patience: Duration) -> io::Result<String> {
        let asking = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.write_all(message.as_bytes()).await?;
            // Otherwise the master waits for more input.
            stream.shutdown().await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        match tokio::time::timeout(patience, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
        }
    }

    /// Sends a message and returns the answer, like [`Self::ask_for`]. With `there`, HAProxy should be running, so it is
    /// asked again for `patience` while it does not answer.
    pub(super) async fn ask_patiently(
        &self,
        message: &str,
        there: bool,
        patience: Duration,
    ) -> io::Result<String> {
        let until = Instant::now() + if there { patience } else { Duration::ZERO };
        loop {
            match self.ask(message).await {
                Err(_) if Instant::now() < until => sleep(SOON).await,
                said => return said,
            }
        }
    }
}

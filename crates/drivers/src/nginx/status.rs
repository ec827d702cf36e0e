//! Asks nginx's status socket for the mark of the loaded file and for the pid of the process that answers. It
//! interprets neither; the nginx driver calls it.

use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer of an nginx process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The mark of the loaded file.
    pub(super) mark: String,
    /// Its pid.
    pub(super) pid: u32,
}

/// Asks the process that accepts the connection.
pub(super) async fn ask(socket: &Path) -> io::Result<Said> {
    let asking = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        read(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not ours"))
    };
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(said) => said,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
    }
}

/// Whether no process listens at the socket, rather than that one does not answer.
pub(super) fn is_gone(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

fn read(answer: &str) -> Option<Said> {
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let (mark, pid) = body.trim_end().split_once(' ')?;
    Some(Said { mark: mark.to_owned(), pid: pid.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_and_pid_are_read_from_an_answer() {
        let said = |body| read(&format!("HTTP/1.1 200 OK\r\nServer: nginx\r\n\r\n{body}"));
        assert_eq!(said("bowline-1 42\n"), Some(Said { mark: "bowline-1".into(), pid: 42 }));
        for other in ["", "bowline-1", "<html> x"] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}

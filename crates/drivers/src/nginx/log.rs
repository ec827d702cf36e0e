//! Prints nginx's access log. nginx sends each line as a datagram and never waits for a reader. An nginx that outlives
//! its agent goes on sending, and the next agent prints. The driver starts the thread.

use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The longest line: the largest request that nginx accepts, written as JSON.
const LONGEST: usize = 256 * 1024;

/// Prints the lines from this socket, in a thread of its own, until the process ends.
pub(super) fn print(socket: &Path) -> io::Result<()> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = UnixDatagram::bind(socket)?;
    std::thread::Builder::new().name("nginx-log".to_owned()).spawn(move || {
        let mut buffer = vec![0; LONGEST];
        while let Ok(length) = socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
            // Without a reader of stdout there is no place to report this.
            let _ = writeln!(io::stdout().lock(), "{}", line(&text));
        }
    })?;
    Ok(())
}

/// The line without its syslog prefix.
pub(super) fn line(message: &str) -> &str {
    message.split_once(": ").map_or(message, |(_, line)| line).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_nginx_was_told_to_say() {
        assert_eq!(line("<190>Nov 16 00:30:03 nginx: {\"a\": 1}"), "{\"a\": 1}");
    }
}

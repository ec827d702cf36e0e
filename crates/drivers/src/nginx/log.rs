//! Lines for requests. nginx sends each as a datagram, and does not wait for anybody; here they are printed. An
//! nginx that outlives its agent goes on sending, and the next agent prints.

use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The longest line: the most that nginx is sent in a request, written as JSON.
const LONGEST: usize = 256 * 1024;

/// Prints what comes to this socket, in a thread of its own, for as long as the process lives.
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
            // Nobody is there to be told that nobody reads.
            let _ = writeln!(io::stdout().lock(), "{}", line(&text));
        }
    })?;
    Ok(())
}

/// The line without what syslog wants before it.
fn line(message: &str) -> &str {
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

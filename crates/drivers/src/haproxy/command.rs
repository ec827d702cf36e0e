//! Commands for a running HAProxy, as values, and their text: commands share a line where they can, commands with a
//! payload have a message of their own. It sends nothing; the HAProxy driver does.

use super::text::Word;
use super::wanted::certificate_file;
use std::net::SocketAddr;
use std::sync::Arc;

/// The maximum length of a message in bytes: HAProxy reads 16 KiB at once.
const LONGEST: usize = 15_000;

/// The option of a server with a health check.
pub const CHECK: &str = " check ";

/// One command, or a group that belongs together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Adds a certificate, which may then be shown.
    AddCertificate {
        /// Its hash.
        hash: Arc<str>,
        /// Chain and key.
        pem: Secret,
    },
    /// Shows a certificate for a host name.
    Show {
        /// The list.
        list: String,
        /// The certificate's hash.
        hash: Arc<str>,
        /// The name.
        host: Word,
    },
    /// Adds a backend, to which rules may then lead.
    AddBackend {
        /// Its name.
        backend: Word,
        /// The `defaults` section with all of its settings.
        kind: Word,
        /// The options of its servers with a health check.
        options: Arc<str>,
        /// The options of its servers without one.
        unchecked: Arc<str>,
    },
    /// Adds a server, which then takes traffic.
    AddServer {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
        /// Its weight.
        weight: u16,
        /// Its other options.
        options: Arc<str>,
    },
    /// Sets the key that gives the servers of a backend their cookies. Before HAProxy 3.0, servers added by command
    /// have no cookies without it.
    KeyCookies {
        /// The backend.
        backend: Word,
        /// The key.
        key: Secret,
    },
    /// Turns the health check of a server on or off. A server without a check counts as up.
    Check {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
        /// Whether it is checked.
        on: bool,
    },
    /// Ends the maintenance of a server: it takes traffic again.
    Resume {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
    },
    /// Sets the address of a server to the one in its name.
    Place {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
    },
    /// Makes a frontend accept connections again.
    Open {
        /// Its name.
        frontend: Word,
    },
    /// Changes the weight of a server.
    Weigh {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
        /// Its weight.
        weight: u16,
    },
    /// Adds new entries to a map.
    AddEntries {
        /// The map.
        map: String,
        /// Key and value of each.
        entries: Vec<(Word, Word)>,
    },
    /// Changes the value of an entry of a map.
    SetEntry {
        /// The map.
        map: String,
        /// Its key.
        key: Word,
        /// Its value.
        value: Word,
    },
    /// Replaces all entries of a map atomically.
    Replace {
        /// The map.
        map: String,
        /// Key and value of each.
        entries: Vec<(Word, Word)>,
    },
    /// Removes an entry of a map.
    RemoveEntry {
        /// The map.
        map: String,
        /// Its key.
        key: Word,
    },
    /// Puts a server into maintenance: it gets no new connections and keeps those that it has.
    Retire {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
    },
    /// Cuts the connections of a server.
    Cut {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
    },
    /// Removes a retired server, unless it still has connections.
    RemoveServer {
        /// Its backend.
        backend: Word,
        /// Its address.
        address: SocketAddr,
    },
    /// Removes a line of a certificate list, so that its certificate is no longer shown.
    Hide {
        /// The list.
        list: String,
        /// The certificate's file.
        file: String,
        /// The number of the line.
        line: u32,
    },
    /// Removes a certificate that no list shows.
    RemoveCertificate {
        /// Its file.
        file: String,
    },
}

/// A text that contains a key. It is never printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret(pub Arc<str>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Escapes a text as one word of a command line.
fn escaped(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '\\' | ';' | ' ' | '"' | '\'' | '#' | '<') {
            word.push('\\');
        }
        word.push(letter);
    }
    word
}

/// A command in the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// It may share a line with others.
    Line(String),
    /// It has a payload, which ends with an empty line.
    Payload(String),
}

impl Command {
    fn pieces(&self) -> Vec<Piece> {
        let line = |text: String| vec![Piece::Line(text)];
        match self {
            Self::AddCertificate { hash, pem } => {
                let file = certificate_file(hash);
                vec![
                    Piece::Line(format!("new ssl cert {file}")),
                    Piece::Payload(format!("set ssl cert {file} <<\n{}\n", pem.0)),
                    Piece::Line(format!("commit ssl cert {file}")),
                ]
            }
            Self::Show { list, hash, host } => {
                let file = certificate_file(hash);
                vec![Piece::Payload(format!("add ssl crt-list {list} <<\n{file} {host}\n\n"))]
            }
            Self::AddBackend { backend, kind, .. } => vec![
                Piece::Line("experimental-mode on".to_owned()),
                Piece::Line(format!("add backend {backend} from {kind}")),
                Piece::Line(format!("publish backend {backend}")),
                Piece::Line("experimental-mode off".to_owned()),
            ],
            Self::AddServer { backend, address, weight, options } => {
                let (name, at) = (server(backend, *address), Word::socket(*address));
                let mut pieces = line(format!("add server {name} {at} weight {weight}{options}"));
                if options.contains(CHECK) {
                    pieces.extend(line(format!("enable health {name}")));
                }
                pieces.extend(line(format!("enable server {name}")));
                pieces
            }
            Self::KeyCookies { backend, key } => {
                line(format!("set dynamic-cookie-key backend {backend} {}", key.0))
            }
            Self::Check { backend, address, on } => {
                let name = server(backend, *address);
                match on {
                    true => line(format!("enable health {name}")),
                    // Otherwise a server stays down if its last check found it down.
                    false => [
                        line(format!("disable health {name}")),
                        line(format!("set server {name} health up")),
                    ]
                    .concat(),
                }
            }
            Self::Resume { backend, address } => {
                line(format!("set server {} state ready", server(backend, *address)))
            }
            Self::Place { backend, address } => {
                let (name, ip, port) = (server(backend, *address), address.ip(), address.port());
                line(format!("set server {name} addr {ip} port {port}"))
            }
            Self::Open { frontend } => line(format!("enable frontend {frontend}")),
            Self::Weigh { backend, address, weight } => {
                line(format!("set server {} weight {weight}", server(backend, *address)))
            }
            Self::AddEntries { map, entries } => payloads(&format!("add map {map}"), entries),
            // Sent step by step elsewhere: the version is known only from an answer.
            Self::Replace { .. } => Vec::new(),
            Self::SetEntry { map, key, value } => {
                line(format!("set map {map} {} {value}", escaped(key.as_str())))
            }
            Self::RemoveEntry { map, key } => {
                line(format!("del map {map} {}", escaped(key.as_str())))
            }
            Self::Retire { backend, address } => {
                line(format!("set server {} state maint", server(backend, *address)))
            }
            Self::Cut { backend, address } => {
                line(format!("shutdown sessions server {}", server(backend, *address)))
            }
            Self::RemoveServer { backend, address } => {
                line(format!("del server {}", server(backend, *address)))
            }
            Self::Hide { list, file, line: number } => {
                line(format!("del ssl crt-list {list} {file}:{number}"))
            }
            Self::RemoveCertificate { file } => line(format!("del ssl cert {file}")),
        }
    }
}

fn server(backend: &Word, address: SocketAddr) -> String {
    format!("{backend}/{}", Word::named(address))
}

/// The messages that add these entries to a map.
pub(super) fn entries_of(
    map: &str,
    version: Option<&str>,
    entries: &[(Word, Word)],
) -> Vec<String> {
    let version = version.map_or_else(String::new, |version| format!("@{version} "));
    let payloads = payloads(&format!("add map {version}{map}"), entries);
    let text = |piece| match piece {
        Piece::Line(text) | Piece::Payload(text) => text,
    };
    payloads.into_iter().map(text).collect()
}

fn payloads(command: &str, entries: &[(Word, Word)]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    for (key, value) in entries {
        let entry = format!("{key} {value}\n");
        if !text.is_empty() && text.len() + entry.len() > LONGEST {
            pieces.push(Piece::Payload(format!("{command} <<\n{}\n", std::mem::take(&mut text))));
        }
        text.push_str(&entry);
    }
    if !text.is_empty() {
        pieces.push(Piece::Payload(format!("{command} <<\n{text}\n")));
    }
    pieces
}

/// The messages to send one after the other, each complete. The order of commands is kept.
pub fn messages(commands: &[Command]) -> Vec<String> {
    let mut messages = Vec::new();
    let mut line = String::new();
    let end = |line: &mut String, messages: &mut Vec<String>| {
        if !line.is_empty() {
            messages.push(std::mem::take(line) + "\n");
        }
    };
    for piece in commands.iter().flat_map(Command::pieces) {
        match piece {
            Piece::Line(text) => {
                if line.len() + text.len() > LONGEST {
                    end(&mut line, &mut messages);
                }
                if !line.is_empty() {
                    line.push(';');
                }
                line.push_str(&text);
            }
            Piece::Payload(text) => {
                end(&mut line, &mut messages);
                messages.push(text);
            }
        }
    }
    end(&mut line, &mut messages);
    messages
}

/// The beginnings of lines by which HAProxy confirms a command. Every other line is a complaint.
const FINE: [&str; 13] = [
    "IP changed from",
    "no need to change the addr",
    "port changed from",
    "New backend registered.",
    "Backend published.",
    "New server registered.",
    "Server deleted.",
    "New empty certificate store",
    "Transaction created for certificate",
    "Transaction updated for certificate",
    "Committing ",
    "Inserting certificate",
    "Entry ",
];
const FINE_WHOLE: [&str; 2] = ["Success!", "Certificate "];

/// The complaints in an answer.
pub fn complaints(answer: &str) -> Vec<&str> {
    let said = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    let fine = |line: &&str| {
        FINE.iter().any(|start| line.starts_with(start))
            || FINE_WHOLE.iter().any(|start| line.starts_with(start) && !line.contains("not"))
            || line.bytes().all(|byte| byte == b'.')
    };
    said.filter(|line| !fine(line)).collect()
}

/// Whether a complaint says that a server cannot be removed yet.
pub fn is_busy(complaint: &str) -> bool {
    complaint.contains("still has connections")
}

/// Which of `count` removals of servers succeeded, by the lines of the answer: one for each removal, in order. None if
/// the number of lines differs, since then lines cannot be matched.
pub fn removed(count: usize, answer: &str) -> Option<Vec<bool>> {
    let lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    // A server that HAProxy does not know counts as removed.
    let removed: Vec<_> = lines.map(|line| !is_busy(line)).collect();
    (removed.len() == count).then_some(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Word {
        Word::key(text).expect("a word")
    }

    fn at(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    #[test]
    fn removals_of_one_message_are_told_apart_by_their_lines() {
        let answer = "Server deleted.\n\nServer still has connections attached to it, cannot remove server.\n\n\
                      No such server.\n\n";
        assert_eq!(removed(3, answer), Some(vec![true, false, true]));
        assert_eq!(removed(2, answer), None);
    }

    #[test]
    fn commands_share_lines_and_texts_stand_alone() {
        let commands = [
            Command::Weigh { backend: word("b"), address: at(1), weight: 2 },
            Command::RemoveEntry { map: "m".into(), key: word("a/x;y\\z") },
            Command::AddEntries { map: "m".into(), entries: vec![(word("a/x;y"), word("b"))] },
            Command::Retire { backend: word("b"), address: at(2) },
        ];
        assert_eq!(
            messages(&commands),
            [
                "set server b/10.0.0.1:80 weight 2;del map m a/x\\;y\\\\z\n",
                "add map m <<\na/x;y b\n\n",
                "set server b/10.0.0.2:80 state maint\n",
            ]
        );
    }

    #[test]
    fn no_message_is_longer_than_haproxy_reads() {
        let entries: Vec<_> =
            (0..2_000).map(|i| (word(&format!("host-{i}.example/")), word("pool"))).collect();
        let retire =
            |i: u16| Command::Retire { backend: word("b"), address: ([10, 0, 0, 1], i).into() };
        let mut commands: Vec<_> = (0..1_000).map(retire).collect();
        commands.push(Command::AddEntries { map: "m".into(), entries });
        let messages = messages(&commands);
        assert!(
            messages.iter().all(|it| it.len() < 16_000),
            "{:?}",
            messages.iter().map(String::len)
        );
        let sent: usize = messages.iter().map(|it| it.matches("host-").count()).sum();
        assert_eq!(sent, 2_000);
    }

    #[test]
    fn what_haproxy_says_is_a_complaint_unless_it_is_known_to_be_fine() {
        let answer = "New server registered.\n\n\nNo such server.\n\nServer still has connections attached \
                      to it, cannot remove it.\nCommitting certs/a.pem.\nSuccess!\n";
        let found = complaints(answer);
        assert_eq!(
            found,
            ["No such server.", "Server still has connections attached to it, cannot remove it."]
        );
        assert!(is_busy(found[1]) && !is_busy(found[0]));
    }
}

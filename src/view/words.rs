//! Phrases and layout that all views share: wrapped lines, columns, and one line for each piece of a
//! plan. Pure.

use crate::visible::visible;
use bowline_core::plan::{
    Action, Algorithm, Backends, Fragment, Listener, PathKind, PersistenceKey, Pool, Rule, Serves,
    SiteTls, Speaks, Transport,
};
use serde::Serialize;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

/// The least width of a terminal.
pub(super) const WIDTH: usize = 80;

/// Writes `label` and then `text` in a column beside it, wrapped.
pub(super) fn row(out: &mut String, label: &str, text: &str) {
    const COLUMN: usize = 13;
    bullet(out, &format!("  {label:<COLUMN$}"), text);
}

/// Writes `text` after `bullet`, wrapped and indented.
pub(super) fn bullet(out: &mut String, bullet: &str, text: &str) {
    hanging(out, bullet, bullet.chars().count(), text);
}

/// Writes `text`, wrapped; all lines but the first are slightly indented.
pub(super) fn paragraph(out: &mut String, text: &str) {
    hanging(out, "", 2, text);
}

fn hanging(out: &mut String, head: &str, indent: usize, text: &str) {
    let mut lines = wrapped(text, WIDTH - indent).into_iter();
    let first = lines.next().unwrap_or_default();
    let _ = writeln!(out, "{}", format!("{head}{first}").trim_end());
    for line in lines {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

/// Lines of at most `width` characters, broken at spaces, and within a word that is longer than that. What stands in backticks
/// is not broken, however long it is: people copy commands.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    let text = visible(text);
    for word in words(&text) {
        let quoted = word.contains('`');
        let word: Vec<char> = word.chars().collect();
        match lines.last_mut() {
            Some(line) if length + 1 + word.len() <= width => {
                line.push(' ');
                line.extend(&word);
                length += 1 + word.len();
            }
            _ if quoted => {
                length = word.len();
                lines.push(word.into_iter().collect());
            }
            _ => {
                for piece in word.chunks(width.max(1)) {
                    lines.push(piece.iter().collect());
                    length = piece.len();
                }
            }
        }
    }
    lines
}

/// The words of a text. What stands in backticks belongs to one word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start_matches(' ');
    std::iter::from_fn(move || {
        let mut quoted = None;
        let end = rest.char_indices().find(|(at, it)| {
            match (*it, quoted) {
                ('`', None) => quoted = rest[at + 1..].find('`').map(|_| ()),
                ('`', Some(())) => quoted = None,
                _ => {}
            }
            *it == ' ' && quoted.is_none()
        });
        let (word, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = after.trim_start_matches(' ');
        (!word.is_empty()).then_some(word)
    })
}

/// Rows in columns as wide as necessary. If the rows are too wide, the widest columns shrink, and their
/// cells take several lines.
pub(super) fn columns(rows: &[Vec<String>], indent: &str) -> String {
    const GAP: usize = 2;
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| visible(cell).chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..count).map(width).collect();
    let room = WIDTH.saturating_sub(indent.chars().count() + GAP * count.saturating_sub(1));
    while widths.iter().sum::<usize>() > room
        && let Some(widest) = widths.iter_mut().max().filter(|width| **width > 1)
    {
        *widest -= 1;
    }
    let mut out = String::new();
    for row in rows {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, width)| wrapped(cell, *width)).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut text = indent.to_owned();
            for (cell, width) in cells.iter().zip(&widths) {
                let piece = cell.get(line).map(String::as_str).unwrap_or_default();
                let _ = write!(text, "{piece:<width$}{:GAP$}", "");
            }
            let _ = writeln!(out, "{}", text.trim_end());
        }
    }
    out
}

/// `1 member`, `2 members`.
pub(super) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// How long ago, in one unit.
pub(super) fn ago(seconds: i64) -> String {
    match seconds {
        ..=1 => "just now".to_owned(),
        2..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// A listener's address: `127.0.0.1:80/TCP`, or with host names in place of the address.
pub(super) fn listener_at(listener: &Listener, names: &[Arc<str>]) -> String {
    let (protocol, port) = (serde_name(&listener.protocol), listener.port);
    if names.is_empty() {
        return format!("{}/{protocol}", SocketAddr::new(listener.address, port));
    }
    let each: Vec<_> = names.iter().map(|name| format!("{name}:{port}/{protocol}")).collect();
    each.join(", ")
}

/// The name of a value in JSON.
fn serde_name(value: &impl Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|it| it.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// The display name of a pool: the Service and its port.
pub(super) fn pool_name(pool: &Pool) -> String {
    let service = &pool.service;
    let mut name = format!("{}/{}", service.namespace, service.name);
    if !service.port.is_empty() {
        let _ = write!(name, " port {}", service.port);
    }
    if service.protocol != Transport::Tcp {
        let _ = write!(name, " ({})", serde_name(&service.protocol));
    }
    name
}

/// How the traffic of a pool is treated, where that is not the default.
pub(super) fn treatment(pool: &Pool) -> String {
    let mut words = vec![match pool.algorithm {
        Algorithm::RoundRobin => "round-robin".to_owned(),
        Algorithm::LeastConnections => "least-connections".to_owned(),
        Algorithm::SourceIp => "source-ip".to_owned(),
    }];
    if let Backends::Nodes(nodes) = &pool.backends {
        let which = if nodes.local_only { "nodes with a ready Pod" } else { "nodes" };
        words.push(format!("{which} at port {}", nodes.node_port));
    }
    if let Some(persistence) = pool.persistence {
        let by = match persistence.by {
            PersistenceKey::SourceIp => "source IP",
            PersistenceKey::Cookie => "cookie",
        };
        words.push(format!("clients stay by {by} for {} s", persistence.timeout_seconds));
    }
    if !pool.snat {
        words.push("without SNAT".to_owned());
    }
    if pool.proxy_protocol {
        words.push("PROXY protocol v2".to_owned());
    }
    if pool.speaks != Speaks::default() {
        words.push(serde_name(&pool.speaks));
    }
    if !pool.source_ranges.is_empty() {
        let ranges: Vec<String> = pool.source_ranges.iter().map(ToString::to_string).collect();
        words.push(format!("only from {}", ranges.join(", ")));
    }
    if let Some(check) = &pool.health_check {
        words.push(match &check.http_path {
            Some(path) => format!("checked by HTTP at {path}"),
            None => "checked by TCP".to_owned(),
        });
    }
    words.join(", ")
}

/// The requests that a rule matches.
pub(super) fn rule_match(rule: &Rule) -> String {
    let mut text = match rule.path.kind {
        PathKind::Prefix => format!("{}", rule.path.value),
        PathKind::Exact => format!("{} exactly", rule.path.value),
        PathKind::Regex => format!("~{}", rule.path.value),
    };
    if let Some(method) = &rule.method {
        text = format!("{method} {text}");
    }
    for (what, matches) in [("header", &rule.headers), ("query", &rule.query)] {
        for one in matches {
            let _ = write!(text, " with {what} {}={}", one.name, one.value);
        }
    }
    text
}

/// What a rule does; `name` converts the name of a pool to its display name.
pub(super) fn rule_action(rule: &Rule, name: impl Fn(&str) -> String) -> String {
    match &rule.action {
        Action::Forward(pools) if pools.len() == 1 => name(&pools[0].pool),
        Action::Forward(pools) => {
            let all = pools.iter().map(|one| format!("{} × {}", one.weight, name(&one.pool)));
            all.collect::<Vec<_>>().join(", ")
        }
        Action::Redirect(to) => {
            let scheme = to.scheme.as_deref().unwrap_or("the same scheme");
            format!("redirect ({}) to {scheme}", to.status)
        }
        Action::Respond(status) => format!("status {status}"),
    }
}

/// What is known of the certificate of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state")]
pub(super) enum Certificate {
    /// It has this hash.
    Known { hash: Arc<str> },
    /// There is no usable certificate.
    Unusable,
    /// Unknown, because Secrets cannot be read.
    Unknown,
}

impl Certificate {
    /// The certificate in a plan that was made with or without Secrets.
    pub(super) fn of(tls: &SiteTls, with_secrets: bool) -> Self {
        match &tls.certificate {
            Some(certificate) => Self::Known { hash: certificate.hash.clone() },
            None if with_secrets => Self::Unusable,
            None => Self::Unknown,
        }
    }
}

/// How a site is served over TLS.
pub(super) fn tls(tls: &SiteTls, certificate: &Certificate) -> String {
    let certificate = match certificate {
        Certificate::Known { hash } => {
            format!("certificate {}", hash.chars().take(12).collect::<String>())
        }
        Certificate::Unusable => "no usable certificate: handshakes fail".to_owned(),
        Certificate::Unknown => "certificate not known: you may not read Secrets".to_owned(),
    };
    let redirect = if tls.redirect { "; clear text is redirected" } else { "" };
    format!("{certificate}{redirect}")
}

/// The pieces of a fragment, one line each: two fragments differ exactly in these lines.
/// `with_secrets`: whether the fragment's certificates are known.
pub(super) fn pieces(fragment: &Fragment, with_secrets: bool) -> Vec<String> {
    let pool = |name: &str| {
        let found = fragment.pools.iter().find(|pool| &*pool.name == name);
        found.map_or_else(|| name.to_owned(), pool_name)
    };
    let mut lines = Vec::new();
    for listener in &fragment.listeners {
        let to = match &listener.serves {
            Serves::Pool(name) => pool(name),
            Serves::Entry(_) => "the rules of its Ingresses".to_owned(),
        };
        lines.push(format!("listener {} → {to}", listener_at(listener, &[])));
    }
    for site in &fragment.sites {
        if let Some(of) = &site.tls {
            let tls = tls(of, &Certificate::of(of, with_secrets));
            lines.push(format!("host {} TLS: {tls}", site.host));
        }
        for rule in &site.rules {
            let to = rule_action(rule, pool);
            lines.push(format!("host {} path {} → {to}", site.host, rule_match(rule)));
        }
    }
    for one in &fragment.pools {
        lines.push(format!("pool {}: {}", pool_name(one), treatment(one)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_wrapped_beside_its_label() {
        let mut out = String::new();
        row(&mut out, "Why", &"word ".repeat(30));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert!(out.starts_with("  Why          word word"), "{out}");
        assert_eq!(out.lines().count(), 3);
        assert!(out.lines().nth(1).is_some_and(|line| line.starts_with("               word")));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["long".to_owned(), "c".to_owned()]];
        assert_eq!(columns(&rows, "  "), "  a     b\n  long  c\n");
    }

    #[test]
    fn columns_that_do_not_fit_give_way_the_widest_first() {
        let cells = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let (long, mid) = ("x".repeat(100), "y".repeat(30));
        let text = columns(&[cells([&long, "a", &mid]), cells(["b", "c", "d e"])], "  ");
        let expected = [
            format!("  {}  a  {}", "x".repeat(43), mid),
            format!("  {}", "x".repeat(43)),
            format!("  {}", "x".repeat(14)),
            format!("  b{}c  d e", " ".repeat(44)),
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_word_longer_than_a_line_is_broken() {
        assert_eq!(wrapped("ab cdefgh i", 3), ["ab", "cde", "fgh", "i"]);
        assert_eq!(wrapped("a\nb", 80), ["a\\nb"]);
        assert_eq!(wrapped("run `a b c d` now, `e", 5), ["run", "`a b c d`", "now,", "`e"]);
    }

    #[test]
    fn time_is_told_in_one_unit() {
        let told: Vec<_> = [0, 5, 300, 10_000, 500_000].map(ago).into();
        assert_eq!(told, ["just now", "5 s ago", "5 min ago", "2 h ago", "5 days ago"]);
    }
}

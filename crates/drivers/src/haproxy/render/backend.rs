//! Renders a pool as a backend section: load balancing, persistence, limits and health checks of its members. Pure; the
//! renderer calls it.

use super::super::text::{BadText, Word};
use super::super::version::Version;
use super::super::wanted::COOKIE_KEY;
use super::{ranges_file, short_hash};
use bowline_core::outcome::Reason;
use bowline_core::plan::{Algorithm, Limits, Persistence, PersistenceKey, Pool, Speaks};
use bowline_core::update::CookieSecret;
use std::fmt::Write as _;

/// Whether HTTP rules or TCP listeners lead to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Http,
    Tcp,
}

/// The check for pools without a health check: only members that failed are checked, every second, until they answer.
/// HAProxy requires an interval for the others.
const PASSIVE: &str = " check inter 1h fastinter 1s downinter 1s fall 3 rise 1 observe layer4 \
                       error-limit 3 on-error mark-down";

/// The options of a server, with a leading space. An unchecked server needs no file descriptor for a check.
pub(super) fn options(pool: &Pool, checked: bool) -> String {
    let mut options = String::new();
    if pool.speaks == Speaks::H2c {
        options.push_str(" proto h2");
    }
    if pool.proxy_protocol {
        options.push_str(" send-proxy-v2");
    }
    if !checked {
        return options;
    }
    if pool.proxy_protocol {
        options.push_str(" check-send-proxy");
    }
    // `command::CHECK` recognizes a checked server by this word.
    match &pool.health_check {
        None => options.push_str(PASSIVE),
        Some(check) => {
            let (interval, fall, rise) =
                (check.interval_ms.max(100), check.fall.max(1), check.rise.max(1));
            let _ = write!(options, " check inter {interval}ms fall {fall} rise {rise}");
        }
    }
    options
}

/// Whether HAProxy remembers which client uses which member of a pool.
pub(super) fn has_table(pool: &Pool) -> bool {
    pool.persistence.as_ref().is_some_and(|it| it.by == PersistenceKey::SourceIp)
}

/// Whether the section of a pool has nothing that only this pool can have, so that pools can share it. A table of
/// clients, a cookie, ranges, limits and a health check with a host name belong to one pool.
pub(super) fn is_of_a_kind(pool: &Pool, mode: Mode) -> bool {
    mode == Mode::Http
        && pool.persistence.is_none()
        && pool.source_ranges.is_empty()
        && pool.limits.is_none()
        && asked(pool).is_none()
}

/// The section of a pool, without its servers.
pub(super) fn text(
    pool: &Pool,
    mode: Mode,
    secret: Option<&CookieSecret>,
    version: Version,
) -> String {
    let mut lines = Vec::new();
    match mode {
        Mode::Http => lines.push("mode http".to_owned()),
        Mode::Tcp => lines.extend(["mode tcp", "option srvtcpka"].map(str::to_owned)),
    }
    match pool.algorithm {
        // The table may be lost in a reload: then clients find the same member by their address.
        Algorithm::RoundRobin if has_table(pool) => {
            lines.extend(["balance source", "hash-type consistent"].map(str::to_owned));
        }
        Algorithm::RoundRobin => lines.push("balance roundrobin".to_owned()),
        Algorithm::LeastConnections => lines.push("balance leastconn".to_owned()),
        Algorithm::SourceIp => {
            lines.extend(["balance source", "hash-type consistent"].map(str::to_owned));
        }
    }
    if !pool.snat {
        lines.push("source 0.0.0.0 usesrc clientip".to_owned());
    }
    if let Some(ms) = pool.timeouts.connect_ms {
        lines.push(format!("timeout connect {}ms", ms.max(1)));
    }
    match (mode, pool.timeouts.backend_ms) {
        (Mode::Http, Some(ms)) => lines.push(format!("timeout server {}ms", ms.max(1))),
        // In tunnel mode one timeout applies to both directions.
        (Mode::Tcp, Some(ms)) => {
            let both = ["server", "tunnel"].map(|it| format!("timeout {it} {}ms", ms.max(1)));
            lines.extend(both);
        }
        (Mode::Tcp, None) => lines.push("timeout server 1h".to_owned()),
        (Mode::Http, None) => {}
    }
    if let Some(persistence) = &pool.persistence {
        persist(&mut lines, pool, mode, persistence, secret);
    }
    if !pool.source_ranges.is_empty() && mode == Mode::Http {
        lines.push(format!(
            "http-request return status 403 content-type text/plain hdr Cache-Control no-store string \
             'This address may not use this service.' unless {{ src -f {} }}",
            ranges_file(pool)
        ));
    }
    if let Some(limits) = &pool.limits {
        limit(&mut lines, limits, mode, version);
    }
    check(&mut lines, pool);
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

/// The name of the section whose single entry counts all pools of a consumer.
pub(super) fn counted(limits: &Limits) -> String {
    let consumer = &limits.consumer;
    let kind = consumer.kind.to_string();
    let parts = [&kind, &*consumer.namespace, &*consumer.name, &*consumer.uid];
    format!("limit:{}", short_hash(&parts.map(str::as_bytes)))
}

/// The text of that section.
pub(super) fn counts(version: Version) -> String {
    let bytes = if version.shapes_bandwidth() { ",bytes_out_rate(1s)" } else { "" };
    format!(
        "    stick-table type integer size 1 expire 10s store http_req_rate(1s),conn_rate(1s){bytes}\n"
    )
}

/// Enforces limits. Excess requests are refused before they are counted, so the allowed number goes through however
/// many are tried.
fn limit(lines: &mut Vec<String>, limits: &Limits, mode: Mode, version: Version) {
    let table = counted(limits);
    if let Some(most) = limits.requests_per_second {
        match mode {
            Mode::Http => lines.push(format!(
                "http-request return status 429 content-type text/plain hdr Cache-Control no-store hdr \
                 Retry-After 1 string 'More is asked than was agreed.' if {{ \
                 int(1),table_http_req_rate({table}) ge {most} }}"
            )),
            Mode::Tcp => lines.push(format!(
                "tcp-request content reject if {{ int(1),table_conn_rate({table}) ge {most} }}"
            )),
        }
    }
    let bits = limits.bits_per_second.filter(|_| version.shapes_bandwidth());
    match mode {
        Mode::Http => lines.push(format!("http-request track-sc0 int(1) table {table}")),
        Mode::Tcp => lines.push(format!("tcp-request content track-sc0 int(1) table {table}")),
    }
    if let Some(bits) = bits {
        // HAProxy's numbers end at 4 GB per second.
        let bytes = (bits / 8).clamp(1, u64::from(u32::MAX));
        let on = match mode {
            Mode::Http => "http-response",
            Mode::Tcp => "tcp-response content",
        };
        lines.push(format!("filter bwlim-out held limit {bytes} key int(1) table {table}"));
        lines.push(format!("{on} set-bandwidth-limit held"));
    }
}

fn persist(
    lines: &mut Vec<String>,
    pool: &Pool,
    mode: Mode,
    persistence: &Persistence,
    secret: Option<&CookieSecret>,
) {
    let seconds = persistence.timeout_seconds.max(1);
    match (persistence.by, mode) {
        // TCP has no cookies; the planner does not ask for them.
        (PersistenceKey::Cookie, Mode::Tcp) => {}
        (PersistenceKey::SourceIp, _) => {
            lines.push(format!("stick-table type ipv6 size 65536 expire {seconds}s peers bowline"));
            lines.push("stick on src".to_owned());
        }
        (PersistenceKey::Cookie, Mode::Http) => {
            let name = short_hash(&[b"name", pool.name.as_bytes()]);
            let secret = secret.map_or(&[][..], |secret| &secret.0);
            let key = short_hash(&[b"key", secret, pool.name.as_bytes()]);
            lines.push(format!(
                "cookie bowline-{name} insert indirect nocache httponly attr SameSite=Lax maxidle \
                 {seconds}s dynamic"
            ));
            lines.push(format!("{COOKIE_KEY}{key}"));
        }
    }
}

/// The path and host of the health check requests. None: members are not sent requests. An error: one of the two cannot
/// be written.
fn asked(pool: &Pool) -> Option<Result<(Word, Word), BadText>> {
    // A member that speaks only HTTP/2 cannot read this request: the check only connects.
    let check = pool.health_check.as_ref().filter(|_| pool.speaks == Speaks::Http1);
    let path = check.and_then(|check| check.http_path.as_deref())?;
    let host = Word::name(&format!("{}.{}", pool.service.name, pool.service.namespace));
    Some(Word::quoted(path).and_then(|path| Ok((path, host?))))
}

/// Why the health check of a pool cannot request the path that the pool wants.
pub(super) fn unasked(pool: &Pool) -> Option<(Reason, &'static str)> {
    pool.health_check.as_ref()?.http_path.as_ref()?;
    match asked(pool) {
        None => Some((Reason::NotSupported, "cannot be made for members that speak h2c")),
        Some(Err(_)) => Some((Reason::BadValue, "cannot be written into HAProxy's files")),
        Some(Ok(_)) => None,
    }
}

fn check(lines: &mut Vec<String>, pool: &Pool) {
    if let Some(Ok((path, host))) = asked(pool) {
        lines.push("option httpchk".to_owned());
        lines.push(format!(
            "http-check send meth GET uri {path} ver HTTP/1.1 hdr Host {host} hdr User-Agent \
             bowline-health-check hdr Connection close"
        ));
        lines.push("http-check expect rstatus '^[23]'".to_owned());
    }
}

//! Renders a pool as an upstream, and the lines of a location or server that leads to it. Pure; the renderer calls it.

use super::super::text::Word;
use super::short_hash;
use bowline_core::plan::{Algorithm, PersistenceKey, Pool, Speaks};
use bowline_core::update::{Member, MemberState};
use std::collections::BTreeMap;

/// Whether HTTP rules or stream listeners lead to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Http,
    Stream,
}

/// The largest weight of a member. If clients are hashed, each unit of weight takes 160 points of the hash ring.
const HEAVIEST: u32 = 256;
const HEAVIEST_HASHED: u32 = 16;

/// How long nginx tries other members: longer than it waits for a connection, shorter than it waits for an answer.
const TRIES_MS: u64 = 15_000;

/// Upstreams by name. None: the pool has no member that takes traffic.
#[derive(Debug, Default)]
pub(super) struct Upstreams(BTreeMap<Word, Option<String>>);

impl Upstreams {
    /// Adds a pool. Returns whether it has members that take traffic: without any, nginx accepts no upstream.
    pub(super) fn put(&mut self, name: &Word, pool: &Pool, members: &[Member], mode: Mode) -> bool {
        let upstream = || upstream(name, pool, members, mode);
        self.0.entry(name.clone()).or_insert_with(upstream).is_some()
    }

    pub(super) fn text(&self) -> String {
        self.0.values().flatten().cloned().collect()
    }
}

/// The name of the cookie of a pool, and of the variable that identifies a client by it.
pub(super) fn cookie(pool: &Pool) -> String {
    format!("bowline_{}", short_hash(&[b"cookie", pool.name.as_bytes()]))
}

fn has_cookie(pool: &Pool) -> bool {
    pool.persistence.is_some_and(|it| it.by == PersistenceKey::Cookie)
}

/// The map that identifies clients: by the cookie that they send, or else by a new one.
pub(super) fn key(pool: &Pool) -> Option<String> {
    let name = cookie(pool);
    has_cookie(pool).then(|| {
        format!(
            "    map $cookie_{name} ${name} {{\n        default $request_id;\n        \
             \"~^[0-9a-f]{{32}}$\" $cookie_{name};\n    }}\n"
        )
    })
}

fn upstream(name: &Word, pool: &Pool, members: &[Member], mode: Mode) -> Option<String> {
    let by_cookie = has_cookie(pool) && mode == Mode::Http;
    let by_address = pool.algorithm == Algorithm::SourceIp
        || pool.persistence.is_some_and(|it| it.by == PersistenceKey::SourceIp);
    let mut lines = Vec::new();
    let hashed = by_cookie || by_address;
    if by_cookie {
        lines.push(format!("hash ${} consistent", cookie(pool)));
    } else if by_address {
        lines.push("hash $remote_addr consistent".to_owned());
    } else if pool.algorithm == Algorithm::LeastConnections {
        // Without a zone each process would count for itself.
        lines.push(format!("zone {name} {}k", 64 + members.len()));
        lines.push("least_conn".to_owned());
    }
    let mut ready = false;
    for (member, weight) in members.iter().zip(weights(members, hashed)) {
        let at = Word::socket(member.address);
        ready |= weight > 0;
        // nginx counts a slow answer as a failure of the member, and any client can cause three of those.
        let fails = match mode {
            Mode::Http => "max_fails=0",
            Mode::Stream => "max_fails=3 fail_timeout=5s",
        };
        lines.push(match weight {
            0 => format!("server {at} down"),
            1 => format!("server {at} {fails}"),
            weight => format!("server {at} weight={weight} {fails}"),
        });
    }
    // Without SNAT a kept connection would carry another client's address.
    if mode == Mode::Http && pool.snat {
        lines.extend(["keepalive 32", "keepalive_timeout 2s"].map(str::to_owned));
    }
    let body: String = lines.iter().map(|line| format!("        {line};\n")).collect();
    ready.then(|| format!("\n    upstream {name} {{\n{body}    }}\n"))
}

/// The weights in proportion, as small as possible. A draining member has weight 0.
fn weights(members: &[Member], hashed: bool) -> Vec<u32> {
    let weight = |member: &Member| match member.state {
        MemberState::Draining => 0,
        MemberState::Ready => u32::from(member.weight),
    };
    let divisor = members.iter().map(weight).fold(0, gcd).max(1);
    let most = members.iter().map(weight).max().unwrap_or(0) / divisor;
    let heaviest = if hashed { HEAVIEST_HASHED } else { HEAVIEST };
    let scaled = |weight: u32| match weight / divisor {
        0 => 0,
        weight if most <= heaviest => weight,
        weight => (weight * heaviest / most).max(1),
    };
    members.iter().map(|member| scaled(weight(member))).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The lines that admit only a pool's source ranges.
pub(super) fn ranges(pool: &Pool) -> Vec<String> {
    let mut lines: Vec<_> =
        pool.source_ranges.iter().map(|range| format!("allow {}", Word::range(range))).collect();
    if !lines.is_empty() {
        lines.push("deny all".to_owned());
    }
    lines
}

/// The highest rate of requests per second that nginx can count.
const MOST: u64 = 1_000_000;

/// The zone that counts all pools of a consumer, and its limit of requests per second.
fn held(pool: &Pool) -> Option<(String, u64)> {
    let limits = pool.limits.as_ref()?;
    let (consumer, kind) = (&limits.consumer, limits.consumer.kind.to_string());
    let parts = [&kind, &*consumer.namespace, &*consumer.name, &*consumer.uid];
    let zone = format!("limit-{}", short_hash(&parts.map(str::as_bytes)));
    Some((zone, limits.requests_per_second?.clamp(1, MOST)))
}

/// The line that declares the zone of a pool, if its requests are limited.
pub(super) fn zone(pool: &Pool) -> Option<String> {
    let (zone, most) = held(pool)?;
    Some(format!("    limit_req_zone \"all\" zone={zone}:32k rate={most}r/s;\n"))
}

/// The lines of a location that leads to a pool.
pub(super) fn http(pool: &Pool, name: &Word) -> Vec<String> {
    let mut lines = ranges(pool);
    if let Some((zone, most)) = held(pool) {
        // Up to a second's worth of requests waits; more is refused.
        lines.push(format!("limit_req zone={zone} burst={most}"));
    }
    let kind = match pool.speaks {
        Speaks::Http1 => "proxy",
        Speaks::H2c => "grpc",
    };
    if let Some(ms) = pool.timeouts.connect_ms {
        lines.push(format!("{kind}_connect_timeout {}ms", ms.max(1)));
    }
    if let Some(ms) = pool.timeouts.backend_ms {
        lines.push(format!("{kind}_send_timeout {}ms", ms.max(1)));
        lines.push(format!("{kind}_read_timeout {}ms", ms.max(1)));
        // Another member is tried only after a failed connection, not after a slow answer.
        let tries = u64::from(ms.max(1)).min(TRIES_MS);
        lines.push(format!("{kind}_next_upstream_timeout {tries}ms"));
    }
    if !pool.snat {
        lines.push(format!("{kind}_bind $remote_addr transparent"));
    }
    if let Some(persistence) = pool.persistence.filter(|_| has_cookie(pool)) {
        let name = cookie(pool);
        lines.push(format!(
            "add_header Set-Cookie \"{name}=${name}; Path=/; HttpOnly; SameSite=Lax; \
             Max-Age={}$bowline_secure\" always",
            persistence.timeout_seconds.max(1)
        ));
    }
    lines.push(match pool.speaks {
        Speaks::Http1 => format!("proxy_pass http://{name}"),
        Speaks::H2c => format!("grpc_pass grpc://{name}"),
    });
    lines
}

/// The lines of a server that forwards everything to a pool.
pub(super) fn stream(pool: &Pool, name: &Word, udp: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(ms) = pool.timeouts.connect_ms {
        lines.push(format!("proxy_connect_timeout {}ms", ms.max(1)));
    }
    lines.push(match (pool.timeouts.backend_ms, udp) {
        (Some(ms), _) => format!("proxy_timeout {}ms", ms.max(1)),
        (None, true) => "proxy_timeout 60s".to_owned(),
        (None, false) => "proxy_timeout 1h".to_owned(),
    });
    if !pool.snat {
        lines.push("proxy_bind $remote_addr transparent".to_owned());
    }
    if pool.proxy_protocol {
        lines.push("proxy_protocol on".to_owned());
    }
    lines.push(format!("proxy_pass {name}"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_proportion_and_are_small() {
        use MemberState::{Draining, Ready};
        let member = |(weight, state): &(u16, MemberState)| Member {
            address: ([10, 0, 0, 1], 80).into(),
            weight: *weight,
            state: *state,
        };
        let of = |members: &[(u16, MemberState)], hashed| {
            let members: Vec<_> = members.iter().map(member).collect();
            weights(&members, hashed)
        };
        assert_eq!(of(&[(7, Ready), (7, Ready)], false), [1, 1]);
        assert_eq!(of(&[(2, Ready), (6, Ready), (6, Draining), (0, Ready)], false), [1, 3, 0, 0]);
        assert_eq!(of(&[(1024, Ready), (512, Ready), (1, Ready)], false), [256, 128, 1]);
        assert_eq!(of(&[(1024, Ready), (512, Ready), (1, Ready)], true), [16, 8, 1]);
        assert_eq!(of(&[(5, Draining)], false), [0]);
        assert_eq!(of(&[], true), Vec::<u32>::new());
    }
}

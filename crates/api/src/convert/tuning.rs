//! Annotations about the treatment of traffic, on Services and Ingresses alike. A value that cannot be read leaves the
//! default and is reported; it never keeps a consumer from being served.
//!
//! | annotation | read as |
//! |---|---|
//! | `algorithm` | `round-robin`, `least-connections`, `source-ip` (`lb.zcloud.cn/method`: `rr`, `lc`, `hash`) |
//! | `persistence` | `none`, `source-ip` (3 h unless said), `cookie` (1 h unless said; HTTP only) |
//! | `persistence-timeout` | a duration from `1s` to `720h` |
//! | `snat` | `true`, `false` |
//! | `proxy-protocol` | `v2` |
//! | `health-check` | `tcp`, `http:/path` |
//! | `https-redirect` | `true`, `false` |

use super::read::{Annotations, bad_tuning, flag, tuned};
use crate::annotation_keys::{
    self, ALGORITHM, Found, HEALTH_CHECK, HTTPS_REDIRECT, PERSISTENCE, PERSISTENCE_TIMEOUT,
    PROXY_PROTOCOL, SNAT,
};
use crate::duration::Duration;
use bowline_core::objects::Tuning;
use bowline_core::outcome::Problem;
use bowline_core::plan::{Algorithm, HealthCheck, Persistence, PersistenceKey};

/// How long a client known by its address stays: Kubernetes' default for `sessionAffinity`.
pub(super) const SOURCE_IP_SECONDS: u32 = 3 * 3600;
/// How long a client with a cookie stays.
const COOKIE_SECONDS: u32 = 3600;
/// The longest time that a client may stay: what a proxy remembers must be forgotten some day.
const LONGEST_SECONDS: u64 = 30 * 24 * 3600;

/// Milliseconds between health checks.
const CHECK_INTERVAL_MS: u32 = 5000;
/// Failures in a row after which a member gets no traffic.
const CHECK_FALL: u8 = 3;
/// Successes in a row after which it gets traffic again.
const CHECK_RISE: u8 = 2;
/// The longest path of a health check.
const CHECK_PATH: usize = 1024;

/// The object that has the annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// A Service, with the seconds of its `sessionAffinity`, if it has one.
    Service(Option<u32>),
    /// An Ingress.
    Ingress,
}

impl On {
    fn affinity(self) -> Option<u32> {
        match self {
            Self::Service(seconds) => seconds,
            Self::Ingress => None,
        }
    }
}

/// How traffic is treated, as far as annotations say so.
pub(super) fn tuning(all: &Annotations, on: On, problems: &mut Vec<Problem>) -> Tuning {
    Tuning {
        algorithm: tuned(all, &ALGORITHM, problems, algorithm),
        persistence: persistence(all, on, problems),
        snat: if on == On::Ingress { None } else { tuned(all, &SNAT, problems, flag) },
        proxy_protocol: tuned(all, &PROXY_PROTOCOL, problems, |found| match found.value {
            "v2" => Ok(true),
            _ => Err("is not v2, the only version that is supported".into()),
        }),
        health_check: tuned(all, &HEALTH_CHECK, problems, health_check),
    }
}

/// Whether clear-text requests are sent to HTTPS.
pub(super) fn redirect(all: &Annotations, problems: &mut Vec<Problem>) -> bool {
    tuned(all, &HTTPS_REDIRECT, problems, flag).unwrap_or(true)
}

fn algorithm(found: Found<'_>) -> Result<Algorithm, String> {
    let known: [(&str, Algorithm); 3] = if found.key == ALGORITHM.name {
        [
            ("round-robin", Algorithm::RoundRobin),
            ("least-connections", Algorithm::LeastConnections),
            ("source-ip", Algorithm::SourceIp),
        ]
    } else {
        [
            ("rr", Algorithm::RoundRobin),
            ("lc", Algorithm::LeastConnections),
            ("hash", Algorithm::SourceIp),
        ]
    };
    known
        .iter()
        .find(|(name, _)| *name == found.value)
        .map(|(_, algorithm)| *algorithm)
        .ok_or_else(|| format!("is not one of {}", known.map(|(name, _)| name).join(", ")))
}

/// The annotation comes before `sessionAffinity`. `None`: neither is set.
fn persistence(
    all: &Annotations,
    on: On,
    problems: &mut Vec<Problem>,
) -> Option<Option<Persistence>> {
    let timeout = tuned(all, &PERSISTENCE_TIMEOUT, problems, timeout);
    let by = tuned(all, &PERSISTENCE, problems, |found| match found.value {
        "none" => Ok(None),
        "source-ip" => Ok(Some(PersistenceKey::SourceIp)),
        "cookie" => Ok(Some(PersistenceKey::Cookie)),
        _ => Err("is not one of none, source-ip, cookie".into()),
    });
    let by = by.or_else(|| on.affinity().map(|_| Some(PersistenceKey::SourceIp)));
    let Some(by) = by else {
        if let (Some(_), Some(found), None) = (
            timeout,
            annotation_keys::read(all, &PERSISTENCE_TIMEOUT),
            annotation_keys::read(all, &PERSISTENCE),
        ) {
            let why = format!("has no effect without {}", PERSISTENCE.name);
            problems.push(bad_tuning(found, &why));
        }
        return None;
    };
    Some(by.map(|by| Persistence {
        by,
        timeout_seconds: timeout.unwrap_or(match by {
            PersistenceKey::SourceIp => on.affinity().unwrap_or(SOURCE_IP_SECONDS),
            PersistenceKey::Cookie => COOKIE_SECONDS,
        }),
    }))
}

fn timeout(found: Found<'_>) -> Result<u32, String> {
    let seconds = found
        .value
        .parse::<Duration>()
        .ok()
        .map(|duration| std::time::Duration::from(duration).as_secs());
    seconds
        .filter(|seconds| (1..=LONGEST_SECONDS).contains(seconds))
        .and_then(|seconds| u32::try_from(seconds).ok())
        .ok_or_else(|| "is not a duration from 1s to 720h, such as 30s, 5m or 1h30m".into())
}

fn health_check(found: Found<'_>) -> Result<HealthCheck, String> {
    let http_path = match found.value.strip_prefix("http:") {
        Some(path) if is_request_path(path) => Some(path.into()),
        None if found.value == "tcp" => None,
        _ => return Err("is neither tcp nor http:/path, such as http:/healthz".into()),
    };
    Ok(HealthCheck {
        http_path,
        interval_ms: CHECK_INTERVAL_MS,
        fall: CHECK_FALL,
        rise: CHECK_RISE,
    })
}

/// Whether a text is a path, perhaps with a query, that may stand in a request.
fn is_request_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= CHECK_PATH
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

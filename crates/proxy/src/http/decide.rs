//! Finds the rule of a request and what follows from it: a pool, or a response of the proxy itself. It
//! reads the tables that updates swap, and changes nothing. The callbacks use it.

use super::answer::Answer;
use super::callbacks::Callbacks;
use super::connection::Connection;
use super::target::Target;
use crate::router;
use crate::state::Backend;
use bowline_core::plan::{Action, Redirect, WeightedPool};
use pingora_http::RequestHeader;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a request goes.
pub(super) enum Decision {
    Forward(Arc<Backend>),
    Answer(Answer),
}

impl Callbacks {
    /// Decides about a request for this target.
    pub(super) fn decide(
        &self,
        connection: &Connection,
        request: &RequestHeader,
        target: &Target,
    ) -> Decision {
        let router = self.shared().router.load();
        let entry = &connection.entry;
        let sites = router.sites(&entry.name, target.host());
        let site = sites.as_ref().and_then(|sites| sites.first());
        let tls = site.and_then(|site| site.tls.as_ref());
        match &connection.tls {
            Some(given) if !self.shared().serves(&entry.name, given, &target.host, tls) => {
                return Decision::Answer(Answer::status(421));
            }
            None if tls.is_some_and(|tls| tls.redirect) => {
                return Decision::Answer(redirected(
                    &entry.to_https(),
                    target,
                    connection.local,
                    connection.tls.is_some(),
                ));
            }
            _ => {}
        }
        let rule = sites.and_then(|sites| {
            sites.route(&router::Request {
                path: target.path(),
                method: request.method.as_str(),
                headers: &request.headers,
                query: target.path_and_query.query(),
            })
        });
        let Some(rule) = rule else {
            return Decision::Answer(Answer::status(404));
        };
        match &rule.action {
            Action::Respond(status) => Decision::Answer(Answer::status(*status)),
            Action::Redirect(redirect) => Decision::Answer(redirected(
                redirect,
                target,
                connection.local,
                connection.tls.is_some(),
            )),
            Action::Forward(pools) => {
                let backend = choose(pools, self.turn.fetch_add(1, Ordering::Relaxed))
                    .and_then(|pool| self.shared().backend(pool));
                match backend {
                    Some(backend) if !backend.pool.allows(connection.client.ip()) => {
                        Decision::Answer(Answer::status(403))
                    }
                    Some(backend) => Decision::Forward(backend),
                    None => Decision::Answer(Answer::status(503)),
                }
            }
        }
    }
}

/// Chooses one of the pools by weight, evenly spread over the turns.
fn choose(pools: &[WeightedPool], turn: u64) -> Option<&str> {
    if let [only] = pools {
        return (only.weight > 0).then_some(&only.pool);
    }
    let total: u64 = pools.iter().map(|pool| u64::from(pool.weight)).sum();
    // Steps of the golden ratio: close to the weights over any stretch of turns, also if other rules
    // use some of them.
    let turn = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut at = u64::try_from((u128::from(turn) * u128::from(total)) >> 64).unwrap_or(0);
    pools.iter().find_map(|pool| {
        let weight = u64::from(pool.weight);
        if at < weight {
            return Some(&*pool.pool);
        }
        at -= weight;
        None
    })
}

/// The response for a redirect.
fn redirected(redirect: &Redirect, target: &Target, local: SocketAddr, secure: bool) -> Answer {
    let scheme = redirect.scheme.as_deref().unwrap_or(if secure { "https" } else { "http" });
    let host = match &redirect.host {
        Some(host) => host.to_string(),
        None if target.host.is_empty() => match local.ip().to_canonical() {
            IpAddr::V6(address) => format!("[{address}]"),
            address => address.to_string(),
        },
        None => target.host.to_string(),
    };
    let same = (scheme == "https") == secure;
    let port = redirect.port.or_else(|| same.then(|| local.port()));
    let port = match (scheme, port) {
        (_, None) | ("http", Some(80)) | ("https", Some(443)) => String::new(),
        (_, Some(port)) => format!(":{port}"),
    };
    let path = match (&redirect.path, target.path_and_query.query()) {
        (None, _) => target.path_and_query.to_string(),
        (Some(path), None) => path.to_string(),
        (Some(path), Some(query)) => format!("{path}?{query}"),
    };
    let location = Some(format!("{scheme}://{host}{port}{path}"));
    Answer { status: redirect.status, location }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_get_their_share_over_any_stretch() {
        let pools = [("a", 3), ("b", 1), ("c", 0)]
            .map(|(pool, weight)| WeightedPool { pool: pool.into(), weight });
        for start in [0, 17, u64::MAX - 30] {
            let turns = (0..40).map(|turn| choose(&pools, u64::wrapping_add(start, turn)));
            let mut seen = [0, 0, 0, 0];
            for pool in turns {
                let place = pools.iter().position(|it| Some(&*it.pool) == pool).unwrap_or(3);
                seen[place] += 1;
            }
            assert!((28..=32).contains(&seen[0]) && seen[2] == 0 && seen[3] == 0, "{seen:?}");
        }
        assert_eq!(choose(&pools[2..], 0), None);
        assert_eq!(choose(&[], 0), None);
    }

    #[test]
    fn a_redirect_changes_what_it_names_and_keeps_the_rest() {
        let mut request = RequestHeader::build("GET", b"/a?b=1", None).unwrap();
        request.insert_header("host", "Shop.Example:8080").unwrap();
        let target = Target::of(&request).unwrap();
        let location = |scheme: Option<&str>, host: Option<&str>, port, path: Option<&str>| {
            let redirect = Redirect {
                scheme: scheme.map(Into::into),
                host: host.map(Into::into),
                port,
                path: path.map(Into::into),
                status: 302,
            };
            let local = "192.0.2.1:8080".parse().unwrap();
            redirected(&redirect, &target, local, false).location.unwrap()
        };
        assert_eq!(location(None, None, None, None), "http://shop.example:8080/a?b=1");
        assert_eq!(location(Some("https"), None, Some(443), None), "https://shop.example/a?b=1");
        assert_eq!(
            location(Some("https"), None, Some(8443), None),
            "https://shop.example:8443/a?b=1"
        );
        assert_eq!(location(Some("https"), None, None, None), "https://shop.example/a?b=1");
        assert_eq!(
            location(None, Some("x.example"), Some(80), Some("/c")),
            "http://x.example/c?b=1"
        );
    }
}

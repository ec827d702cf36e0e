//! Renders the rules of one host as locations. nginx looks for an exact path first, then for the longest prefix, as
//! rules demand; this module handles the differences. A request that no rule of a site matches goes on to the less
//! specific sites of the same owner: their rules are written into this host, too. The renderer calls it.

use super::super::text::{BadText, Word, unescaped};
use super::Render;
use super::pool::{self, Mode};
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Reason, quote};
use bowline_core::plan::{Action, Host, PathKind, Redirect, Rule, WeightedPool};
use bowline_core::update::{Extent, ResolvedSite};
use std::collections::{BTreeMap, BTreeSet};

/// The locations of a server, each with its lines.
#[derive(Debug, Default)]
pub(super) struct Locations {
    exact: BTreeMap<String, Vec<String>>,
    /// By path with a trailing slash.
    prefix: BTreeMap<String, Vec<String>>,
}

/// The lines of an answer by nginx itself.
pub(super) fn answer(status: u16) -> Vec<String> {
    let text = match status {
        204 | 304 => return vec![format!("return {status}")],
        403 => "This address may not use this service.",
        404 => "No rule matches this host and path.",
        421 => "This host is not served on this connection.",
        503 => "No member is available.",
        _ => "",
    };
    vec![
        "add_header Cache-Control no-store always".to_owned(),
        format!("return {status} \"{text}\\n\""),
    ]
}

impl Locations {
    /// The rules of these sites, of which the most specific is first.
    pub(super) fn of(render: &mut Render<'_>, sites: &[(&Host, &ResolvedSite)]) -> Self {
        let mut all = Self::default();
        for (host, site) in sites {
            // A request that a more specific site has a rule for does not get here.
            let taken: BTreeSet<_> = all.prefix.keys().cloned().collect();
            for (rule, consumer) in &site.rules {
                if !render.is_excluded(consumer) {
                    all.rule(render, host, rule, consumer, &taken);
                }
            }
        }
        all.prefix.entry("/".to_owned()).or_insert_with(|| answer(404));
        all
    }

    fn rule(
        &mut self,
        render: &mut Render<'_>,
        host: &Host,
        rule: &Rule,
        consumer: &ConsumerRef,
        taken: &BTreeSet<String>,
    ) {
        let path = match path(rule) {
            Ok(path) => path,
            Err((reason, why)) => {
                let path = quote(&rule.path.value);
                let message = format!("the rule for {path} on host {host} {why}: it is not used");
                render.refuse(consumer, reason, message, Extent::Part);
                return;
            }
        };
        let slashed = format!("{}/", path.strip_suffix('/').unwrap_or(&path));
        if is_below(&format!("{path}/"), taken) {
            return;
        }
        let exact = rule.path.kind == PathKind::Exact;
        if exact && self.exact.contains_key(&path) || !exact && self.prefix.contains_key(&slashed) {
            return;
        }
        let lines = lines(render, host, rule, consumer);
        if exact {
            self.exact.insert(path, lines);
            return;
        }
        // A prefix matches its own path without the slash, too.
        if let Some(bare) = slashed.strip_suffix('/').filter(|bare| !bare.is_empty()) {
            self.exact.entry(bare.to_owned()).or_insert_with(|| lines.clone());
        }
        self.prefix.insert(slashed, lines);
    }

    /// The text of the locations.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let exact = self.exact.iter().map(|(path, lines)| ("= ", path, lines));
        let prefix = self.prefix.iter().map(|(path, lines)| ("", path, lines));
        for (kind, path, lines) in exact.chain(prefix) {
            // A path that cannot be written was refused with its rule.
            let Ok(path) = Word::location(path) else { continue };
            let body: String = lines.iter().map(|line| format!("            {line};\n")).collect();
            text.push_str(&format!("        location {kind}{path} {{\n{body}        }}\n"));
        }
        text
    }
}

/// Whether a path is one of these prefixes or below one of them.
fn is_below(path: &str, prefixes: &BTreeSet<String>) -> bool {
    let ends = path.match_indices('/').map(|(at, _)| &path[..=at]);
    ends.into_iter().any(|prefix| prefixes.contains(prefix))
}

/// The path of a rule as nginx compares it, or why nginx cannot serve the rule.
fn path(rule: &Rule) -> Result<String, (Reason, String)> {
    let unusual = |what: &str| {
        let why = format!("matches on {what}, which is not supported with nginx");
        Err((Reason::NotSupported, why))
    };
    if rule.method.is_some() {
        return unusual("the method");
    }
    if !rule.headers.is_empty() {
        return unusual("headers");
    }
    if !rule.query.is_empty() {
        return unusual("the query");
    }
    if rule.path.kind == PathKind::Regex {
        return Err((
            Reason::NotSupported,
            "is a regular expression, which is not supported with nginx".to_owned(),
        ));
    }
    let bad = |why: BadText| (Reason::BadValue, why.to_string());
    let path = unescaped(&rule.path.value).ok_or(bad(BadText::Character))?;
    // Also with the slash that a prefix gets.
    Word::location(&format!("{path}/")).map_err(bad)?;
    Word::location(&path).map_err(bad)?;
    Ok(path)
}

/// The lines for the action of a rule.
fn lines(render: &mut Render<'_>, host: &Host, rule: &Rule, consumer: &ConsumerRef) -> Vec<String> {
    let (reason, why) = match &rule.action {
        Action::Forward(pools) => match forward(render, pools, consumer) {
            Ok(lines) => return lines,
            Err(why) => why,
        },
        // nginx closes the connection on 444.
        Action::Respond(444) => (Reason::NotSupported, "answers with status 444".to_owned()),
        Action::Respond(status @ 200..=599) => return answer(*status),
        Action::Respond(status) => (Reason::BadValue, format!("answers with status {status}")),
        Action::Redirect(redirect) => match redirected(redirect) {
            Ok(line) => return vec![line],
            Err(why) => (Reason::BadValue, format!("redirects to a target that {why}")),
        },
    };
    let path = quote(&rule.path.value);
    let message = format!("the rule for {path} on host {host} {why}: it is answered with 503");
    render.refuse(consumer, reason, message, Extent::Part);
    answer(503)
}

fn forward(
    render: &mut Render<'_>,
    pools: &[WeightedPool],
    consumer: &ConsumerRef,
) -> Result<Vec<String>, (Reason, String)> {
    let desired = render.desired;
    let mut used = pools.iter().filter(|pool| pool.weight > 0);
    let pool = match (used.next(), used.next()) {
        (Some(pool), None) => desired.pools.get(&pool.pool),
        (None, _) => None,
        _ => {
            let why = "leads to several pools, which is not supported with nginx";
            return Err((Reason::NotSupported, why.to_owned()));
        }
    };
    let Some(pool) = pool else { return Ok(answer(503)) };
    let name = Word::pool(&pool.name).map_err(|why| {
        (Reason::BadValue, format!("leads to the pool {}, which {why}", quote(&pool.name)))
    })?;
    if pool.proxy_protocol {
        let why = "asks for the PROXY protocol, which nginx does not speak with HTTP members";
        return Err((Reason::NotSupported, why.to_owned()));
    }
    render.tell(consumer, pool);
    if !render.http.put(&name, pool, desired.members(&pool.name), Mode::Http) {
        return Ok(answer(503));
    }
    if let Some(key) = pool::key(pool) {
        render.keys.insert(name.clone(), key);
    }
    render.zones.extend(pool::zone(pool));
    Ok(pool::http(pool, &name))
}

/// Redirects the client. Parts that the redirect does not set stay as in the request.
pub(super) fn redirected(redirect: &Redirect) -> Result<String, BadText> {
    if !matches!(redirect.status, 301 | 302 | 303 | 307 | 308) {
        return Err(BadText::Character);
    }
    let scheme = match redirect.scheme.as_deref() {
        None => "${scheme}",
        Some("http") => "http",
        Some("https") => "https",
        Some(_) => return Err(BadText::Character),
    };
    // In braces, since the text that follows could continue the variable's name.
    let host = match redirect.host.as_deref() {
        None => "${bowline_host}".to_owned(),
        Some(host) => Word::authority(host)?.to_string(),
    };
    let port = match (scheme, redirect.port) {
        ("http", Some(80)) | ("https", Some(443)) => String::new(),
        (_, Some(port)) => format!(":{port}"),
        ("${scheme}", None) => "${bowline_port}".to_owned(),
        (_, None) => String::new(),
    };
    let path = match redirect.path.as_deref() {
        None => "${request_uri}".to_owned(),
        Some(path) if path.starts_with('/') => {
            format!("{}${{is_args}}${{args}}", Word::literal(path)?)
        }
        Some(_) => return Err(BadText::Character),
    };
    Ok(format!("return {} \"{scheme}://{host}{port}{path}\"", redirect.status))
}

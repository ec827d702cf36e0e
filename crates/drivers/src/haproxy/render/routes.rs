//! Renders the sites of one entry as maps: `hosts` has the owner of a host, `exact` and `prefix` the action for a path,
//! `secure` the hosts that are not served in clear text, `certificates` the certificate of a host. Rules that match
//! more than a path become lines in rule order, and need a reload to change. The renderer calls it.

use super::super::text::{BadText, Word};
use super::super::wanted::Shown;
use super::backend::Mode;
use super::{Render, short_hash};
use bowline_core::expression::is_linear;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::{Reason, quote};
use bowline_core::plan::{
    Action, Host, PathKind, Redirect, Rule, ValueKind, ValueMatch, WeightedPool,
};
use bowline_core::update::{Extent, ResolvedSite};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The answer if no rule matches.
pub(super) const NOT_FOUND: &str = "=404";
const NOBODY: &str = "=503";
/// The most conditions in one line. HAProxy limits the number of words in a line.
const CONDITIONS: usize = 8;

/// The lines of a frontend that the maps cannot express.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Lines for sites with conditions, by the kind of host.
    pub(super) exact: Vec<String>,
    pub(super) wildcard: Vec<String>,
    pub(super) any: Vec<String>,
    /// Sites with a regular expression as host, in the order of matching.
    pub(super) expressions: Vec<Expression>,
    /// Statuses that rules answer with.
    pub(super) statuses: BTreeSet<u16>,
    pub(super) redirects: BTreeMap<String, Redirect>,
    pub(super) splits: BTreeMap<String, Vec<(String, u32)>>,
    /// The certificate for clients that ask for a name that no other site has.
    pub(super) any_certificate: Option<Arc<str>>,
}

/// A site with a regular expression as host.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) pattern: Word,
    pub(super) key: Word,
    pub(super) owner: Word,
    pub(super) lines: Vec<String>,
}

/// The maps of an entry.
#[derive(Default)]
struct Maps {
    hosts: BTreeMap<Word, Word>,
    exact: BTreeMap<Word, Word>,
    prefix: BTreeMap<Word, Word>,
    secure: BTreeMap<Word, Word>,
    certificates: BTreeMap<Word, Word>,
    shown: Shown,
}

/// The file of a map of an entry.
pub(super) fn map_file(entry: &Word, map: &str) -> String {
    format!("maps/{entry}.{map}.map")
}

/// The file of an entry's certificate list.
pub(super) fn crt_list(entry: &Word) -> String {
    format!("certs/{entry}.crt-list")
}

impl Routes {
    /// Renders the sites of an entry, and adds their maps to the wanted configuration. HAProxy knows only maps that a
    /// frontend uses: some are used only for clear text, some only for TLS.
    pub(super) fn of(
        render: &mut Render<'_>,
        entry: &Arc<str>,
        name: &Word,
        (clear, tls): (bool, bool),
    ) -> Self {
        let (mut routes, mut maps) = (Self::default(), Maps::default());
        let desired = render.desired;
        for (key, site) in desired.sites.iter().filter(|(key, _)| key.entry == *entry) {
            let expression = matches!(key.host, Host::Regex(_));
            if expression && site.rules.iter().all(|(_, consumer)| render.is_excluded(consumer)) {
                continue;
            }
            if let Err(why) = routes.site(render, &mut maps, &key.host, site) {
                for (_, consumer) in &site.rules {
                    let message = format!("the host {} {why}", quote(&key.host.to_string()));
                    render.refuse(consumer, Reason::BadValue, message, Extent::Part);
                }
            }
        }
        let all = [
            ("hosts", maps.hosts, true),
            ("exact", maps.exact, true),
            ("prefix", maps.prefix, true),
            ("secure", maps.secure, clear),
            ("certificates", maps.certificates, tls),
        ];
        for (map, entries, _) in all.into_iter().filter(|(_, _, used)| *used) {
            render.wanted.maps.insert(map_file(name, map), entries);
        }
        if tls {
            render.wanted.crt_lists.insert(crt_list(name), maps.shown);
        }
        routes
    }

    fn site(
        &mut self,
        render: &mut Render<'_>,
        maps: &mut Maps,
        host: &Host,
        site: &ResolvedSite,
    ) -> Result<(), BadText> {
        let key = match host {
            Host::Exact(name) => Word::key(Word::name(name)?.as_str())?,
            Host::Wildcard(domain) => Word::key(&format!("*.{}", Word::name(domain)?))?,
            Host::Any => Word::key("*")?,
            Host::Regex(pattern) => Word::key(&format!("~{}", short_hash(&[pattern.as_bytes()])))?,
        };
        let owner = Word::name(&site.owner)?;
        let pattern = match host {
            Host::Regex(pattern) => Some(whole(pattern)?),
            _ => None,
        };
        let lines = self.rules(render, maps, host, &key, site);
        if let Some(pattern) = pattern {
            self.expressions.push(Expression { pattern, key: key.clone(), owner, lines });
        } else {
            maps.hosts.insert(key.clone(), owner);
            match host {
                Host::Exact(_) => self.exact.extend(lines),
                Host::Wildcard(_) => self.wildcard.extend(lines),
                _ => self.any.extend(lines),
            }
        }
        let Some(tls) = &site.tls else { return Ok(()) };
        if tls.redirect {
            maps.secure.insert(key.clone(), Word::key("redirect")?);
        }
        let Some(certificate) = &tls.certificate else { return Ok(()) };
        if !render.wanted.certificates.contains_key(&certificate.hash) {
            return Ok(());
        }
        match host {
            Host::Exact(_) | Host::Wildcard(_) => {
                maps.shown.insert((certificate.hash.clone(), key.clone()));
            }
            Host::Any => self.any_certificate = Some(certificate.hash.clone()),
            Host::Regex(_) => {
                for (_, consumer) in &site.rules {
                    let message = format!(
                        "HAProxy cannot serve a certificate for a host that is a regular \
                             expression ({host})"
                    );
                    render.refuse(consumer, Reason::NotSupported, message, Extent::Part);
                }
                return Ok(());
            }
        }
        maps.certificates.insert(key, Word::key(&certificate.hash)?);
        Ok(())
    }

    /// Renders the rules of a site into its maps, or as lines if some rules match more than a path.
    fn rules(
        &mut self,
        render: &mut Render<'_>,
        maps: &mut Maps,
        host: &Host,
        key: &Word,
        site: &ResolvedSite,
    ) -> Vec<String> {
        let conditional = |rule: &Rule| {
            rule.path.kind == PathKind::Regex
                || rule.method.is_some()
                || !rule.headers.is_empty()
                || !rule.query.is_empty()
        };
        let by_lines = site.rules.iter().any(|(rule, _)| conditional(rule));
        let mut lines = Vec::new();
        for (rule, consumer) in &site.rules {
            if render.is_excluded(consumer) {
                continue;
            }
            let action = self.action(render, host, rule, consumer);
            let taken = if by_lines {
                line(key, rule, &action).map(|line| lines.push(line))
            } else {
                map_entry(maps, key, rule, &action)
            };
            if let Err(why) = taken {
                let path = quote(&rule.path.value);
                let message = format!("the rule for {path} on host {host} {why}: it is not used");
                render.refuse(consumer, Reason::BadValue, message, Extent::Part);
            }
        }
        lines
    }

    /// The value in the maps for the action of a rule.
    fn action(
        &mut self,
        render: &mut Render<'_>,
        host: &Host,
        rule: &Rule,
        consumer: &ConsumerRef,
    ) -> String {
        let bad = match &rule.action {
            Action::Forward(pools) => return self.forward(render, pools),
            Action::Respond(status @ 200..=599) => {
                self.statuses.insert(*status);
                return format!("={status}");
            }
            Action::Redirect(redirect) if is_usable(redirect) => {
                let id = short_hash(&[format!("{redirect:?}").as_bytes()]);
                let id = format!("=redirect-{id}");
                self.redirects.insert(id.clone(), redirect.clone());
                return id;
            }
            Action::Respond(status) => format!("answers with status {status}"),
            Action::Redirect(_) => "redirects to a target that HAProxy cannot use".to_owned(),
        };
        let path = quote(&rule.path.value);
        let message = format!("the rule for {path} on host {host} {bad}: it is answered with 503");
        render.refuse(consumer, Reason::BadValue, message, Extent::Part);
        NOBODY.to_owned()
    }

    fn forward(&mut self, render: &Render<'_>, pools: &[WeightedPool]) -> String {
        let to = |pool: &WeightedPool| {
            let name = render.backend(&pool.pool, Mode::Http);
            name.map_or_else(|| NOBODY.to_owned(), |name| name.as_str().to_owned())
        };
        let shares: Vec<_> = pools
            .iter()
            .filter(|pool| pool.weight > 0)
            .map(|pool| (to(pool), pool.weight))
            .collect();
        match &*shares {
            [] => NOBODY.to_owned(),
            [(only, _)] => only.clone(),
            _ => {
                let id = format!("=split-{}", short_hash(&[format!("{shares:?}").as_bytes()]));
                self.splits.insert(id.clone(), shares);
                id
            }
        }
    }
}

/// Whether every part of a redirect can be written.
fn is_usable(redirect: &Redirect) -> bool {
    let all = [&redirect.scheme, &redirect.host, &redirect.path];
    let writable = |text: &Option<Arc<str>>| {
        text.as_deref().is_none_or(|text| Word::format(text).is_ok() && Word::key(text).is_ok())
    };
    matches!(redirect.status, 301 | 302 | 303 | 307 | 308) && all.into_iter().all(writable)
}

/// Adds a rule that matches only a path. The first rule of a path wins.
fn map_entry(maps: &mut Maps, site: &Word, rule: &Rule, action: &str) -> Result<(), BadText> {
    let path = &rule.path.value;
    if !path.starts_with('/') {
        return Err(BadText::Character);
    }
    let action = Word::key(action)?;
    if rule.path.kind == PathKind::Exact {
        maps.exact.entry(Word::key(&format!("{site}{path}"))?).or_insert(action);
    } else {
        maps.prefix.entry(Word::key(&format!("{site}{}", slashed(path)))?).or_insert(action);
    }
    Ok(())
}

/// A prefix with a slash at its end, to be compared with a path with one: so whole path elements match.
fn slashed(prefix: &str) -> String {
    format!("{}/", prefix.strip_suffix('/').unwrap_or(prefix))
}

/// Renders a rule with conditions.
fn line(site: &Word, rule: &Rule, action: &str) -> Result<String, BadText> {
    let mut conditions = vec![
        "!{ var(txn.do) -m found }".to_owned(),
        format!("{{ var(txn.site) -m str -- {site} }}"),
    ];
    let path = &rule.path.value;
    conditions.push(match rule.path.kind {
        PathKind::Exact => format!("{{ var(txn.path) -m str -- {} }}", Word::pattern(path)?),
        PathKind::Prefix => {
            format!("{{ var(txn.slashed) -m beg -- {} }}", Word::pattern(&slashed(path))?)
        }
        PathKind::Regex => format!("{{ var(txn.path) -m reg -- {} }}", whole(path)?),
    });
    if let Some(method) = &rule.method {
        conditions.push(format!("{{ method -m str -- {} }}", Word::name(method)?));
    }
    for header in &rule.headers {
        conditions.push(value(&format!("req.fhdr({})", Word::name(&header.name)?), header)?);
    }
    for parameter in &rule.query {
        let fetch = format!("urlp({}),url_dec(1)", Word::name(&parameter.name)?);
        conditions.push(value(&fetch, parameter)?);
    }
    if conditions.len() > CONDITIONS {
        return Err(BadText::TooLong);
    }
    Ok(format!("http-request set-var(txn.do) str({action}) if {}", conditions.join(" ")))
}

fn value(fetch: &str, wanted: &ValueMatch) -> Result<String, BadText> {
    Ok(match wanted.kind {
        ValueKind::Exact => format!("{{ {fetch} -m str -- {} }}", Word::pattern(&wanted.value)?),
        ValueKind::Regex => format!("{{ {fetch} -m reg -- {} }}", whole(&wanted.value)?),
    })
}

/// Makes an expression match a whole text.
fn whole(pattern: &str) -> Result<Word, BadText> {
    let whole = format!(r"\A(?:{pattern})\z");
    // HAProxy's engine backtracks: a slow expression would delay all requests of the same thread.
    is_linear(&whole)?;
    Word::pattern(&whole)
}

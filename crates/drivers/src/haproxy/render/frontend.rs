//! Renders frontends: their listeners, and how a request finds its rule. The steps are those of the built-in proxy's
//! router; what differs between hosts is in maps. The renderer calls it.

use super::super::text::Word;
use super::super::wanted::{Section, certificate_file};
use super::routes::{NOT_FOUND, Routes, crt_list, map_file};
use super::{NOBODY, Render, Settings, clients, ranges_file};
use bowline_core::plan::{Pool, Redirect};
use bowline_core::update::{ListenerKey, ResolvedListener};
use std::sync::Arc;

const WEB_LOG: &str = r#"log-format '{"time":"%[date,utime(%Y-%m-%dT%H:%M:%SZ)]","client":"%ci","listener":"%fi:%fp","tls":"%sslv","protocol":"%HV","method":"%[capture.req.method,json(utf8s)]","host":"%[var(txn.host),json(utf8s)]","path":"%[var(txn.path),json(utf8s)]","status":%ST,"bytes_in":%U,"bytes_out":%B,"duration_ms":%Ta,"pool":"%b","member":"%s","retries":"%rc","termination":"%tsc"}'"#;
const TCP_LOG: &str = r#"log-format '{"time":"%[date,utime(%Y-%m-%dT%H:%M:%SZ)]","client":"%ci","listener":"%fi:%fp","bytes_in":%U,"bytes_out":%B,"duration_ms":%Tt,"pool":"%b","member":"%s","retries":"%rc","termination":"%ts"}'"#;

/// Removes the headers that only a proxy may set, in every spelling.
const SAID: &str = "http-request del-header '^(forwarded|x[-_]forwarded[-_](host|port|prefix|proto|scheme|server|ssl)|\
                    x[-_]real[-_]ip|x_forwarded[-_]for|x-forwarded_for)$' -m reg";

/// A listener that forwards connections to a pool.
pub(super) fn tcp(key: &ListenerKey, pool: &Pool, backend: &Word, settings: &Settings) -> String {
    let mut lines = vec![
        "mode tcp".to_owned(),
        format!("bind {}", Word::socket(key.socket())),
        "option clitcpka".to_owned(),
    ];
    lines.extend(log(settings, TCP_LOG));
    match pool.timeouts.backend_ms {
        Some(ms) => lines.push(format!("timeout client {}ms", ms.max(1))),
        None => lines.push("timeout client 1h".to_owned()),
    }
    if !pool.source_ranges.is_empty() {
        let ranges = ranges_file(pool);
        lines.push(format!("tcp-request connection reject unless {{ src -f {ranges} }}"));
    }
    lines.extend(clients::connections(clients::most(settings.descriptors)));
    lines.push(format!("default_backend {backend}"));
    indented(&lines)
}

/// What a frontend prints of each request or connection, instead of what backends say.
fn log(settings: &Settings, format: &str) -> Vec<String> {
    let mut lines = vec!["no log".to_owned()];
    if settings.access_log {
        lines.extend(["log global".to_owned(), format.to_owned()]);
    }
    lines
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("    {line}\n")).collect()
}

fn answer(status: u16, text: &str, condition: &str) -> String {
    if text.is_empty() {
        return format!(
            "http-request return status {status} hdr Cache-Control no-store if {condition}"
        );
    }
    format!(
        "http-request return status {status} content-type text/plain hdr Cache-Control no-store string \
         '{text}' if {condition}"
    )
}

impl Render<'_> {
    /// Adds the frontend of an entry for clear text or for TLS.
    pub(super) fn web_frontend(
        &mut self,
        entry: &Arc<str>,
        name: &Word,
        listeners: &[&ResolvedListener],
        secure: bool,
        routes: &Routes,
    ) {
        let mut lines = ["mode http", "option idle-close-on-response"].map(str::to_owned).to_vec();
        let tls = match &routes.any_certificate {
            _ if !secure => String::new(),
            // This certificate is for clients that ask for a name without a certificate, or for no name.
            Some(hash) => format!(
                " ssl crt {} crt-list {} alpn h2,http/1.1",
                certificate_file(hash),
                crt_list(name)
            ),
            None => format!(" ssl crt-list {} strict-sni alpn h2,http/1.1", crt_list(name)),
        };
        for resolved in listeners {
            let at = ListenerKey::of(&resolved.listener).socket();
            lines.push(format!("bind {}{tls}", Word::socket(at)));
        }
        lines.extend(log(self.settings, WEB_LOG));
        let most = clients::most(self.settings.descriptors);
        lines.extend(clients::connections(most));
        lines.extend(clients::requests(most));
        find(&mut lines, name, routes);
        if secure {
            match_certificate(&mut lines, name);
        } else {
            let redirect = self.desired.to_https(entry);
            let secured = map_file(name, "secure");
            let condition = format!("{{ var(txn.first),map_str({secured}) -m found }}");
            lines.push(redirected(&redirect, &condition));
        }
        act(&mut lines, routes, secure);
        let kind = if secure { "https" } else { "http" };
        // A name stays valid with a kind before it.
        let _ = Word::section(&format!("{kind}:{name}"))
            .and_then(|name| self.insert_proxy(Section::Frontend(name), indented(&lines).into()));
    }
}

/// Finds the rule that a request matches: `txn.do` is the action.
fn find(lines: &mut Vec<String>, name: &Word, routes: &Routes) {
    let (hosts, exact, prefix) =
        (map_file(name, "hosts"), map_file(name, "exact"), map_file(name, "prefix"));
    let mut say = |line: &str| lines.push(line.to_owned());
    // `req.fhdr` takes the whole value; `req.hdr` would split it at a comma.
    say("http-request set-var(txn.host) req.fhdr(host),host_only,lower,rtrim(.)");
    say("http-request set-var(txn.name) var(txn.host)");
    say(
        "http-request set-var-fmt(txn.name) %[dst] if !{ var(txn.name) -m found } { dst 0.0.0.0/0 }",
    );
    say("http-request set-var-fmt(txn.name) [%[dst]] if !{ var(txn.name) -m found }");
    say("http-request set-var(txn.path) path");
    say("http-request set-var(txn.slashed) path,concat(/)");
    say("http-request set-var(txn.parent) var(txn.host),field(2,.,0)");
    say("http-request set-var(txn.wild) str(*.),concat(,txn.parent)");
    let bad = "The request cannot be read unambiguously.";
    say(&answer(
        400,
        bad,
        "{ var(txn.host) -m found } !{ var(txn.host) -m reg '^[]a-z0-9._:[-]*$' }",
    ));
    // Path elements that members could resolve, to get around a rule.
    let climbs = r"'(^|[/\\;]|%(2f|5c|3b))(\.|%2e){1,2}($|[/\\;]|%(2f|5c|3b))'";
    say(&answer(400, bad, &format!("{{ path -m reg -i {climbs} }}")));

    let look_up = |own: &[String]| {
        let mut lines = own.to_vec();
        let undecided = "if !{ var(txn.do) -m found }";
        lines.push(format!(
            "http-request set-var(txn.do) var(txn.site),concat(,txn.path),map_str({exact}) {undecided}"
        ));
        lines.push(format!(
            "http-request set-var(txn.do) var(txn.site),concat(,txn.slashed),map_beg({prefix}) {undecided}"
        ));
        lines
    };
    // The host itself.
    say(&format!("http-request set-var(txn.owner) var(txn.host),map_str({hosts})"));
    say("http-request set-var(txn.site) var(txn.host) if { var(txn.owner) -m found }");
    say("http-request set-var(txn.first) var(txn.site)");
    look_up(&routes.exact).iter().for_each(|line| say(line));
    // The wildcard above it, if it has the same owner.
    let undecided = "!{ var(txn.do) -m found }";
    let admitted = |at: &str| format!("{{ var({at}),strcmp(txn.owner) eq 0 }}");
    say(&format!(
        "http-request set-var(txn.wildowner) var(txn.wild),map_str({hosts}) if {undecided}"
    ));
    say("http-request set-var(txn.owner) var(txn.wildowner) if !{ var(txn.owner) -m found }");
    say(&format!(
        "http-request set-var(txn.site) var(txn.wild) if {undecided} {}",
        admitted("txn.wildowner")
    ));
    say("http-request set-var(txn.first) var(txn.site) if !{ var(txn.first) -m found }");
    look_up(&routes.wildcard).iter().for_each(|line| say(line));
    for (i, expression) in routes.expressions.iter().enumerate() {
        let (pattern, owner) = (&expression.pattern, &expression.owner);
        let at = format!("txn.owner{i}");
        say(&format!(
            "http-request set-var({at}) str({owner}) if {undecided} {{ var(txn.host) -m reg -- {pattern} }}"
        ));
        say(&format!(
            "http-request set-var(txn.owner) var({at}) if !{{ var(txn.owner) -m found }}"
        ));
        say(&format!(
            "http-request set-var(txn.site) str({}) if {undecided} {}",
            expression.key,
            admitted(&at)
        ));
        say("http-request set-var(txn.first) var(txn.site) if !{ var(txn.first) -m found }");
        look_up(&expression.lines).iter().for_each(|line| say(line));
    }
    // Rules for any host.
    say(&format!("http-request set-var(txn.anyowner) str(*),map_str({hosts}) if {undecided}"));
    say("http-request set-var(txn.owner) var(txn.anyowner) if !{ var(txn.owner) -m found }");
    say(&format!(
        "http-request set-var(txn.site) str(*) if {undecided} {}",
        admitted("txn.anyowner")
    ));
    say("http-request set-var(txn.first) var(txn.site) if !{ var(txn.first) -m found }");
    look_up(&routes.any).iter().for_each(|line| say(line));
}

/// Serves a host only to clients that were shown its certificate: by this name, or by another name with the same
/// certificate.
fn match_certificate(lines: &mut Vec<String>, name: &Word) {
    let (hosts, certificates) = (map_file(name, "hosts"), map_file(name, "certificates"));
    let mut say = |line: &str| lines.push(line.to_owned());
    let misdirected = "This host is not served on this connection.";
    say(&format!("http-request set-var(txn.cert) var(txn.first),map_str({certificates})"));
    say(&answer(421, misdirected, "!{ var(txn.cert) -m found }"));
    say("http-request set-var(txn.sni) ssl_fc_sni,lower");
    let other = "!{ var(txn.sni),strcmp(txn.host) eq 0 }";
    say(&format!("http-request set-var(txn.sniparent) var(txn.sni),field(2,.,0) if {other}"));
    say(&format!("http-request set-var(txn.sniwild) str(*.),concat(,txn.sniparent) if {other}"));
    say(&format!(
        "http-request set-var(txn.snisite) var(txn.sni) if {other} {{ var(txn.sni),map_str({hosts}) -m found }}"
    ));
    say(&format!(
        "http-request set-var(txn.snisite) var(txn.sniwild) if {other} !{{ var(txn.snisite) -m found }} \
         {{ var(txn.sniwild),map_str({hosts}) -m found }}"
    ));
    say(&format!(
        "http-request set-var(txn.snisite) str(*) if {other} !{{ var(txn.snisite) -m found }}"
    ));
    say(&format!(
        "http-request set-var(txn.snicert) var(txn.snisite),map_str({certificates}) if {other}"
    ));
    let shown = "!{ var(txn.snicert),strcmp(txn.cert) eq 0 }";
    say(&answer(421, misdirected, &format!("{other} {shown}")));
}

/// Carries out the action.
fn act(lines: &mut Vec<String>, routes: &Routes, secure: bool) {
    let mut say = |line: String| lines.push(line);
    say(format!("http-request set-var(txn.do) str({NOT_FOUND}) if !{{ var(txn.do) -m found }}"));
    let is = |action: &str| format!("{{ var(txn.do) -m str -- {action} }}");
    for (id, redirect) in &routes.redirects {
        let redirect = Redirect {
            scheme: redirect.scheme.clone().or(Some(if secure { "https" } else { "http" }.into())),
            ..redirect.clone()
        };
        let same = (redirect.scheme.as_deref() == Some("https")) == secure;
        if redirect.port.is_none() && same {
            let usual = if secure { 443 } else { 80 };
            say(format!(
                "http-request set-var-fmt(txn.port) :%[dst_port] if {} !{{ dst_port {usual} }}",
                is(id)
            ));
        }
        if redirect.path.is_some() {
            say(format!(
                "http-request set-var-fmt(txn.query) ?%[query] if {} {{ query -m len gt 0 }}",
                is(id)
            ));
        }
        say(redirected(&redirect, &is(id)));
    }
    for (id, shares) in &routes.splits {
        let total: u64 = shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
        say(format!("http-request set-var(txn.turn) rand({total}) if {}", is(id)));
        let mut below = 0;
        for (to, weight) in shares {
            below += u64::from(*weight);
            let turn = format!("{{ var(txn.turn) -m int lt {below} }}");
            say(format!("http-request set-var(txn.do) str({to}) if {} {turn}", is(id)));
        }
    }
    for status in routes.statuses.iter().copied().chain([404, 503]) {
        let text = match status {
            404 => "No rule matches this host and path.",
            503 => "No member is available.",
            _ => "",
        };
        say(answer(status, text, &is(&format!("={status}"))));
    }
    say("http-request disable-l7-retry unless { method GET HEAD PUT DELETE OPTIONS TRACE }"
        .to_owned());
    say(SAID.to_owned());
    say(
        "http-request set-header X-Forwarded-Host %[req.fhdr(host)] if { req.fhdr(host) -m found }"
            .to_owned(),
    );
    let proto = if secure { "https" } else { "http" };
    say("http-request add-header X-Forwarded-For %[src]".to_owned());
    say(format!("http-request set-header X-Forwarded-Proto {proto}"));
    say("http-request set-header X-Forwarded-Port %[dst_port]".to_owned());
    say("http-request set-header X-Real-IP %[src]".to_owned());
    say("use_backend %[var(txn.do)]".to_owned());
    say(format!("default_backend {NOBODY}"));
}

/// Redirects the client. Parts that the redirect does not set stay as in the request.
fn redirected(redirect: &Redirect, condition: &str) -> String {
    let scheme = redirect.scheme.as_deref().unwrap_or("http");
    let literal =
        |text: &str| Word::format(text).map_or_else(|_| String::new(), |it| it.to_string());
    let host = redirect.host.as_deref().map_or_else(|| "%[var(txn.name)]".to_owned(), literal);
    let port = match (scheme, redirect.port) {
        ("http", Some(80)) | ("https", Some(443)) => String::new(),
        (_, Some(port)) => format!(":{port}"),
        (_, None) => "%[var(txn.port)]".to_owned(),
    };
    let path = match redirect.path.as_deref() {
        None => "%[pathq]".to_owned(),
        Some(path) => format!("{}%[var(txn.query)]", literal(path)),
    };
    format!(
        "http-request redirect code {} location {}{host}{port}{path} if {condition}",
        redirect.status,
        literal(&format!("{scheme}://"))
    )
}

//! Texts of users are data: wherever a text can stand in a plan, the rendered file has exactly the directives of the
//! same plan with a harmless word there, and the text as one word of them; or the object is refused. A tokenizer that
//! knows nothing of the renderer reads the files back.

use super::super::super::tokens::{map_lines, words};
use super::*;
use crate::samples::{consumer, forward, ingress, member, pool, prefix, rule, web};
use bowline_core::plan::{
    Action, HealthCheck, ListenerProtocol, PathKind, Redirect, Rule, Serves, ValueKind, ValueMatch,
};
use bowline_core::update::{ResolvedSite, SiteKey};
use proptest::prelude::*;

/// A place for a user's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    ExactHost,
    WildcardHost,
    RegexHost,
    Owner,
    PrefixPath,
    ExactPath,
    RegexPath,
    Method,
    HeaderName,
    HeaderValue,
    HeaderRegex,
    QueryName,
    QueryValue,
    RedirectScheme,
    RedirectHost,
    RedirectPath,
    PoolOfListener,
    PoolOfRule,
    HealthPath,
    HealthHost,
    Entry,
}

use Place::*;

const PLACES: [Place; 21] = [
    ExactHost,
    WildcardHost,
    RegexHost,
    Owner,
    PrefixPath,
    ExactPath,
    RegexPath,
    Method,
    HeaderName,
    HeaderValue,
    HeaderRegex,
    QueryName,
    QueryValue,
    RedirectScheme,
    RedirectHost,
    RedirectPath,
    PoolOfListener,
    PoolOfRule,
    HealthPath,
    HealthHost,
    Entry,
];

impl Place {
    /// The name of the object with the text.
    fn by(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// A harmless word that occurs nowhere else.
    fn word(self) -> String {
        format!("mark{}", PLACES.iter().position(|it| *it == self).expect("listed") + 10)
    }

    /// Adds an object with this text to a plan.
    fn put(self, desired: &mut Desired, text: &str) {
        let by = self.by();
        let host = || Host::Exact(format!("{by}.example").into());
        let text_as = |kind| ValueMatch { name: "x".into(), kind, value: text.into() };
        let named = || ValueMatch { name: text.into(), ..text_as(ValueKind::Exact) };
        let named = || ValueMatch { value: "v".into(), ..named() };
        let usual = || prefix("/", "p");
        let to = |redirect| rule(PathKind::Prefix, "/", Action::Redirect(redirect));
        let elsewhere = Redirect { scheme: None, host: None, port: None, path: None, status: 302 };
        let (host, rule) = match self {
            ExactHost => (Host::Exact(text.into()), usual()),
            WildcardHost => (Host::Wildcard(text.into()), usual()),
            RegexHost => (Host::Regex(text.into()), usual()),
            PrefixPath => (host(), prefix(&format!("/{text}"), "p")),
            ExactPath => (host(), rule(PathKind::Exact, &format!("/{text}"), forward("p"))),
            RegexPath => (host(), rule(PathKind::Regex, text, forward("p"))),
            Method => (host(), Rule { method: Some(text.into()), ..usual() }),
            HeaderName => (host(), Rule { headers: vec![named()], ..usual() }),
            HeaderValue => (host(), Rule { headers: vec![text_as(ValueKind::Exact)], ..usual() }),
            HeaderRegex => (host(), Rule { headers: vec![text_as(ValueKind::Regex)], ..usual() }),
            QueryName => (host(), Rule { query: vec![named()], ..usual() }),
            QueryValue => (host(), Rule { query: vec![text_as(ValueKind::Exact)], ..usual() }),
            RedirectScheme => (host(), to(Redirect { scheme: Some(text.into()), ..elsewhere })),
            RedirectHost => (host(), to(Redirect { host: Some(text.into()), ..elsewhere })),
            RedirectPath => (host(), to(Redirect { path: Some(text.into()), ..elsewhere })),
            PoolOfListener => {
                let consumer = consumer(ConsumerKind::Ingress, &by);
                let to = Serves::Pool(text.into());
                desired.put_listener("127.0.0.1:90", ListenerProtocol::Tcp, to, consumer);
                desired.put_pool(pool(text), &[member(2)]);
                return;
            }
            PoolOfRule => {
                desired.put_pool(pool(text), &[member(3)]);
                (host(), prefix("/", text))
            }
            HealthPath | HealthHost => {
                let mut checked = pool(&by);
                let path = if self == HealthPath { text } else { "/" };
                let http_path = Some(path.into());
                checked.health_check =
                    Some(HealthCheck { http_path, interval_ms: 1000, fall: 1, rise: 1 });
                if self == HealthHost {
                    checked.service.name = text.into();
                }
                desired.put_pool(checked, &[member(4)]);
                (host(), prefix("/", &by))
            }
            Entry => {
                let consumer = consumer(ConsumerKind::Ingress, &by);
                let to = Serves::Entry(text.into());
                desired.put_listener("127.0.0.1:91", ListenerProtocol::Http, to, consumer);
                return;
            }
            Owner => {
                let rules = vec![(usual(), ingress(&by))];
                let site = ResolvedSite { owner: text.into(), tls: None, rules };
                let key = SiteKey { entry: "web".into(), host: host() };
                desired.sites.insert(key, Arc::new(site));
                return;
            }
        };
        desired.put_site(host, None, &by, vec![rule]);
    }

    /// Adds what is left of the object when the text is refused.
    fn put_refused(self, desired: &mut Desired) {
        let by = self.by();
        let host = || Host::Exact(format!("{by}.example").into());
        match self {
            ExactHost | WildcardHost | RegexHost | Owner | PoolOfListener | Entry => {}
            // If its only rule is refused, the host has none.
            PrefixPath | ExactPath | RegexPath | Method | HeaderName | HeaderValue
            | HeaderRegex | QueryName | QueryValue => {
                desired.put_site(host(), None, &by, Vec::new())
            }
            // The action is replaced by an answer with status 503.
            RedirectScheme | RedirectHost | RedirectPath | PoolOfRule => {
                desired.put_site(host(), None, &by, vec![prefix("/", "gone")]);
            }
            HealthPath | HealthHost => {
                let mut unchecked = pool(&by);
                let check = HealthCheck { http_path: None, interval_ms: 1000, fall: 1, rise: 1 };
                unchecked.health_check = Some(check);
                desired.put_pool(unchecked, &[member(4)]);
                desired.put_site(host(), None, &by, vec![prefix("/", &by)]);
            }
        }
    }

    /// Replaces the harmless word by the text as the renderer writes it.
    fn replace(self, read: &str, text: &str) -> String {
        let word = self.word();
        match self {
            // Names of pools are written with colons; prefixes end with one slash.
            PoolOfListener | PoolOfRule => read.replace(&word, &text.replace('/', ":")),
            PrefixPath => {
                let path = format!("/{text}");
                let path = path.strip_suffix('/').unwrap_or(&path);
                read.replace(&format!("/{word}/"), &format!("{path}/"))
            }
            RedirectScheme | RedirectHost | RedirectPath => {
                read.replace(&word, &text.replace('%', "%%"))
            }
            _ => read.replace(&word, text),
        }
    }
}

/// The plan that the texts are added to.
fn base() -> Desired {
    let mut desired = web(80, "a.example", vec![prefix("/", "p")]);
    desired.put_pool(pool("p"), &[member(1)]);
    desired
}

/// Replaces the digits of hashes, which differ.
fn plain(word: &str) -> String {
    let mut plain = String::new();
    let mut digits = String::new();
    let flush = |digits: &mut String, plain: &mut String| {
        plain.push_str(if digits.len() >= 16 { "(hash)" } else { digits });
        digits.clear();
    };
    for next in word.chars() {
        if next.is_ascii_hexdigit() && !next.is_ascii_uppercase() {
            digits.push(next);
        } else {
            flush(&mut digits, &mut plain);
            plain.push(next);
        }
    }
    flush(&mut digits, &mut plain);
    plain
}

/// All lines of all files, as words. Sections and the entries of maps are sorted.
fn read_back(wanted: &Wanted, change: impl Fn(&str) -> String) -> Vec<Vec<Vec<String>>> {
    let changed = |word: &str| plain(&change(word));
    let mut parts: Vec<Vec<Vec<String>>> = Vec::new();
    for (name, bytes) in wanted.files() {
        let text = String::from_utf8(bytes).expect("text");
        if name != "haproxy.cfg" {
            let entries = map_lines(&text).into_iter();
            let mut lines: Vec<_> =
                entries.map(|(key, value)| vec![changed(key), changed(value)]).collect();
            lines.sort();
            lines.insert(0, vec![changed(&name)]);
            parts.push(lines);
            continue;
        }
        for line in words(&text) {
            let line: Vec<_> = line.iter().map(|word| changed(word)).collect();
            match &*line[0] {
                "global" | "defaults" | "peers" | "frontend" | "backend" => parts.push(vec![line]),
                _ => parts.last_mut().expect("a section").push(line),
            }
        }
    }
    for part in &mut parts {
        // Redirects are in the order of their hashes.
        let of_redirects = |line: &Vec<String>| line.iter().any(|it| it == "=redirect-(hash)");
        part.chunk_by_mut(|a, b| of_redirects(a) && of_redirects(b)).for_each(<[_]>::sort);
    }
    parts.sort();
    parts
}

/// Whether the files have exactly what the plan asks for.
fn is_exact(texts: &[(Place, &str)]) -> Result<(), TestCaseError> {
    let mut hostile = base();
    texts.iter().for_each(|(place, text)| place.put(&mut hostile, text));
    let found = rendered(&hostile);
    let told = |place: Place| found.refused.iter().any(|it| *it.consumer.name == *place.by());
    let mut harmless = base();
    for (place, _) in texts {
        match told(*place) {
            true => place.put_refused(&mut harmless),
            false => place.put(&mut harmless, &place.word()),
        }
    }
    let expected = rendered(&harmless);
    let change = |word: &str| {
        let taken = texts.iter().filter(|(place, _)| !told(*place));
        taken.fold(word.to_owned(), |word, (place, text)| place.replace(&word, text))
    };
    let same = |word: &str| word.to_owned();
    let (found, expected) = (read_back(&found.wanted, same), read_back(&expected.wanted, change));
    for (found, expected) in found.iter().zip(&expected) {
        for (found, expected) in found.iter().zip(expected) {
            prop_assert_eq!(found, expected);
        }
    }
    prop_assert_eq!(found, expected);
    Ok(())
}

/// Texts as attackers try to inject them into configuration files.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "\n",
        "\r\n",
        "\"",
        "'",
        "{",
        "}",
        "#",
        ";",
        "\\",
        "\0",
        " ",
        "\t",
        "%",
        "$",
        "${PATH}",
        "%[env(A)]",
        "lua-load /x",
        "\u{e4}",
        "x",
        "y",
        "/",
        ".",
        "..",
        ":",
        "]",
        ",",
        "(",
        ")",
        "-f",
        "--",
        "server x 1.2.3.4",
        "\nbackend x\n  server y 6.6.6.6:1\n",
        "' '",
        "use_backend",
        "\\'",
        "=404",
        "|",
        "*",
        "?",
        "~",
        "@",
        "%%",
        "\u{7f}",
        "\u{2028}",
    ]);
    let short = prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat());
    let tame = "[a-z][a-z0-9.-]{0,6}[a-z0-9]";
    prop_oneof![12 => short, 6 => tame, 1 => Just("x".repeat(20_000))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_of_a_user_adds_or_changes_a_directive(
        texts in prop::collection::vec(hostile(), PLACES.len()),
    ) {
        let texts: Vec<_> =
            PLACES.into_iter().zip(texts.iter().map(String::as_str)).collect();
        is_exact(&texts)?;
    }
}

/// Published attacks on ingress controllers, and similar ones for HAProxy.
const ATTACKS: [&str; 26] = [
    // Another directive, another block, another section.
    "x;\n}\nserver { listen 1; }",
    "x\n    server evil 192.0.2.66:80",
    "x\r\n    http-request lua.evil",
    "x\n\nbackend evil\n    server evil 192.0.2.66:80\n",
    "x } if TRUE\n    use_backend evil",
    "x\u{2028}backend evil",
    // The rest of the line or file becomes a comment or is cut off.
    "x #",
    "# x",
    "x\0\n",
    "\0",
    // The end of a quotation.
    "x' lua-load /tmp/evil.lua '",
    "x\\' lua-load /tmp/evil.lua",
    "x'\\''; evil",
    "\" } lua-load /tmp/evil.lua",
    "x\\",
    // Files, programs and variables of the machine.
    ".include /etc/passwd",
    "lua-load /proc/self/fd/9",
    "ssl_engine /tmp/evil.so",
    "/../../../../etc/shadow",
    "%[env(KUBECONFIG)]",
    "${KUBECONFIG}",
    "$(id)`id`",
    // Another rule, for everything or for other tenants.
    "x) or always_true",
    "x -m found } or { always_true",
    "-i -f /etc/passwd",
    "} || { src 0.0.0.0/0",
];

#[test]
fn what_ingress_controllers_were_attacked_with_changes_nothing() {
    for attack in ATTACKS {
        for place in PLACES {
            let exact = is_exact(&[(place, attack)]);
            assert!(exact.is_ok(), "{place:?} {attack:?}: {exact:?}");
        }
        let everywhere: Vec<_> = PLACES.into_iter().map(|place| (place, attack)).collect();
        assert!(is_exact(&everywhere).is_ok(), "{attack:?}");
    }
}

#[test]
fn haproxy_accepts_what_is_left_of_attacks() {
    for attack in ATTACKS {
        let mut desired = base();
        // Only a trial finds an invalid regular expression.
        let no_expression = |place: &Place| !matches!(place, RegexHost | RegexPath | HeaderRegex);
        PLACES.iter().filter(|it| no_expression(it)).for_each(|it| it.put(&mut desired, attack));
        let wanted = rendered(&desired).wanted;
        let said = haproxy_says(&wanted);
        assert!(said.is_ok(), "{attack:?}: {said:?}\n{}", wanted.config());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn haproxy_accepts_whatever_is_not_refused(
        texts in prop::collection::vec(hostile(), PLACES.len()),
    ) {
        let mut desired = base();
        for (place, text) in PLACES.into_iter().zip(&texts) {
            if !matches!(place, RegexHost | RegexPath | HeaderRegex) {
                place.put(&mut desired, text);
            }
        }
        let wanted = rendered(&desired).wanted;
        let said = haproxy_says(&wanted);
        prop_assert!(said.is_ok(), "{:?}\n{}", said, wanted.config());
    }
}

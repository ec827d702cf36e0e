//! Compares the router with a naive one that tries every rule, and tests the examples of the
//! Ingress specification.

use super::*;
use bowline_core::key::ConsumerKind;
use bowline_core::plan::{Action, PathKind, PathMatch, ValueKind, ValueMatch};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

fn consumer() -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Ingress,
        namespace: "shop".into(),
        name: "web".into(),
        uid: "1".into(),
    }
}

/// A rule that is recognized by its status.
fn rule(kind: PathKind, path: &str, status: u16) -> Rule {
    Rule {
        path: PathMatch { kind, value: path.into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Respond(status),
    }
}

fn site(rules: impl IntoIterator<Item = Rule>) -> Arc<ResolvedSite> {
    let rules = rules.into_iter().map(|rule| (rule, consumer())).collect();
    Arc::new(ResolvedSite { owner: "shop".into(), tls: None, rules })
}

fn owned(owner: &str, rules: impl IntoIterator<Item = Rule>) -> Arc<ResolvedSite> {
    let site = site(rules);
    Arc::new(ResolvedSite { owner: owner.into(), ..(*site).clone() })
}

fn key(host: &str) -> SiteKey {
    SiteKey { entry: "web".into(), host: host.parse().unwrap() }
}

fn router(sites: &[(SiteKey, Arc<ResolvedSite>)]) -> Router {
    Router::build(sites.iter().map(|(key, site)| (key, site)))
}

fn status(rule: &Rule) -> u16 {
    match rule.action {
        Action::Respond(status) => status,
        _ => 0,
    }
}

fn get<'a>(path: &'a str, headers: &'a HeaderMap) -> Request<'a> {
    Request { path, method: "GET", headers, query: None }
}

fn route<'a>(router: &'a Router, name: Option<&'a str>, request: &Request<'_>) -> Option<&'a Rule> {
    router.sites("web", name).and_then(|sites| sites.route(request))
}

fn ask(router: &Router, name: &str, path: &str) -> Option<u16> {
    route(router, Some(name), &get(path, &HeaderMap::new())).map(status)
}

#[test]
fn paths_match_as_the_ingress_specification_says() {
    use PathKind::{Exact, Prefix};
    for (kind, rules, path, expected) in [
        (Prefix, &["/"][..], "/any/path", Some("/")),
        (Exact, &["/foo"], "/foo", Some("/foo")),
        (Exact, &["/foo"], "/bar", None),
        (Exact, &["/foo"], "/foo/", None),
        (Exact, &["/foo/"], "/foo", None),
        (Prefix, &["/foo"], "/foo", Some("/foo")),
        (Prefix, &["/foo"], "/foo/", Some("/foo")),
        (Prefix, &["/foo/"], "/foo", Some("/foo/")),
        (Prefix, &["/foo/"], "/foo/", Some("/foo/")),
        (Prefix, &["/aaa/bb"], "/aaa/bbb", None),
        (Prefix, &["/aaa/bbb"], "/aaa/bbb", Some("/aaa/bbb")),
        (Prefix, &["/aaa/bbb/"], "/aaa/bbb", Some("/aaa/bbb/")),
        (Prefix, &["/aaa/bbb"], "/aaa/bbb/", Some("/aaa/bbb")),
        (Prefix, &["/aaa/bbb"], "/aaa/bbb/ccc", Some("/aaa/bbb")),
        (Prefix, &["/aaa/bbb"], "/aaa/bbbxyz", None),
        (Prefix, &["/aaa", "/"], "/aaa/ccc", Some("/aaa")),
        (Prefix, &["/aaa", "/"], "/ccc", Some("/")),
        (Prefix, &["/aaa/bbb", "/aaa", "/"], "/aaa/bbb", Some("/aaa/bbb")),
        (Prefix, &["/aaa"], "/ccc", None),
    ] {
        let rules = rules.iter().map(|path| rule(kind, path, 200));
        let router = router(&[(key("a.example"), site(rules))]);
        let headers = HeaderMap::new();
        let matched = route(&router, Some("a.example"), &get(path, &headers));
        assert_eq!(matched.map(|rule| &*rule.path.value), expected, "{kind:?} {path}");
    }
}

#[test]
fn a_wildcard_is_exactly_one_label() {
    let router = router(&[(key("*.foo.com"), site([rule(PathKind::Prefix, "/", 1)]))]);
    assert_eq!(ask(&router, "bar.foo.com", "/"), Some(1));
    for host in ["baz.bar.foo.com", "foo.com", ".foo.com", "", "foo.com."] {
        assert_eq!(ask(&router, host, "/"), None, "{host}");
    }
}

#[test]
fn a_request_that_its_own_host_has_no_rule_for_goes_on_to_less_specific_hosts() {
    let one = |path, status| site([rule(PathKind::Prefix, path, status)]);
    let sites = [
        (key("a.example.com"), one("/own", 1)),
        (key("*.example.com"), one("/wild", 2)),
        (key("~a[.].*"), one("/regex", 3)),
        (key(""), one("/", 4)),
    ];
    let router = router(&sites);
    let paths = ["/own", "/wild", "/regex", "/else"];
    assert_eq!(paths.map(|path| ask(&router, "a.example.com", path)), [1, 2, 3, 4].map(Some));
    let first = |name| router.sites("web", name).unwrap().first().unwrap();
    assert!(Arc::ptr_eq(first(Some("a.example.com")), &sites[0].1), "whatever the path");
    assert!(Arc::ptr_eq(first(None), &sites[3].1));
    assert!(router.sites("other", Some("a.example.com")).is_none());
}

#[test]
fn a_request_meets_nothing_of_another_owner_than_its_hosts() {
    let one = |owner, path, status| owned(owner, [rule(PathKind::Prefix, path, status)]);
    let router = router(&[
        (key("a.example.com"), one("shop", "/own", 1)),
        (key("*.example.com"), one("evil", "/", 2)),
        (key("~a[.].*"), one("evil", "/", 3)),
        (key(""), one("shop", "/else", 4)),
    ]);
    let paths = ["/own", "/login", "/else"];
    assert_eq!(paths.map(|path| ask(&router, "a.example.com", path)), [Some(1), None, Some(4)]);
    assert_eq!(ask(&router, "b.example.com", "/else"), Some(2));
    assert_eq!(ask(&router, "c.example", "/login"), None);
}

#[test]
fn a_change_shares_the_sites_that_stay() {
    let (a, b) = (site([rule(PathKind::Prefix, "/", 1)]), site([rule(PathKind::Prefix, "/", 2)]));
    let before = router(&[(key("a.example"), a), (key("b.example"), b)]);
    let c = site([rule(PathKind::Prefix, "/", 3)]);
    let after = before.with(&[Change::Put(key("~c+"), c), Change::Remove(key("b.example"))]);
    let placed = |router: &Router| router.entries["web"].exact["a.example"].clone();
    assert!(Arc::ptr_eq(&placed(&before), &placed(&after)));
    assert_eq!(
        ["a.example", "b.example", "ccc"].map(|h| ask(&after, h, "/")),
        [Some(1), None, Some(3)]
    );
    assert_eq!(ask(&before, "b.example", "/"), Some(2));
    let nothing = after.with(&[Change::Remove(key("~c+")), Change::Remove(key("a.example"))]);
    assert!(nothing.entries.is_empty());
}

#[test]
fn expressions_that_cannot_be_used_are_reported_and_the_others_serve() {
    let huge = "((x{100}){100}){100}";
    let mut bad_header = rule(PathKind::Prefix, "/h", 3);
    bad_header.headers.push(value("x", ValueKind::Regex, "("));
    let rules = [rule(PathKind::Regex, huge, 1), rule(PathKind::Regex, "/(a|b)", 2), bad_header];
    let hosts = [
        (key("a.example"), site(rules)),
        (
            SiteKey { entry: "web".into(), host: Host::Regex("(".into()) },
            site([rule(PathKind::Prefix, "/", 4)]),
        ),
    ];
    let router = router(&hosts);
    assert_eq!(ask(&router, "a.example", "/b"), Some(2));
    let mut unused: Vec<_> = router.unused().into_iter().map(|u| (u.pattern, u.why)).collect();
    unused.sort_by_key(|(pattern, _)| pattern.clone());
    let expected = [
        ("(".into(), BadPattern::Unreadable),
        (huge.into(), BadPattern::TooLarge),
        ("/h".into(), BadPattern::Unreadable),
    ];
    assert_eq!(unused, expected);
}

#[test]
fn of_ten_thousand_rules_only_those_with_the_path_are_looked_at() {
    let rules = (0..10_000).map(|i| rule(PathKind::Prefix, &format!("/p{i}/x"), 200));
    let many = site::Compiled::new(site(rules));
    let headers = HeaderMap::new();
    let deep = "/p9999/x".to_string() + &"/y".repeat(2000);
    for (path, candidates) in [(&*deep, 1), ("/p7/x/y", 1), ("/none", 0), ("/", 0)] {
        let request = get(path, &headers);
        assert_eq!(many.candidates(&request).map(<[u32]>::len).sum::<usize>(), candidates);
    }
}

fn value(name: &str, kind: ValueKind, value: &str) -> ValueMatch {
    ValueMatch { name: name.into(), kind, value: value.into() }
}

/// The naive router, which is easy to check by eye.
mod naive {
    use super::*;
    use regex::Regex;
    use std::cell::RefCell;

    pub(super) fn route(
        sites: &[(SiteKey, Arc<ResolvedSite>)],
        name: Option<&str>,
        request: &Request<'_>,
    ) -> Option<u16> {
        let mut sites: Vec<_> = sites.iter().filter(|(key, _)| host(&key.host, name)).collect();
        sites.sort_by_key(|(key, _)| key.host.clone());
        let owner = sites.first()?.1.owner.clone();
        let mut rules =
            sites.iter().filter(|(_, site)| site.owner == owner).flat_map(|(_, site)| &site.rules);
        rules.find(|(rule, _)| meets(rule, request)).map(|(rule, _)| status(rule))
    }

    fn whole(pattern: &str, text: &str) -> bool {
        thread_local! {
            static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default();
        }
        KNOWN.with_borrow_mut(|known| {
            let compile = || Regex::new(&format!("^(?:{pattern})$")).unwrap();
            known.entry(pattern.into()).or_insert_with(compile).is_match(text)
        })
    }

    fn host(wanted: &Host, name: Option<&str>) -> bool {
        let host = name.unwrap_or("");
        let labels: Vec<_> = host.split('.').collect();
        match wanted {
            Host::Any => true,
            Host::Exact(name) => **name == *host,
            Host::Wildcard(domain) => !labels[0].is_empty() && labels[1..].join(".") == **domain,
            Host::Regex(pattern) => !host.is_empty() && whole(pattern, host),
        }
    }

    fn elements(path: &str) -> Vec<&str> {
        path.strip_suffix('/').unwrap_or(path).split('/').collect()
    }

    fn meets(rule: &Rule, request: &Request<'_>) -> bool {
        let path = match rule.path.kind {
            PathKind::Exact => *rule.path.value == *request.path,
            PathKind::Prefix => {
                let mut sent = request.path.split('/');
                elements(&rule.path.value).into_iter().all(|wanted| sent.next() == Some(wanted))
            }
            PathKind::Regex => whole(&rule.path.value, request.path),
        };
        let is = |wanted: &ValueMatch, got: &str| match wanted.kind {
            ValueKind::Exact => *wanted.value == *got,
            ValueKind::Regex => whole(&wanted.value, got),
        };
        let headers = rule.headers.iter().all(|wanted| {
            request
                .headers
                .get_all(&*wanted.name)
                .iter()
                .any(|got| is(wanted, got.to_str().unwrap()))
        });
        let query = rule.query.iter().all(|wanted| {
            let first = request.query.unwrap_or("").split('&').find_map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (name == &*wanted.name).then_some(value)
            });
            first.is_some_and(|got| is(wanted, got))
        });
        path && rule.method.as_deref().is_none_or(|m| m == request.method) && headers && query
    }
}

fn any_path() -> impl Strategy<Value = String> {
    "(/[ab]{0,2}){1,3}"
}

fn any_values() -> impl Strategy<Value = Vec<ValueMatch>> {
    let one = (
        "[xy]",
        prop_oneof![5 => Just(ValueKind::Exact), 1 => Just(ValueKind::Regex)],
        "[ab]{1,2}",
    );
    prop::collection::vec(one.prop_map(|(n, kind, v)| value(&n, kind, &v)), 0..2)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let path = prop_oneof![
        3 => any_path().prop_map(|path| (PathKind::Exact, path)),
        3 => any_path().prop_map(|path| (PathKind::Prefix, path)),
        1 => "/[ab](|[.][*]|/b[+])".prop_map(|path| (PathKind::Regex, path)),
    ];
    let method = prop::option::of(prop_oneof![Just("GET"), Just("PUT")]);
    (path, method, any_values(), any_values()).prop_map(|((kind, path), method, headers, query)| {
        Rule { method: method.map(Into::into), headers, query, ..rule(kind, &path, 0) }
    })
}

fn any_host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]([.][ab]){0,2}",
        "[*][.][ab]([.][ab])?",
        "~[ab][.][*]",
        "~([ab]|[.])[+]",
        Just(String::new()),
    ]
}

type Sites = Vec<(SiteKey, Arc<ResolvedSite>)>;

/// Sites whose rules all have different statuses.
fn any_sites() -> impl Strategy<Value = Sites> {
    let rules = prop::collection::vec(any_rule(), 0..6);
    let owner = prop_oneof![3 => Just("shop"), 1 => Just("other")];
    prop::collection::btree_map(any_host(), (owner, rules), 0..6).prop_map(|sites| {
        let mut number = 0;
        let mut numbered = |mut rule: Rule| {
            number += 1;
            rule.action = Action::Respond(number);
            rule
        };
        let sites = sites.into_iter();
        sites
            .map(|(host, (owner, rules))| {
                (key(&host), owned(owner, rules.into_iter().map(&mut numbered)))
            })
            .collect()
    })
}

#[derive(Clone, Debug)]
struct Asked {
    host: Option<String>,
    path: String,
    method: &'static str,
    headers: Vec<(String, String)>,
    query: Option<String>,
}

fn any_request() -> impl Strategy<Value = Asked> {
    let host = prop::option::of("[ab]([.][ab]){0,2}");
    let method = prop_oneof![Just("GET"), Just("PUT")];
    let headers = prop::collection::vec(("[xy]", "[ab]{1,2}"), 0..3);
    let query = prop::option::of("([xy]=[ab]{0,2}&){0,2}[xy](=[ab])?");
    (host, any_path(), method, headers, query).prop_map(|(host, path, method, headers, query)| {
        Asked { host, path, method, headers, query }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_rule_picked_is_the_one_that_a_naive_router_picks(
        sites in any_sites(), asked in prop::collection::vec(any_request(), 1..40),
    ) {
        let built = router(&sites);
        let puts: Vec<_> = sites.iter().rev().map(|(k, s)| Change::Put(k.clone(), s.clone())).collect();
        let changed = puts.chunks(2).fold(Router::default(), |router, puts| router.with(puts));
        for asked in asked {
            let mut headers = HeaderMap::new();
            for (name, value) in &asked.headers {
                headers.append(
                    HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    HeaderValue::from_str(value).unwrap(),
                );
            }
            let request = Request {
                path: &asked.path,
                method: asked.method,
                headers: &headers,
                query: asked.query.as_deref(),
            };
            let name = asked.host.as_deref();
            let expected = naive::route(&sites, name, &request);
            for router in [&built, &changed] {
                let got = route(router, name, &request).map(status);
                prop_assert_eq!(got, expected, "{:?}", request);
            }
        }
    }

    #[test]
    fn no_request_makes_the_router_fail(host in "\\PC{0,20}", path in "\\PC{0,20}", query in "\\PC{0,20}") {
        let mut with_query = rule(PathKind::Prefix, "/é", 1);
        with_query.query.push(value("a", ValueKind::Exact, "b"));
        let sites = [(key(""), site([with_query, rule(PathKind::Prefix, "/é/b", 2)]))];
        let headers = HeaderMap::new();
        let request = Request { query: Some(&query), ..get(&path, &headers) };
        route(&router(&sites), Some(&host), &request);
    }
}

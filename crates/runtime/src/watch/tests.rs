use super::*;
use crate::embedded::{self, EmbeddedOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn name(seen: Seen<ConfigMap>) -> Option<Seen<String>> {
    Some(match seen {
        Seen::Begin => Seen::Begin,
        Seen::Apply(object) => Seen::Apply(object.name_any()),
        Seen::Delete(object) => Seen::Delete(object.name_any()),
        Seen::Done => Seen::Done,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_comes_between_begin_and_done_and_changes_follow() {
    let cluster = embedded::start(EmbeddedOptions::default()).await.unwrap();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    api.create(&PostParams::default(), &map("a")).await.unwrap();
    let (listener, mut seen) = mpsc::channel(16);
    let selection = Selection::default();
    let watch =
        tokio::spawn(follow(api.clone(), selection, "maps", Metrics::default(), listener, name));
    let mut first = Vec::new();
    while first.last() != Some(&Seen::Done) {
        first.push(seen.recv().await.unwrap());
    }
    let a = Seen::Apply("a".to_owned());
    assert_eq!(first.first(), Some(&Seen::Begin));
    assert!(first.contains(&a), "{first:?}");
    api.create(&PostParams::default(), &map("b")).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(seen.recv().await, Some(Seen::Apply("b".to_owned())));
    assert_eq!(seen.recv().await, Some(Seen::Delete("a".to_owned())));
    drop(seen);
    watch.await.unwrap();
    cluster.shutdown().await;
}

#[test]
fn only_a_refused_parameter_leads_to_pages_and_only_an_expired_version_to_a_new_start() {
    let error = |code| {
        let status = kube::core::Status { code, ..Default::default() };
        Error::WatchStartFailed(kube::Error::Api(Box::new(status)))
    };
    let codes = [400, 401, 403, 404, 410, 422, 429, 500];
    let refused: Vec<_> = codes.into_iter().filter(|c| refuses_streaming(&error(*c))).collect();
    let expired: Vec<_> = codes.into_iter().filter(|c| expired(&error(*c))).collect();
    assert_eq!((refused, expired), (vec![400, 422], vec![410]));
}

#[test]
fn a_list_that_breaks_with_the_servers_own_failure_is_read_in_pages() {
    let error = |code| {
        let status = kube::core::Status { code, ..Default::default() };
        Error::WatchError(Box::new(status))
    };
    let codes = [400, 410, 429, 500, 503, 504];
    let cannot: Vec<_> = codes.into_iter().filter(|c| cannot_stream(&error(*c))).collect();
    assert_eq!(cannot, vec![500, 503]);
}

#[test]
fn what_is_forbidden_is_told_once_with_the_remedy_and_other_trouble_when_it_stays() {
    let trouble = |code| {
        let status = kube::core::Status { code, ..Default::default() };
        Trouble::Watch(Error::WatchStartFailed(kube::Error::Api(Box::new(status))))
    };
    let what = What { label: "cookies", remedy: Some("do this".to_owned()) };
    let plain = What::from("Plan");
    let told = |what, code| {
        [(1, false), (2, true), (9, true)]
            .map(|(failures, told)| complaint(what, &trouble(code), failures, told))
    };
    use Complaint::{Loud, Quiet, Remedy};
    assert_eq!(told(&what, 403), [Remedy("do this"), Quiet, Quiet]);
    assert_eq!(told(&what, 500), [Quiet, Quiet, Loud]);
    assert_eq!(told(&plain, 403), [Quiet, Quiet, Loud]);
}

/// An API server that gives these answers, one for each request, and no more. The second value
/// collects the versions that the requests named.
async fn scripted(answers: Vec<(u16, String)>) -> (Api<ConfigMap>, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let state = (Arc::clone(&asked), Arc::new(Mutex::new(VecDeque::from(answers))));
    let answer = async move |axum::extract::RawQuery(query): axum::extract::RawQuery| {
        let query = query.unwrap_or_default();
        let version = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        state.0.lock().push(version.unwrap_or("none").to_owned());
        let next = state.1.lock().pop_front();
        let Some((code, body)) = next else { return std::future::pending().await };
        (axum::http::StatusCode::from_u16(code).unwrap(), body)
    };
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let server = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(socket, server).await });
    let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    (Api::namespaced(client, "default"), asked)
}

fn event(type_: &str, name: &str, version: &str) -> String {
    let metadata = json!({"name": name, "namespace": "default", "resourceVersion": version});
    object_event(type_, metadata)
}

fn object_event(type_: &str, metadata: serde_json::Value) -> String {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    json!({"type": type_, "object": object}).to_string() + "\n"
}

/// The end of a streaming list.
fn end(version: &str) -> String {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    object_event("BOOKMARK", json!({"resourceVersion": version, "annotations": annotations}))
}

fn expiry() -> String {
    let status = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
    json!({"type": "ERROR", "object": status}).to_string() + "\n"
}

fn page(version: &str, names: &[&str]) -> String {
    let items: Vec<_> = names.iter().map(|name| map(name)).collect();
    let list = json!({"metadata": {"resourceVersion": version}, "items": items});
    list.to_string()
}

/// What is sent for these answers until this many lists are done, and the versions that were
/// requested.
async fn told(answers: Vec<(u16, String)>, lists: usize) -> (Vec<Seen<String>>, Vec<String>) {
    let (api, asked) = scripted(answers).await;
    let (listener, mut seen) = mpsc::channel(64);
    let watch = follow(api, Selection::default(), "maps", Metrics::default(), listener, name);
    let watch = tokio::spawn(watch);
    let mut told = Vec::new();
    while told.iter().filter(|seen| **seen == Seen::Done).count() < lists {
        let next = tokio::time::timeout(Duration::from_secs(20), seen.recv()).await;
        told.push(next.unwrap_or_else(|_| panic!("only {told:?}")).unwrap());
    }
    drop(seen);
    watch.await.unwrap();
    let asked = asked.lock().clone();
    (told, asked)
}

fn all(names: &[&str]) -> Vec<Seen<String>> {
    let objects = names.iter().map(|name| Seen::Apply((*name).to_owned()));
    std::iter::once(Seen::Begin).chain(objects).chain([Seen::Done]).collect()
}

#[tokio::test]
async fn a_list_that_is_older_than_what_was_seen_is_not_told() {
    let answers = vec![
        (200, event("ADDED", "a", "10") + &event("ADDED", "b", "12") + &end("12") + &expiry()),
        (200, event("ADDED", "old", "5") + &end("6")),
        (200, event("ADDED", "b", "12") + &end("20")),
    ];
    let (told, asked) = told(answers, 2).await;
    assert_eq!(told, [all(&["a", "b"]), all(&["b"])].concat());
    assert_eq!(asked[..3], ["0", "12", "12"]);
}

#[tokio::test]
async fn a_list_that_catches_up_while_it_comes_is_told_as_it_is_at_its_end() {
    let late = event("ADDED", "a", "5")
        + &event("ADDED", "b", "6")
        + &event("DELETED", "a", "11")
        + &event("MODIFIED", "b", "12")
        + &end("12");
    let first = event("ADDED", "b", "12") + &end("12") + &expiry();
    let (told, _) = told(vec![(200, first), (200, late)], 2).await;
    assert_eq!(told, [all(&["b"]), all(&["b"])].concat());
}

#[tokio::test]
async fn pages_that_are_older_than_what_was_seen_are_not_told() {
    let refusal = json!({"kind": "Status", "status": "Failure", "code": 422}).to_string();
    let answers = vec![
        (422, refusal),
        (200, page("12", &["a", "b"])),
        (200, event("MODIFIED", "b", "14") + &expiry()),
        (200, page("13", &["a"])),
        (200, page("20", &["b"])),
    ];
    let (told, asked) = told(answers, 2).await;
    let changed = vec![Seen::Apply("b".to_owned())];
    assert_eq!(told, [all(&["a", "b"]), changed, all(&["b"])].concat());
    assert_eq!(asked[..5], ["0", "none", "12", "none", "none"]);
}

#[tokio::test]
async fn versions_that_are_no_numbers_are_believed_in_the_order_in_which_they_come() {
    let answers = vec![
        (200, event("ADDED", "a", "zz") + &end("zz") + &expiry()),
        (200, event("ADDED", "b", "aa") + &end("aa")),
    ];
    assert_eq!(told(answers, 2).await.0, [all(&["a"]), all(&["b"])].concat());
}

#[tokio::test]
async fn an_object_at_which_reading_panics_is_left_out_and_the_others_are_told() {
    let answers = vec![
        (200, event("ADDED", "a", "1") + &event("ADDED", "bad", "2") + &end("2") + &expiry()),
        (200, event("ADDED", "bad", "2") + &event("ADDED", "c", "3") + &end("4")),
    ];
    let (api, _) = scripted(answers).await;
    let (listener, mut seen) = mpsc::channel(64);
    let read = |seen: Seen<ConfigMap>| {
        let told = name(seen);
        assert_ne!(told, Some(Seen::Apply("bad".to_owned())), "a test of panics");
        told
    };
    let metrics = Metrics::default();
    let following = follow(api, Selection::default(), "maps", metrics.clone(), listener, read);
    let following = tokio::spawn(following);
    let mut told = Vec::new();
    while told.iter().filter(|seen| **seen == Seen::Done).count() < 2 {
        told.push(seen.recv().await.unwrap());
    }
    assert_eq!(told, [all(&["a"]), all(&["c"])].concat());
    assert!(metrics.text().contains("bowline_errors_total{reason=\"Unreadable\"} 2"));
    drop(seen);
    following.await.unwrap();
}

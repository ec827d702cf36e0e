use super::*;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bowline_core::update::CookieSecret;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How a server answers requests for one Secret.
#[derive(Clone, Copy, Debug)]
enum Answers {
    Found,
    Absent,
    Silent,
}

/// How a server answers for the Secrets with certificates, by index, and for the one with the cookie
/// secret; it forbids all others.
type Secrets = Arc<(BTreeMap<u32, Answers>, Option<Answers>)>;

const COOKIES: &str = "bowline-cookies-edge";

fn name(index: u32) -> String {
    names::certificates_secret("edge", index)
}

fn answer(secrets: &Secrets, asked: &str) -> Option<Answers> {
    if asked == COOKIES {
        return secrets.1;
    }
    secrets.0.iter().find(|(index, _)| name(**index) == asked).map(|(_, answers)| *answers)
}

fn refusal(code: StatusCode) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
        "reason": "no", "code": code.as_u16()});
    (code, status.to_string()).into_response()
}

fn secret(name: &str) -> Value {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "ours", "resourceVersion": "5"}});
    if name == COOKIES {
        secret["type"] = json!(names::SECRET_TYPE_COOKIES);
        secret["data"] = json!(convert::cookie_secret_data(&CookieSecret([7; 32])));
    }
    secret
}

async fn one(State(secrets): State<Secrets>, Path(asked): Path<String>) -> Response {
    match answer(&secrets, &asked) {
        None => refusal(StatusCode::FORBIDDEN),
        Some(Answers::Absent) => refusal(StatusCode::NOT_FOUND),
        Some(Answers::Silent) => std::future::pending().await,
        Some(Answers::Found) => secret(&asked).to_string().into_response(),
    }
}

async fn watch(State(secrets): State<Secrets>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=")).unwrap();
    let asked = selector.trim_start_matches("metadata.name%3D").to_owned();
    let end = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Secret", "metadata":
        {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}});
    let added = json!({"type": "ADDED", "object": secret(&asked)});
    let lines = match answer(&secrets, &asked) {
        None => return refusal(StatusCode::FORBIDDEN),
        Some(Answers::Silent) => std::future::pending().await,
        Some(Answers::Absent) => format!("{end}\n"),
        Some(Answers::Found) => format!("{added}\n{end}\n"),
    };
    let lines = futures::stream::iter([Ok::<_, std::io::Error>(lines)]);
    Body::from_stream(lines.chain(futures::stream::pending())).into_response()
}

/// The events that an agent gets from such a server until the list is done, and how long that takes.
async fn hears(secrets: &[(u32, Answers)], cookies: Option<Answers>) -> (Vec<Event>, Duration) {
    let router = Router::new()
        .route("/api/v1/namespaces/ours/secrets", get(watch))
        .route("/api/v1/namespaces/ours/secrets/{name}", get(one))
        .with_state(Arc::new((secrets.iter().copied().collect(), cookies)));
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(socket, router).await });
    let client = Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
    let (sender, mut heard) = mpsc::channel(64);
    let begun = Instant::now();
    let following = tokio::spawn(follow(
        client,
        "ours".to_owned(),
        "edge".to_owned(),
        Metrics::default(),
        sender,
        Works::of_nobody(),
    ));
    let mut events = Vec::new();
    while events.last() != Some(&Event::Done(Kind::Certificates)) {
        events.push(heard.recv().await.unwrap().event);
    }
    let took = begun.elapsed();
    following.abort();
    server.abort();
    (events, took)
}

fn shown(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| match event {
        Event::Apply(Object::Certificates(name, _)) => Some(name.to_string()),
        _ => None,
    };
    let mut names: Vec<_> = events.iter().filter_map(name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_secret_after_the_last_may_be_forbidden_and_one_before_it_missing() {
    use Answers::{Absent, Found};
    let (events, took) = hears(&[(0, Found), (1, Absent), (2, Found)], Some(Absent)).await;
    assert_eq!(shown(&events), [name(0), name(2)], "{events:?}");
    assert!(took < PATIENCE, "{took:?}");
}

#[tokio::test]
async fn as_many_secrets_as_an_agent_may_read_are_all_told() {
    let all: Vec<_> =
        (0..certificate_rooms::SECRETS).map(|index| (index, Answers::Found)).collect();
    let (events, took) = hears(&all, None).await;
    let expected: std::collections::BTreeSet<_> =
        (0..certificate_rooms::SECRETS).map(name).collect();
    assert_eq!(shown(&events), expected.into_iter().collect::<Vec<_>>());
    assert!(took < PATIENCE, "{took:?}");
}

#[tokio::test]
async fn a_secret_of_which_nothing_is_heard_holds_nothing_back_for_long() {
    use Answers::{Found, Silent};
    let (events, took) = hears(&[(0, Silent), (1, Found)], None).await;
    assert_eq!(shown(&events), [name(1)], "{events:?}");
    assert!(took < PATIENCE + Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn what_cookies_are_signed_with_is_told_before_all_is_told() {
    let (events, took) = hears(&[(0, Answers::Absent)], Some(Answers::Found)).await;
    let secret = Event::Apply(Object::CookieSecret(CookieSecret([7; 32])));
    assert!(events.contains(&secret), "{events:?}");
    assert!(took < PATIENCE, "{took:?}");
}

#[tokio::test]
async fn all_waits_for_what_cookies_are_signed_with_but_not_for_long() {
    let (events, took) = hears(&[(0, Answers::Absent)], Some(Answers::Silent)).await;
    assert!(!events.iter().any(|it| matches!(it, Event::Apply(_))), "{events:?}");
    assert!((PATIENCE..PATIENCE + Duration::from_secs(2)).contains(&took), "{took:?}");
}

#[test]
fn who_may_not_read_a_secret_is_told_which_and_what_helps() {
    let what = What {
        label: "cookies",
        remedy: Some("may not read bowline-cookies-edge; apply deploy/rbac/agent.yaml".to_owned()),
    };
    assert_eq!(about("cookies", COOKIES), what);
}

use super::*;
use crate::embedded::{self, EmbeddedOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

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
        Error::WatchStartFailed(ClientError::Api(Box::new(status)))
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
    let codes = [400, 410, 429, 500, 503];
    let cannot: Vec<_> = codes.into_iter().filter(|c| cannot_stream(&error(*c))).collect();
    assert_eq!(cannot, vec![500, 503]);
}

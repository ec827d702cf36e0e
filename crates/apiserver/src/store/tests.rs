//! The rules of the store, one by one, through its public API and in memory.

use super::testing::{WIDE, create, delete, few, key, parse, thing, update};
use super::*;
use futures::FutureExt;
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;

fn keys(page: &Page) -> Vec<String> {
    page.items.iter().map(|(key, _)| format!("{}/{}", key.namespace, key.name)).collect()
}

fn seen(events: &[Arc<Event>]) -> Vec<(u64, EventKind, &str)> {
    events.iter().map(|event| (event.revision, event.kind, &*event.key.name)).collect()
}

#[tokio::test]
async fn revisions_start_after_one_and_rise_by_one_with_every_write() {
    let store = Store::memory(WIDE);
    assert_eq!(store.revision(), 1);
    let a = store.write(create(&thing("n/a"), 1)).await.unwrap().entry;
    let b = store.write(create(&thing("n/b"), 1)).await.unwrap().entry;
    let gone = store.write(delete(&thing("n/a"), a.revision)).await.unwrap().entry;
    assert_eq!([a.revision, b.revision, gone.revision, store.revision()], [2, 3, 4, 4]);
}

#[tokio::test]
async fn an_object_carries_its_revision_and_is_shared_not_copied() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch("things", 1).unwrap();
    let first = store.write(create(&thing("n/a"), 1)).await.unwrap().entry;
    let second = store.write(update(&thing("n/a"), 2, 2)).await.unwrap().entry;
    assert_eq!(
        parse(&second.bytes),
        json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "3"}, "spec": 2})
    );
    let events = watch.next().await.unwrap();
    let kept = store.get(&thing("n/a")).unwrap();
    assert_eq!(kept.bytes.as_ptr(), second.bytes.as_ptr());
    assert_eq!(events[1].object.as_ptr(), second.bytes.as_ptr());
    assert_eq!(events[0].object.as_ptr(), first.bytes.as_ptr());
    assert_eq!(events[1].previous.as_ref().unwrap().as_ptr(), first.bytes.as_ptr());
}

#[tokio::test]
async fn resource_and_namespace_names_are_kept_once() {
    let store = Store::memory(WIDE);
    for path in ["n/a", "n/b"] {
        store.write(create(&thing(path), 1)).await.unwrap();
        store.write(create(&key("others", path), 1)).await.unwrap();
    }
    let things = store.list("things", &ListQuery::default()).unwrap().items;
    let others = store.list("others", &ListQuery::default()).unwrap().items;
    assert!(Arc::ptr_eq(&things[0].0.resource, &things[1].0.resource));
    assert!(Arc::ptr_eq(&things[0].0.namespace, &others[1].0.namespace));
}

#[tokio::test]
async fn a_deletion_answers_with_the_last_object_under_the_deletions_revision() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch("things", 2).unwrap();
    let last = store.write(create(&thing("n/a"), 1)).await.unwrap().entry;
    let gone = store.write(delete(&thing("n/a"), 2)).await.unwrap().entry;
    let mut expected = parse(&last.bytes);
    expected["metadata"]["resourceVersion"] = json!("3");
    assert_eq!((parse(&gone.bytes), gone.revision), (expected, 3));
    let events = watch.next().await.unwrap();
    assert_eq!(seen(&events), [(3, EventKind::Deleted, "a")]);
    assert_eq!((&events[0].object, events[0].previous.as_ref()), (&gone.bytes, Some(&last.bytes)));
    assert_eq!(store.get(&thing("n/a")), None);
}

#[tokio::test]
async fn a_write_that_expects_something_else_is_refused_and_changes_nothing() {
    let store = Store::memory(WIDE);
    let a = thing("n/a");
    store.write(create(&a, 1)).await.unwrap();
    let absent = Write { expect: Expect::Absent, ..delete(&thing("n/b"), 0) };
    for (write, error) in [
        (create(&a, 2), WriteError::Exists),
        (update(&a, 9, 2), WriteError::Conflict { current: 2 }),
        (delete(&a, 1), WriteError::Conflict { current: 2 }),
        (update(&thing("n/b"), 2, 2), WriteError::Missing),
        (delete(&thing("n/b"), 2), WriteError::Missing),
        (absent, WriteError::Missing),
    ] {
        assert_eq!(store.write(write).await, Err(error));
    }
    assert_eq!(store.revision(), 2);
}

#[tokio::test]
async fn what_is_no_object_is_refused() {
    let store = Store::memory(WIDE);
    let change = Change::Put { object: json!([1]), claims: Vec::new() };
    let refused = store.write(Write { change, ..create(&thing("n/a"), 1) }).await;
    assert_eq!(refused, Err(WriteError::Storage("not a JSON object: [1]".to_owned())));
}

#[tokio::test]
async fn a_claim_has_one_holder_until_it_is_given_up() {
    let store = Store::memory(WIDE);
    let (a, b) = (thing("n/a"), key("others", "b"));
    store.write(create(&a, 1).claiming(&["ip/1", "port/7", "ip/1"])).await.unwrap();
    assert_eq!(store.claimed_by("ip/1"), Some(a.clone()));
    let taken = WriteError::Claimed { claim: "ip/1".to_owned(), by: a.clone() };
    assert_eq!(store.write(create(&b, 1).claiming(&["ip/0", "ip/1"])).await, Err(taken));
    assert_eq!(store.claimed_by("ip/0"), None);

    store.write(update(&a, 2, 2).claiming(&["ip/2", "port/7"])).await.unwrap();
    assert_eq!(store.claimed_by("ip/1"), None);
    store.write(create(&b, 1).claiming(&["ip/1"])).await.unwrap();
    store.write(delete(&a, 3)).await.unwrap();
    assert_eq!(
        ["ip/1", "ip/2", "port/7"].map(|claim| store.claimed_by(claim)),
        [Some(b), None, None]
    );
}

#[tokio::test]
async fn guards_are_checked_before_everything_else() {
    let store = Store::memory(WIDE);
    let (home, a) = (key("namespaces", "n"), thing("n/a"));
    let exists = Guard::Exists(home.clone());
    let failed = Err(WriteError::GuardFailed(exists.clone()));
    assert_eq!(store.write(create(&a, 1).if_only(exists.clone())).await, failed);
    store.write(create(&home, 1)).await.unwrap();
    store.write(create(&a, 1).if_only(exists.clone())).await.unwrap();

    let empty = Guard::NamespaceEmpty("n".into());
    let full = Err(WriteError::GuardFailed(empty.clone()));
    assert_eq!(store.write(delete(&home, 99).if_only(empty.clone())).await, full);
    assert_eq!(store.namespace_contents("n"), [(Arc::from("things"), 1)]);
    store.write(delete(&a, 3)).await.unwrap();
    assert_eq!(store.namespace_contents("n"), []);
    store.write(delete(&home, 2).if_only(empty)).await.unwrap();
}

#[tokio::test]
async fn later_writes_of_a_batch_see_earlier_ones() {
    let store = Store::memory(WIDE);
    let (home, a, b) = (key("namespaces", "n"), thing("n/a"), thing("n/b"));
    let empty = || Guard::NamespaceEmpty("n".into());
    let answers = join_all([
        store.write(create(&a, 1).if_only(Guard::Exists(home.clone()))),
        store.write(create(&home, 1)),
        store.write(create(&a, 1).if_only(Guard::Exists(home.clone())).claiming(&["x"])),
        store.write(create(&b, 1).claiming(&["x"])),
        store.write(delete(&home, 2).if_only(empty())),
        store.write(delete(&a, 3)),
        store.write(create(&b, 1).claiming(&["x"])),
        store.write(delete(&b, 5)),
        store.write(delete(&home, 2).if_only(empty())),
    ])
    .await;
    let outcome: Vec<_> = answers.into_iter().map(|a| a.map(|done| done.entry.revision)).collect();
    assert_eq!(
        outcome,
        [
            Err(WriteError::GuardFailed(Guard::Exists(home))),
            Ok(2),
            Ok(3),
            Err(WriteError::Claimed { claim: "x".to_owned(), by: a }),
            Err(WriteError::GuardFailed(empty())),
            Ok(4),
            Ok(5),
            Ok(6),
            Ok(7),
        ]
    );
    assert_eq!(store.claimed_by("x"), None);
}

#[tokio::test]
async fn lists_are_in_the_order_of_a_real_server() {
    let store = Store::memory(WIDE);
    for path in ["b/a", "a/z", "a/b", "a-b/c", "a.c/d"] {
        store.write(create(&thing(path), 1)).await.unwrap();
    }
    let all = store.list("things", &ListQuery::default()).unwrap();
    assert_eq!(keys(&all), ["a-b/c", "a.c/d", "a/b", "a/z", "b/a"]);
    let query = ListQuery { namespace: Some("a"), ..ListQuery::default() };
    assert_eq!(keys(&store.list("things", &query).unwrap()), ["a/b", "a/z"]);
    assert_eq!(store.list("nothing", &ListQuery::default()).unwrap().items, []);
}

#[tokio::test]
async fn pages_of_one_snapshot_make_up_the_whole_list() {
    let store = Store::memory(WIDE);
    for path in ["a/1", "a/2", "b/1", "c/1", "c/2"] {
        store.write(create(&thing(path), 1)).await.unwrap();
    }
    let whole = store.list("things", &ListQuery::default()).unwrap();
    let mut query = ListQuery { limit: Some(2), at: Some(6), ..ListQuery::default() };
    let first = store.list("things", &query).unwrap();
    assert_eq!((first.next.clone(), first.remaining), (Some(("a".into(), "2".into())), Some(3)));

    store.write(delete(&thing("b/1"), 4)).await.unwrap();
    store.write(update(&thing("c/1"), 5, 2)).await.unwrap();
    store.write(create(&thing("b/0"), 1)).await.unwrap();
    query.after = Some(("a", "2"));
    let second = store.list("things", &query).unwrap();
    query.after = Some(("c", "1"));
    let third = store.list("things", &query).unwrap();
    assert_eq!((keys(&second), second.remaining), (vec!["b/1".into(), "c/1".into()], Some(1)));
    assert_eq!((third.next.clone(), third.remaining), (None, None));
    let together: Vec<_> = [first, second, third].into_iter().flat_map(|page| page.items).collect();
    assert_eq!(together, whole.items);
}

#[tokio::test]
async fn a_filter_decides_what_counts_towards_the_limit() {
    let store = Store::memory(WIDE);
    for i in 0..6 {
        store.write(create(&thing(&format!("n/{i}")), i)).await.unwrap();
    }
    let even = |_: &Key, object: &[u8]| parse(object)["spec"].as_i64().unwrap() % 2 == 0;
    let mut query = ListQuery { filter: Some(&even), limit: Some(2), ..ListQuery::default() };
    let page = store.list("things", &query).unwrap();
    assert_eq!(keys(&page), ["n/0", "n/2"]);
    assert_eq!((page.next, page.remaining), (Some(("n".into(), "2".into())), None));
    query.after = Some(("n", "2"));
    let page = store.list("things", &query).unwrap();
    assert_eq!((keys(&page), page.next), (vec!["n/4".to_owned()], None));
}

#[tokio::test]
async fn the_past_of_a_resource_is_not_pushed_out_by_another() {
    let store = Store::memory(few(3));
    store.write(create(&thing("n/a"), 1)).await.unwrap();
    let lease = key("leases", "n/l");
    store.write(create(&lease, 1)).await.unwrap();
    for revision in 3..100 {
        store.write(update(&lease, revision, 1)).await.unwrap();
    }
    let mut watch = store.watch("things", 1).unwrap();
    assert_eq!(seen(&watch.next().await.unwrap()), [(2, EventKind::Added, "a")]);
    let expired = Expired { requested: 96, oldest: 97 };
    assert_eq!(store.watch("leases", 96).map(|_| ()), Err(expired));
    let query = ListQuery { at: Some(96), ..ListQuery::default() };
    assert_eq!(store.list("leases", &query), Err(expired));
    assert!(store.watch("leases", 97).is_ok());
}

#[tokio::test]
async fn a_watcher_sees_every_event_of_its_resource_once_and_no_other() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch("things", store.revision()).unwrap();
    assert!(watch.next().now_or_never().is_none());
    let mut got = Vec::new();
    for i in 0..20 {
        store.write(create(&thing(&format!("n/{i}")), i)).await.unwrap();
        store.write(create(&key("others", &format!("n/{i}")), i)).await.unwrap();
        if i % 3 == 0 {
            got.extend(watch.next().await.unwrap());
        }
    }
    got.extend(watch.next().await.unwrap());
    assert_eq!(
        got.iter().map(|e| e.revision).collect::<Vec<_>>(),
        (2..42).step_by(2).collect::<Vec<_>>()
    );
    assert!(watch.next().now_or_never().is_none());
}

#[tokio::test]
async fn a_waiting_watcher_is_woken_by_its_resource() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch("things", 1).unwrap();
    let waiting = tokio::spawn(async move { watch.next().await.map(|events| events.len()) });
    tokio::task::yield_now().await;
    store.write(create(&key("others", "n/a"), 1)).await.unwrap();
    store.write(create(&thing("n/a"), 1)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(1));
}

#[tokio::test]
async fn a_watchers_position_goes_on_while_its_resource_is_silent() {
    let store = Store::memory(WIDE);
    let mut watch = store.watch("things", 1).unwrap();
    store.write(create(&key("others", "n/a"), 1)).await.unwrap();
    assert_eq!(watch.position(), 2);
    store.write(create(&thing("n/a"), 1)).await.unwrap();
    assert_eq!(watch.position(), 1, "an event waits that was not given out");
    watch.next().await.unwrap();
    assert_eq!(watch.position(), 3);
    assert_eq!(store.watch("things", 50).unwrap().position(), 50);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_the_history_is_told_so() {
    let store = Store::memory(few(2));
    let mut watch = store.watch("things", 1).unwrap();
    for i in 0..3 {
        store.write(create(&thing(&format!("n/{i}")), i)).await.unwrap();
    }
    assert_eq!(watch.next().await, Err(Expired { requested: 1, oldest: 2 }));
    assert_eq!(watch.position(), 1);
}

#[tokio::test]
async fn waiting_for_a_revision_ends_when_it_is_there_or_time_is_up() {
    let store = Store::memory(WIDE);
    assert!(store.reached(1, Duration::ZERO).await);
    assert!(!store.reached(2, Duration::from_millis(1)).await);
    let (reached, _) = tokio::join!(
        store.reached(2, Duration::from_secs(60)),
        store.write(create(&thing("n/a"), 1))
    );
    assert!(reached);
}

#[tokio::test]
async fn a_closed_store_reads_but_does_not_write() {
    let store = Store::memory(WIDE);
    store.write(create(&thing("n/a"), 1)).await.unwrap();
    store.clone().close().await;
    store.clone().close().await;
    let refused = Err(WriteError::Storage("the store is closed".to_owned()));
    assert_eq!(store.write(create(&thing("n/b"), 1)).await, refused);
    assert!(store.get(&thing("n/a")).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_concurrent_updates_from_one_revision_exactly_one_wins() {
    let store = Store::memory(WIDE);
    let a = thing("n/a");
    let mut current = store.write(create(&a, 0)).await.unwrap().entry.revision;
    for round in 0..20 {
        let tries = (0..8).map(|_| {
            let (store, write) = (store.clone(), update(&a, current, round));
            tokio::spawn(async move { store.write(write).await })
        });
        let results: Vec<_> = join_all(tries).await.into_iter().map(Result::unwrap).collect();
        let won: Vec<_> = results.iter().flatten().map(|done| done.entry.revision).collect();
        assert_eq!(won.len(), 1, "{results:?}");
        current = won[0];
    }
}

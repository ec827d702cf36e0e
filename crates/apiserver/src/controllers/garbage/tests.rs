//! Tests of the collector's index and verdicts, without an API.

use super::act::{Verdict, judge};
use super::shell::Index as _;
use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ApiResource;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn served(kind: &str, namespaced: bool) -> Served {
    let plural = format!("{}s", kind.to_lowercase());
    Served {
        id: format!("{plural}.").into(),
        resource: ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: kind.into(),
            plural,
        },
        namespaced,
        collection: true,
        watchable: true,
    }
}

fn kinds() -> Vec<Served> {
    vec![served("ConfigMap", true), served("Node", false), served("Service", true)]
}

fn owner(kind: &str, name: &str, uid: &str) -> Owner {
    Owner { group: String::new(), kind: kind.into(), name: name.into(), uid: uid.into() }
}

fn object(namespace: &str, name: &str, owners: &[Owner]) -> Object {
    Object {
        namespace: namespace.into(),
        name: name.into(),
        owners: owners.to_vec(),
        deleting: false,
        orphan: false,
    }
}

fn apply(id: &str, uid: &str, object: Object) -> Seen {
    Seen::Object(id.into(), Event::Apply((uid.into(), object)))
}

fn delete(id: &str, uid: &str) -> Seen {
    Seen::Object(id.into(), Event::Delete((uid.into(), object("", "", &[]))))
}

fn key(id: &str, uid: &str) -> Key {
    (id.into(), uid.into())
}

/// An index that has listed all kinds and observed these events.
fn index(events: impl IntoIterator<Item = Seen>) -> Index {
    let mut index = Index::default();
    index.observe(Seen::Kinds(kinds()));
    for kind in kinds() {
        index.observe(Seen::Object(kind.id.clone(), Event::Init));
        index.observe(Seen::Object(kind.id, Event::InitDone));
    }
    for event in events {
        index.observe(event);
    }
    index
}

fn target(kind: &str, namespace: &str, name: &str, uid: &str) -> Target {
    let namespaced = kind != "Node";
    Target {
        served: served(kind, namespaced),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
    }
}

fn at(target: Target) -> Lookup {
    Lookup::At(Box::new(target))
}

#[test]
fn an_object_whose_owner_is_known_is_left_alone() {
    let web = object("shop", "web", &[]);
    let child = object("shop", "child", &[owner("Service", "web", "1")]);
    let index = index([apply("services.", "1", web), apply("configmaps.", "2", child)]);
    assert_eq!(index.plan(&key("configmaps.", "2"), NOW), Plan::Idle);
}

#[test]
fn the_dependents_of_a_deleted_owner_are_collected() {
    let web = object("shop", "web", &[]);
    let child = object("shop", "child", &[owner("Service", "web", "1")]);
    let mut index = index([apply("services.", "1", web), apply("configmaps.", "2", child)]);
    assert_eq!(index.observe(delete("services.", "1")), [key("configmaps.", "2")]);
    let collect = Action::Collect {
        object: target("ConfigMap", "shop", "child", "2"),
        owners: vec![("1".into(), Lookup::Gone)],
    };
    assert_eq!(index.plan(&key("configmaps.", "2"), NOW), Plan::Do(vec![collect]));
}

#[test]
fn an_owner_that_was_never_seen_is_looked_for_where_it_should_be() {
    let owners = [owner("Service", "web", "1"), owner("Node", "n1", "9")];
    let index = index([apply("configmaps.", "2", object("shop", "child", &owners))]);
    let collect = Action::Collect {
        object: target("ConfigMap", "shop", "child", "2"),
        owners: vec![
            ("1".into(), at(target("Service", "shop", "web", "1"))),
            ("9".into(), at(target("Node", "", "n1", "9"))),
        ],
    };
    assert_eq!(index.plan(&key("configmaps.", "2"), NOW), Plan::Do(vec![collect]));
}

#[test]
fn an_owner_in_another_namespace_does_not_count() {
    let web = object("other", "web", &[]);
    let child = object("shop", "child", &[owner("Service", "web", "1")]);
    let index = index([apply("services.", "1", web), apply("configmaps.", "2", child)]);
    let plan = index.plan(&key("configmaps.", "2"), NOW);
    let looked = vec![("1".into(), at(target("Service", "shop", "web", "1")))];
    let object = target("ConfigMap", "shop", "child", "2");
    assert_eq!(plan, Plan::Do(vec![Action::Collect { object, owners: looked }]));
}

#[test]
fn a_cluster_object_with_a_namespaced_owner_is_left_alone() {
    let index = index([apply("nodes.", "2", object("", "n1", &[owner("Service", "web", "1")]))]);
    assert_eq!(index.plan(&key("nodes.", "2"), NOW), Plan::Idle);
}

#[test]
fn nothing_is_judged_before_the_owners_kind_is_listed_or_while_it_is_not_served() {
    let mut index = Index::default();
    index.observe(Seen::Kinds(kinds()));
    let child = object("shop", "child", &[owner("Service", "web", "1")]);
    index.observe(apply("configmaps.", "2", child));
    assert_eq!(index.plan(&key("configmaps.", "2"), NOW), Plan::At(NOW + SOON));

    let strange = object("shop", "strange", &[owner("Unknown", "web", "1")]);
    index.observe(apply("configmaps.", "3", strange));
    assert_eq!(index.plan(&key("configmaps.", "3"), NOW), Plan::At(NOW + LATER));
}

#[test]
fn owners_of_a_kind_that_is_not_served_for_a_while_are_not_taken_for_gone() {
    let web = object("shop", "web", &[]);
    let child = object("shop", "child", &[owner("Service", "web", "1")]);
    let mut index = index([apply("services.", "1", web.clone()), apply("configmaps.", "2", child)]);
    let rest = kinds().into_iter().filter(|kind| &*kind.id != "services.").collect();
    let configmap = key("configmaps.", "2");
    index.observe(Seen::Kinds(rest));
    assert_eq!(index.plan(&configmap, NOW), Plan::At(NOW + LATER));
    assert_eq!(index.observe(Seen::Kinds(kinds())), std::slice::from_ref(&configmap));
    assert_eq!(index.observe(Seen::Kinds(kinds())), []);
    assert_eq!(index.plan(&configmap, NOW), Plan::At(NOW + SOON));
    index.observe(apply("services.", "1", web));
    assert_eq!(index.plan(&configmap, NOW), Plan::Idle);
}

#[test]
fn a_relist_finds_what_was_deleted_meanwhile() {
    let web = object("shop", "web", &[]);
    let child = object("shop", "child", &[owner("Service", "web", "1")]);
    let mut index = index([apply("services.", "1", web), apply("configmaps.", "2", child)]);
    assert_eq!(index.observe(Seen::Object("services.".into(), Event::Init)), []);
    let done = index.observe(Seen::Object("services.".into(), Event::InitDone));
    assert_eq!(done, [key("configmaps.", "2")]);
}

#[test]
fn an_object_that_is_going_is_only_touched_to_orphan_its_dependents() {
    let mut going = object("shop", "web", &[owner("Service", "none", "9")]);
    going.deleting = true;
    let mut orphaning = object("shop", "web", &[]);
    (orphaning.deleting, orphaning.orphan) = (true, true);
    let mut index = index([apply("services.", "1", going)]);
    assert_eq!(index.plan(&key("services.", "1"), NOW), Plan::Idle);
    assert_eq!(index.observe(apply("services.", "2", orphaning)), [key("services.", "2")]);
    let orphan =
        Action::Orphan { object: target("Service", "shop", "web", "2"), kinds: kinds().into() };
    assert_eq!(index.plan(&key("services.", "2"), NOW), Plan::Do(vec![orphan]));
}

fn reference(uid: &str) -> OwnerReference {
    OwnerReference { uid: uid.into(), ..OwnerReference::default() }
}

#[test]
fn an_object_goes_with_its_last_owner_and_before_that_only_loses_references() {
    let gone = |uids: &[&str]| uids.iter().map(|uid| Uid::from(*uid)).collect();
    let both = || vec![reference("1"), reference("2")];
    assert_eq!(judge(both(), &gone(&["1", "2"])), Verdict::Delete);
    assert_eq!(judge(both(), &gone(&["1"])), Verdict::Cut(vec![reference("2")]));
    assert_eq!(judge(both(), &gone(&[])), Verdict::Keep);
    // The object no longer refers to the owner that was looked up.
    assert_eq!(judge(vec![reference("3")], &gone(&["1"])), Verdict::Keep);
    assert_eq!(judge(Vec::new(), &gone(&["1"])), Verdict::Keep);
}

/// Objects 0..8, each owned by objects of lower numbers, and which of them are deleted in the end.
fn families() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<bool>)> {
    let owners = prop::collection::vec(prop::collection::btree_set(0usize..8, 0..3), 8);
    let owners = owners.prop_map(|all| {
        let lower = |(number, set): (usize, std::collections::BTreeSet<usize>)| {
            set.into_iter().filter(|owner| *owner < number).collect()
        };
        all.into_iter().enumerate().map(lower).collect()
    });
    (owners, prop::collection::vec(any::<bool>(), 8))
}

proptest! {
    #[test]
    fn whatever_the_order_of_events_the_same_objects_are_suspected(
        (owners, deleted) in families(),
        order in Just((0..16).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let seen = |number: usize| {
            let references: Vec<_> = owners[number].iter()
                .map(|it| owner("ConfigMap", &format!("o{it}"), &it.to_string()))
                .collect();
            object("shop", &format!("o{number}"), &references)
        };
        // Each object is applied before it may be deleted; otherwise the order is free.
        let mut index = index([]);
        let mut applied = [false; 8];
        for step in order {
            let number = step % 8;
            if !applied[number] {
                applied[number] = true;
                index.observe(apply("configmaps.", &number.to_string(), seen(number)));
            } else if deleted[number] {
                index.observe(delete("configmaps.", &number.to_string()));
            }
        }
        for number in 0..8 {
            let plan = index.plan(&key("configmaps.", &number.to_string()), NOW);
            let suspected = matches!(plan, Plan::Do(_));
            let expected = !deleted[number] && owners[number].iter().any(|owner| deleted[*owner]);
            prop_assert_eq!(suspected, expected, "object {}: {:?}", number, plan);
        }
    }
}

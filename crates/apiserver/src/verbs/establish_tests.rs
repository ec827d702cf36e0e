//! Definitions on a server in memory: how they take effect, change, and are deleted.

use super::*;
use crate::decode::Decoded;
use crate::error::ApiError;
use crate::http::query::FieldValidation;
use crate::server::Options;
use crate::store::Limits;
use crate::verbs::{DeleteOptions, Input, Part, Written};
use serde_json::json;
use std::time::Duration;

async fn server() -> Arc<Server> {
    let store = Store::memory(Limits::default());
    let server = Arc::new(Server::new(store, Options::default()).unwrap());
    server.bootstrap().await.unwrap();
    server
}

/// A version of Things whose spec has these properties.
fn version(name: &str, storage: bool, spec: Value) -> Value {
    let spec = json!({"type": "object", "default": {}, "properties": spec});
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    })
}

fn definition(plural: &str, versions: Value) -> Value {
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.x.dev")},
        "spec": {
            "group": "x.dev", "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "kind": kind},
        },
    })
}

fn input(value: Value) -> Input {
    Input { decoded: Decoded::plain(value), validation: FieldValidation::Strict }
}

fn definitions(server: &Server) -> Arc<Kind> {
    server.kind("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap()
}

async fn define(server: &Server, definition: Value) -> Result<Written, ApiError> {
    server.create(&definitions(server), "", input(definition)).await
}

/// Replaces the versions of Things.
async fn redefine(server: &Server, versions: Value) {
    let kind = definitions(server);
    let patch = crate::patch::Patch::Merge(json!({"spec": {"versions": versions}}));
    let ignore = FieldValidation::Ignore;
    server.patch(&kind, "", "things.x.dev", Part::Object, &patch, ignore).await.unwrap();
}

fn thing(version: &str, name: &str) -> Value {
    json!({"apiVersion": format!("x.dev/{version}"), "kind": "Thing", "metadata": {"name": name}})
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for {what}");
}

#[tokio::test]
async fn a_definition_written_in_process_takes_effect_with_the_write() {
    let server = server().await;
    define(&server, definition("things", json!([version("v1", true, json!({}))]))).await.unwrap();
    let kind = server.kind("x.dev", "v1", "things").unwrap();
    server.create(&kind, "default", input(thing("v1", "a"))).await.unwrap();
}

#[tokio::test]
async fn a_definition_whose_writer_goes_away_is_established_all_the_same() {
    let server = server().await;
    let wanted = definition("things", json!([version("v1", true, json!({}))]));
    // The writer is dropped at its first await, while it waits for the commit.
    {
        let mut writing = std::pin::pin!(define(&server, wanted));
        assert!(futures::poll!(writing.as_mut()).is_pending());
    }
    eventually("the kind", || server.kind("x.dev", "v1", "things").is_ok()).await;
    let stored = || server.read(&definitions(&server), "", "things.x.dev").unwrap().value;
    eventually("the condition", || crd::established(&stored())).await;
}

#[tokio::test]
async fn a_definition_that_did_not_change_is_not_compiled_again() {
    let server = server().await;
    define(&server, definition("things", json!([version("v1", true, json!({}))]))).await.unwrap();
    let things = server.kind("x.dev", "v1", "things").unwrap();
    let superseded = server.registry.superseded(&things);
    let mut superseded = std::pin::pin!(superseded);
    define(&server, definition("others", json!([version("v1", true, json!({}))]))).await.unwrap();
    server.kind("x.dev", "v1", "others").unwrap();
    assert!(Arc::ptr_eq(&things, &server.kind("x.dev", "v1", "things").unwrap()));
    assert!(futures::poll!(superseded.as_mut()).is_pending());
    redefine(&server, json!([version("v1", true, json!({"a": {"type": "string"}}))])).await;
    assert!(!Arc::ptr_eq(&things, &server.kind("x.dev", "v1", "things").unwrap()));
    superseded.await;
}

#[tokio::test]
async fn a_server_that_goes_lets_go_of_its_store() {
    let folder = std::env::temp_dir().join(format!("bowline-establish-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("store.redb");
    let store = Store::open(&file, Limits::default()).unwrap();
    let server = Server::new(store, Options::default()).unwrap();
    server.bootstrap().await.unwrap();
    drop(server);
    assert!(Store::open(&file, Limits::default()).is_ok());
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The object `default/a` in a version, as GET and LIST show it.
async fn seen(server: &Arc<Server>, version: &str) -> (Value, Value) {
    let path = format!("/apis/x.dev/{version}/namespaces/default/things");
    let get = async |path: String| -> Value {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        server.client().request(request).await.unwrap()
    };
    (get(format!("{path}/a")).await, get(path).await["items"][0].take())
}

#[tokio::test]
async fn objects_are_served_in_the_version_asked_for_whatever_they_were_stored_in() {
    let server = server().await;
    let versions = |stored: &str| {
        json!([version("v1", stored == "v1", json!({})), version("v2", stored == "v2", json!({}))])
    };
    define(&server, definition("things", versions("v1"))).await.unwrap();
    let old = server.kind("x.dev", "v1", "things").unwrap();
    server.create(&old, "default", input(thing("v1", "a"))).await.unwrap();
    redefine(&server, versions("v2")).await;
    for version in ["v1", "v2"] {
        let (got, listed) = seen(&server, version).await;
        let version = json!(format!("x.dev/{version}"));
        assert_eq!((&got["apiVersion"], &listed["apiVersion"]), (&version, &version));
    }
    let new = server.kind("x.dev", "v2", "things").unwrap();
    let stored = || server.read(&new, "default", "a").unwrap();
    assert_eq!(stored().value["apiVersion"], "x.dev/v1");
    // A write that changes nothing else migrates the object; the next one does nothing.
    let nothing = crate::patch::Patch::Merge(json!({}));
    let touch = async || {
        let ignore = FieldValidation::Ignore;
        server.patch(&new, "default", "a", Part::Object, &nothing, ignore).await.unwrap();
        stored()
    };
    let migrated = touch().await;
    assert_eq!(migrated.value["apiVersion"], "x.dev/v2");
    assert_eq!(migrated.value["metadata"]["generation"], 1);
    assert_eq!(touch().await.revision, migrated.revision);
}

#[tokio::test]
async fn a_watch_tells_what_happened_and_ends_when_its_kind_is_defined_anew() {
    use futures::AsyncBufReadExt as _;
    let server = server().await;
    define(&server, definition("things", json!([version("v1", true, json!({}))]))).await.unwrap();
    let path = "/apis/x.dev/v1/namespaces/default/things?watch=1";
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let stream = server.client().request_stream(request).await.unwrap();
    let kind = server.kind("x.dev", "v1", "things").unwrap();
    server.create(&kind, "default", input(thing("v1", "a"))).await.unwrap();
    redefine(&server, json!([version("v1", true, json!({"a": {"type": "string"}}))])).await;
    let lines = stream.lines();
    let lines: Vec<_> =
        tokio::time::timeout(Duration::from_secs(10), futures::StreamExt::collect(lines))
            .await
            .unwrap();
    assert_eq!(lines.len(), 1);
}

#[tokio::test]
async fn objects_older_than_their_schema_are_read_as_it_says() {
    let server = server().await;
    let before = json!({"kept": {"type": "integer"}, "dropped": {"type": "integer"}});
    let after = json!({"kept": {"type": "integer"}, "new": {"type": "integer", "default": 3}});
    define(&server, definition("things", json!([version("v1", true, before)]))).await.unwrap();
    let kind = server.kind("x.dev", "v1", "things").unwrap();
    let mut object = thing("v1", "a");
    object["spec"] = json!({"kept": 1, "dropped": 2});
    server.create(&kind, "default", input(object)).await.unwrap();
    redefine(&server, json!([version("v1", true, after)])).await;
    let expected = json!({"kept": 1, "new": 3});
    let (got, listed) = seen(&server, "v1").await;
    assert_eq!((&got["spec"], &listed["spec"]), (&expected, &expected));
    // An update starts from the served object, and fields that it does not set stay.
    let kind = server.kind("x.dev", "v1", "things").unwrap();
    let patch = crate::patch::Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let ignore = FieldValidation::Ignore;
    server.patch(&kind, "default", "a", Part::Object, &patch, ignore).await.unwrap();
    let stored = server.read(&kind, "default", "a").unwrap().value;
    assert_eq!((&stored["spec"], &stored["metadata"]["generation"]), (&expected, &json!(1)));
}

#[tokio::test]
async fn nothing_is_created_while_its_definition_goes_and_nothing_outlives_it() {
    let server = server().await;
    define(&server, definition("things", json!([version("v1", true, json!({}))]))).await.unwrap();
    let kind = server.kind("x.dev", "v1", "things").unwrap();
    server.create(&kind, "default", input(thing("v1", "a"))).await.unwrap();
    let (definitions, options) = (definitions(&server), DeleteOptions::default());
    server.delete(&definitions, "", "things.x.dev", &options).await.unwrap();
    let refused = server.create(&kind, "default", input(thing("v1", "b"))).await.unwrap_err();
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message,
        "things.x.dev \"b\" is forbidden: create not allowed while custom resource definition is \
         terminating"
    );
    let release = crate::patch::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let ignore = FieldValidation::Ignore;
    let let_go = || server.patch(&definitions, "", "things.x.dev", Part::Object, &release, ignore);
    assert_eq!(let_go().await.unwrap_err().code, 409);
    server.delete(&kind, "default", "a", &options).await.unwrap();
    let_go().await.unwrap();
    assert!(server.kind("x.dev", "v1", "things").is_err());
    // This client looked up the kind before the definition was deleted.
    let refused = server.create(&kind, "default", input(thing("v1", "b"))).await.unwrap_err();
    assert_eq!(refused, ApiError::no_page());
}

#[tokio::test]
async fn objects_of_an_unserved_definition_go_with_it() {
    let server = server().await;
    let mut hidden = version("v1", true, json!({}));
    define(&server, definition("things", json!([hidden.clone()]))).await.unwrap();
    let kind = server.kind("x.dev", "v1", "things").unwrap();
    server.create(&kind, "default", input(thing("v1", "a"))).await.unwrap();
    hidden["served"] = json!(false);
    redefine(&server, json!([hidden])).await;
    let there = || server.read(&kind, "default", "a").is_ok();
    assert!(there() && server.kind("x.dev", "v1", "things").is_err());
    let options = DeleteOptions::default();
    server.delete(&definitions(&server), "", "things.x.dev", &options).await.unwrap();
    eventually("the object to go", || !there()).await;
}

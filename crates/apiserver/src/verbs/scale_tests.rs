//! Tests of the scale subresource.

use super::*;
use crate::decode;
use crate::server::Options;
use crate::store::{Limits, Store};

/// A server with a Deployment of three replicas.
async fn server() -> (Arc<Server>, Arc<Kind>) {
    let server = Server::new(Store::memory(Limits::default()), Options::default()).unwrap();
    server.bootstrap().await.unwrap();
    let kind = server.kind("apps", "v1", "deployments").unwrap();
    let object = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    server
        .create(&kind, "default", input(&object.to_string(), FieldValidation::Warn))
        .await
        .unwrap();
    (Arc::new(server), kind)
}

fn input(text: &str, validation: FieldValidation) -> Input {
    Input { decoded: decode::json(text.as_bytes()).unwrap(), validation }
}

#[tokio::test]
async fn a_body_that_is_no_scale_of_this_object_changes_nothing() {
    let (server, kind) = server().await;
    let unknown = "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error: unknown \
                   field \"spec.replica\"";
    let text = "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal string into \
                Go struct field ScaleSpec.spec.replicas of type int32";
    for (body, code, why) in [
        (json!({"metadata": {"name": "d"}, "spec": {"replica": 5}}), 400, unknown),
        (json!({"metadata": {"name": "d"}, "spec": {"replicas": "5"}}), 400, text),
        (
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "other"}}),
            400,
            "ConfigMap in version \"v1\" cannot be handled as a Scale: no kind \"ConfigMap\" is registered \
             for version \"v1\"",
        ),
        (
            json!({"kind": "ConfigMap", "apiVersion": "autoscaling/v1", "metadata": {"name": "d"}}),
            400,
            "cannot be handled as a Scale",
        ),
        (
            json!({"kind": "Scale", "apiVersion": "autoscaling/v2", "metadata": {"name": "d"}}),
            400,
            "no kind \"Scale\" is registered for version \"autoscaling/v2\"",
        ),
        (
            json!({"metadata": {"name": "other"}}),
            400,
            "the name of the object (other) does not match the name on the URL (d)",
        ),
        (json!(null), 400, "name must be provided"),
        (
            json!({"metadata": {"name": "d", "namespace": "x"}}),
            400,
            "the namespace of the provided object does not match",
        ),
        (json!({"metadata": {"name": "d", "uid": "x"}}), 409, "UID in precondition: x"),
        (json!({"metadata": {"name": "d", "resourceVersion": "1"}}), 409, "has been modified"),
        (
            json!({"metadata": {"name": "d"}, "spec": {"replicas": -5}}),
            422,
            "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -5: must be greater than \
             or equal to 0",
        ),
        (json!({"metadata": {"name": "d"}, "spec": {"replicas": 5_000_000_000_u64}}), 400, "int32"),
    ] {
        let input = input(&body.to_string(), FieldValidation::Strict);
        let error = server.replace_scale(&kind, "default", "d", input).await.unwrap_err();
        assert_eq!(error.code, code, "{body}: {error}");
        assert!(error.message.contains(why), "{body}: {error}");
    }
    assert_eq!(server.scale(&kind, "default", "d").unwrap()["spec"], json!({"replicas": 3}));
}

#[tokio::test]
async fn unknown_and_duplicate_fields_of_a_scale_are_warned_of() {
    let (server, kind) = server().await;
    let body = r#"{"metadata":{"name":"d","foo":1},"spec":{"replicas":4,"replicas":5}}"#;
    let input = input(body, FieldValidation::Warn);
    let written = server.replace_scale(&kind, "default", "d", input).await.unwrap();
    assert_eq!(written.scale["spec"], json!({"replicas": 5}));
    assert_eq!(
        written.warnings,
        ["duplicate field \"spec.replicas\"", "unknown field \"metadata.foo\""]
    );
}

#[tokio::test]
async fn patches_of_a_scale_are_held_to_the_same_rules() {
    let (server, kind) = server().await;
    for (patch, validation, code, why) in [
        (json!({"spec": {"replica": 7}}), FieldValidation::Strict, 422, "unknown field"),
        (json!({"spec": {"replicas": "7"}}), FieldValidation::Warn, 422, "of type int32"),
        (json!({"spec": {"replicas": -7}}), FieldValidation::Warn, 422, "Scale.autoscaling \"d\""),
        (json!({"kind": "x"}), FieldValidation::Warn, 422, "patch: Invalid value"),
        (json!({"metadata": {"name": "x"}}), FieldValidation::Warn, 400, "does not match the name"),
        (json!({"metadata": {"namespace": "x"}}), FieldValidation::Warn, 400, "namespace"),
        (
            json!({"metadata": {"uid": "x"}, "spec": {"replicas": 7}}),
            FieldValidation::Warn,
            409,
            "Operation cannot be fulfilled on deployments/scale.apps \"d\": Precondition failed: UID in \
             precondition: x",
        ),
        (
            json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 7}}),
            FieldValidation::Warn,
            409,
            "has been modified",
        ),
    ] {
        let merge = Patch::Merge(patch.clone());
        let error =
            server.patch_scale(&kind, "default", "d", &merge, validation).await.unwrap_err();
        assert_eq!(error.code, code, "{patch}: {error}");
        assert!(error.message.contains(why), "{patch}: {error}");
    }
    let strategic = Patch::Strategic(json!({"spec": {"replicas": 8}}));
    let written =
        server.patch_scale(&kind, "default", "d", &strategic, FieldValidation::Warn).await.unwrap();
    assert_eq!((&written.scale["spec"]["replicas"], written.warnings), (&json!(8), Vec::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_patches_that_test_the_same_count_only_one_is_applied() {
    let (server, kind) = server().await;
    for count in 3..60_u64 {
        let step = json!([
            {"op": "test", "path": "/spec/replicas", "value": count},
            {"op": "replace", "path": "/spec/replicas", "value": count + 1},
        ]);
        let tries: Vec<_> = (0..4)
            .map(|_| {
                let (server, kind, body) = (server.clone(), kind.clone(), step.to_string());
                tokio::spawn(async move {
                    let patch =
                        Patch::parse("application/json-patch+json", body.as_bytes()).unwrap();
                    let warn = FieldValidation::Warn;
                    server.patch_scale(&kind, "default", "d", &patch, warn).await.is_ok()
                })
            })
            .collect();
        let mut applied = 0;
        for try_ in tries {
            applied += usize::from(try_.await.unwrap());
        }
        assert_eq!(applied, 1, "{count}");
    }
}

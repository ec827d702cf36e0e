//! Tests of the protobuf decoder, also with bodies that kubectl sent.

use super::*;
use proptest::prelude::*;
use serde_json::json;

macro_rules! sent_by_kubectl {
    ($($name:literal),* $(,)?) => {
        &[$((
            $name,
            include_bytes!(concat!("testdata/", $name, ".pb")).as_slice(),
            include_str!(concat!("testdata/", $name, ".json")),
        )),*]
    };
}

/// Name, protobuf body, and the JSON of the same object as kubectl prints it.
const SENT: &[(&str, &[u8], &str)] = sent_by_kubectl![
    "clusterrole",
    "clusterrole-aggregation",
    "clusterrolebinding",
    "configmap",
    "deployment",
    "ingress",
    "namespace",
    "role",
    "rolebinding",
    "secret",
    "service-clusterip",
    "service-loadbalancer",
    "serviceaccount",
];

const ACCESS_REVIEW: &[u8] = include_bytes!("testdata/selfsubjectaccessreview.pb");
const DELETE_OPTIONS: &[u8] = include_bytes!("testdata/deleteoptions.pb");

fn int(number: u32, value: i64) -> Vec<u8> {
    [varint(u64::from(number << 3)), varint(value.cast_unsigned())].concat()
}

fn field(number: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [varint(u64::from(number << 3 | 2)), varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn body(api_version: &str, kind: &str, raw: impl AsRef<[u8]>) -> Vec<u8> {
    let type_meta = [field(1, api_version), field(2, kind)].concat();
    [MAGIC.to_vec(), field(1, type_meta), field(2, raw)].concat()
}

fn decoded(api_version: &str, kind: &str, raw: impl AsRef<[u8]>) -> Value {
    decode(&body(api_version, kind, raw)).expect("decodes")
}

/// A Pod with only this spec.
fn pod(spec: impl AsRef<[u8]>) -> Value {
    decoded("v1", "Pod", field(2, spec))["spec"].take()
}

fn refusal(body: &[u8]) -> String {
    let error = decode(body).expect_err("is refused");
    assert_eq!((error.code, error.reason), (400, "BadRequest"));
    error.message
}

/// The value without nulls and empty objects. No fixture has one that means something.
fn terse(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(name, member)| (name, terse(member)))
            .filter(|(_, member)| !member.is_null() && *member != json!({}))
            .collect(),
        Value::Array(list) => list.into_iter().map(terse).collect(),
        other => other,
    }
}

#[test]
fn what_kubectl_sends_is_what_kubectl_prints() {
    for (name, body, printed) in SENT {
        let printed = terse(serde_json::from_str(printed).expect("JSON"));
        assert_eq!(decode(body), Ok(printed), "{name}");
    }
}

#[test]
fn every_built_in_kind_is_known() {
    for (api_version, kinds) in [
        ("v1", "ConfigMap Endpoints Event Namespace Node Pod Secret Service ServiceAccount"),
        ("apps/v1", "Deployment StatefulSet"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        ("autoscaling/v1", "Scale"),
        ("coordination.k8s.io/v1", "Lease"),
        ("discovery.k8s.io/v1", "EndpointSlice"),
        ("events.k8s.io/v1", "Event"),
        ("networking.k8s.io/v1", "Ingress IngressClass"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole ClusterRoleBinding Role RoleBinding"),
    ] {
        for kind in kinds.split(' ') {
            let raw = field(1, field(1, "n"));
            let expected =
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "n"}});
            assert_eq!(decoded(api_version, kind, raw), expected);
        }
    }
}

#[test]
fn an_access_review_of_kubectl_is_read() {
    let expected = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
        "status": {"allowed": false},
    });
    assert_eq!(decode(ACCESS_REVIEW), Ok(expected));
}

#[test]
fn delete_options_are_read_and_a_grace_period_of_zero_stays() {
    let expected = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    assert_eq!(decode(DELETE_OPTIONS), Ok(expected));
    let raw = [
        field(2, [field(1, "u"), field(2, "7")].concat()),
        int(3, 0),
        field(4, "Background"),
        field(5, "All"),
    ]
    .concat();
    assert_eq!(
        decoded("apps/v1", "DeleteOptions", raw),
        json!({
            "apiVersion": "apps/v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "orphanDependents": false,
            "propagationPolicy": "Background",
            "dryRun": ["All"],
        })
    );
}

#[test]
fn zeros_of_pointers_stay_and_zeros_that_go_omits_vanish() {
    let security = [int(2, 0), int(3, 0), int(4, 7), int(4, 0)].concat();
    let volume = [field(1, "tmp"), field(2, field(2, ""))].concat();
    let spec =
        [field(1, volume), int(4, 0), int(11, 0), int(21, 0), field(10, ""), field(14, security)];
    assert_eq!(
        pod(spec.concat()),
        json!({
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "securityContext": {"runAsUser": 0, "runAsNonRoot": false, "supplementalGroups": [7, 0]},
        })
    );
}

#[test]
fn packed_and_negative_numbers_are_read() {
    let groups = [varint(1), varint((-2i64).cast_unsigned())].concat();
    let spec = [field(14, field(4, groups)), int(25, -10)].concat();
    assert_eq!(
        pod(spec),
        json!({"securityContext": {"supplementalGroups": [1, -2]}, "priority": -10})
    );
}

#[test]
fn quantities_and_numbers_or_names_are_plain_values() {
    let resources = field(1, [field(1, "cpu"), field(2, field(1, "500m"))].concat());
    let get = |port: Vec<u8>| field(1, field(2, [field(1, "/"), field(2, port)].concat()));
    let container = [
        field(1, "c"),
        field(8, resources),
        field(10, get([int(1, 0), int(2, 80), field(3, "")].concat())),
        field(11, get([int(1, 1), int(2, 0), field(3, "http")].concat())),
    ];
    assert_eq!(
        pod(field(2, container.concat())),
        json!({"containers": [{
            "name": "c",
            "resources": {"limits": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
        }]})
    );
}

#[test]
fn times_are_rfc_3339_and_an_empty_one_is_not_set() {
    let lease = |acquire: Vec<u8>| {
        let spec = [int(2, 0), field(3, acquire), field(4, "")].concat();
        body("coordination.k8s.io/v1", "Lease", field(2, spec))
    };
    let value = decode(&lease([int(1, 1_767_323_045), int(2, 42_000)].concat())).expect("decodes");
    assert_eq!(
        value["spec"],
        json!({"leaseDurationSeconds": 0, "acquireTime": "2026-01-02T03:04:05.000042Z"})
    );
    let meta = [field(8, [int(1, 1_767_323_045), int(2, 5)].concat()), field(9, int(1, 0))];
    assert_eq!(
        decoded("v1", "Namespace", field(1, meta.concat()))["metadata"],
        json!({
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "1970-01-01T00:00:00Z",
        })
    );
    let wrong = "couldn't read protobuf: coordination/v1.LeaseSpec.acquireTime: \
                 the time is out of range";
    for seconds in [i64::MAX, i64::MIN, -100_000_000_000] {
        assert_eq!(refusal(&lease(int(1, seconds))), wrong);
    }
}

#[test]
fn managed_fields_are_the_json_they_carry() {
    let entry =
        |json: &str| field(1, field(17, [field(1, "m"), field(7, field(1, json))].concat()));
    assert_eq!(
        decoded("v1", "Namespace", entry(r#"{"f:metadata":{}}"#))["metadata"]["managedFields"],
        json!([{"manager": "m", "fieldsV1": {"f:metadata": {}}}])
    );
    let message = refusal(&body("v1", "Namespace", entry("{")));
    assert!(message.contains("ManagedFieldsEntry.fieldsV1: the embedded JSON is invalid"));
}

#[test]
fn a_map_entry_may_leave_out_its_key_or_value() {
    let data = |entry: Vec<u8>| field(2, entry);
    let raw = [data(field(1, "k")), data(field(2, "v")), data(field(1, "k2")), data(vec![])];
    assert_eq!(
        decoded("v1", "Secret", raw[..3].concat())["data"],
        json!({"k": "", "": "dg==", "k2": ""})
    );
    assert_eq!(decoded("v1", "Secret", raw.concat())["data"], json!({"k": "", "": "", "k2": ""}));
}

#[test]
fn a_message_that_stands_twice_is_merged_and_the_last_scalar_wins() {
    let raw = [
        field(1, [field(1, "a"), field(3, "ns")].concat()),
        field(1, [field(1, "b"), field(3, "")].concat()),
    ];
    assert_eq!(decoded("v1", "Namespace", raw.concat())["metadata"], json!({"name": "b"}));
}

#[test]
fn unknown_fields_are_skipped() {
    let raw = [field(1, [field(1, "a"), field(900, "new")].concat()), int(901, 1)];
    assert_eq!(
        decoded("v1", "Namespace", raw.concat()),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    );
}

#[test]
fn a_body_that_is_no_protobuf_object_is_refused_by_name() {
    let encoded = |extra: Vec<u8>| [body("v1", "Pod", ""), extra].concat();
    for (body, message) in [
        (vec![], "empty data"),
        (b"{\"kind\":\"Pod\"}".to_vec(), NO_MAGIC),
        (MAGIC.to_vec(), "empty body"),
        (body("v1", "", ""), "Object 'Kind' is missing in the protobuf envelope"),
        (body("", "Pod", ""), "Object 'apiVersion' is missing in the protobuf envelope"),
        (
            body("apps/v1", "Pod", ""),
            "no kind \"Pod\" is registered for version \"apps/v1\" as protobuf; send it as JSON",
        ),
        (
            encoded(field(3, "gzip")),
            "the content encoding \"gzip\" of the protobuf envelope is not supported",
        ),
        (
            encoded(field(4, "application/json")),
            "the content type \"application/json\" of the protobuf envelope is not supported",
        ),
        (
            [MAGIC, &[0x0a]].concat(),
            "couldn't read protobuf: runtime.Unknown: the data ends in the middle of a value",
        ),
        (
            body("v1", "Pod", [0x0a, 0x05]),
            "couldn't read protobuf: core/v1.Pod: the data ends in the middle of a value",
        ),
        (
            body("v1", "Pod", field(1, field(1, [0xff]))),
            "couldn't read protobuf: meta/v1.ObjectMeta.name: a string is not valid UTF-8",
        ),
        (
            body("v1", "Pod", int(1, 1)),
            "couldn't read protobuf: core/v1.Pod.metadata: the wire type is not that of the field",
        ),
    ] {
        assert_eq!(refusal(&body), message);
    }
}

#[test]
fn a_small_body_cannot_become_very_many_objects() {
    let containers = |count| field(2, field(2, field(1, "")).repeat(count));
    assert!(decode(&body("v1", "Pod", containers(50_000))).is_ok());
    assert_eq!(
        refusal(&body("v1", "Pod", containers(100_000))),
        "couldn't read protobuf: core/v1.Container: there are too many objects in the body"
    );
}

#[test]
fn the_media_type_is_told_with_and_without_parameters() {
    assert!(is_protobuf("application/vnd.kubernetes.protobuf"));
    assert!(is_protobuf("Application/vnd.Kubernetes.protobuf; charset=utf-8"));
    assert!(!is_protobuf("application/json"));
    assert!(!is_protobuf("application/vnd.kubernetes.protobuf+x"));
    assert!(!is_protobuf(""));
}

#[test]
fn a_body_cut_off_anywhere_is_refused_or_read_but_never_panics() {
    for (_, body, _) in SENT {
        for length in 0..body.len() {
            let _ = decode(&body[..length]);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = decode(&bytes);
        let _ = decode(&[MAGIC, &bytes].concat());
        for kind in ["Pod", "Event", "Node", "Service"] {
            let _ = decode(&body("v1", kind, &bytes));
        }
    }

    #[test]
    fn a_flipped_byte_never_panics(
        which in 0..SENT.len(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut body = SENT[which].1.to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        let _ = decode(&body);
    }
}

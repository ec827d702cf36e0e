//! Tests of the validation of CustomResourceDefinitions.

use super::super::tests::good;
use super::*;
use serde_json::json;

fn said(crd: &Value, old: Option<&Value>) -> Vec<String> {
    validate(crd, old).iter().map(ToString::to_string).collect()
}

fn broken(change: impl Fn(&mut Value)) -> Vec<String> {
    let mut crd = good();
    change(&mut crd);
    said(&crd, None)
}

const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
                     with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  \
                     or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn a_right_definition_passes() {
    assert_eq!(said(&good(), None), [""; 0]);
    assert_eq!(said(&good(), Some(&good())), [""; 0]);
}

#[test]
fn names_have_to_be_names() {
    assert_eq!(
        broken(|crd| crd["metadata"]["name"] = json!("foosx.x.dev")),
        [
            "metadata.name: Invalid value: \"foosx.x.dev\": must be spec.names.plural+\".\"+spec.group"
        ]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["names"]["kind"] = json!("Foo-")),
        [format!(
            "spec.names.kind: Invalid value: \"Foo-\": may have mixed case, but should otherwise match: \
             {LABEL}"
        )]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["names"]["shortNames"] = json!(["A"])),
        [format!("spec.names.shortNames[0]: Invalid value: \"A\": {LABEL}")]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["names"]["listKind"] = json!("Foo")),
        ["spec.names.listKind: Invalid value: \"Foo\": kind and listKind may not be the same"]
    );
    assert_eq!(
        broken(|crd| {
            crd["spec"]["group"] = json!("dev");
            crd["metadata"]["name"] = json!("foos.dev");
        }),
        ["spec.group: Invalid value: \"dev\": should be a domain with at least one dot"]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["scope"] = json!("Foo")),
        ["spec.scope: Unsupported value: \"Foo\": supported values: \"Cluster\", \"Namespaced\""]
    );
}

#[test]
fn versions_are_unique_and_one_is_stored() {
    let messages = broken(|crd| {
        let again = crd["spec"]["versions"][0].clone();
        crd["spec"]["versions"].as_array_mut().unwrap().push(again);
    });
    assert_eq!(messages.len(), 2);
    assert!(messages[0].ends_with("]: must contain unique version names"), "{messages:?}");
    assert!(messages[1].ends_with("]: must have exactly one version marked as storage version"));
    assert_eq!(
        broken(|crd| crd["spec"]["versions"] = json!([])),
        [
            "spec.versions: Invalid value: []: must have exactly one version marked as storage version",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["versions"][0]["schema"] = json!(null)),
        ["spec.versions[0].schema.openAPIV3Schema: Required value"]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["versions"][0]["deprecationWarning"] = json!("foo")),
        [
            "spec.versions[0].deprecationWarning: Invalid value: \"foo\": can only be set for deprecated \
          versions"
        ]
    );
}

#[test]
fn errors_stand_where_the_real_server_puts_them() {
    let bad = json!({"type": "object", "properties": {"spec": {}}});
    assert_eq!(
        broken(|crd| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = bad.clone()),
        [
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for \
          specified object fields"
        ]
    );
    assert_eq!(
        broken(|crd| {
            let mut second = crd["spec"]["versions"][0].clone();
            second["name"] = json!("v2");
            second["storage"] = json!(false);
            second["schema"]["openAPIV3Schema"] = bad.clone();
            crd["spec"]["versions"].as_array_mut().unwrap().push(second);
        }),
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty \
          for specified object fields"
        ]
    );
}

#[test]
fn subresources_columns_and_selectable_fields_are_checked() {
    assert_eq!(
        broken(|crd| {
            let version = &mut crd["spec"]["versions"][0];
            version["additionalPrinterColumns"] = json!([{"name": "a", "type": "strin", "jsonPath": "spec"}, {"name": "b", "type": "date",
                    "format": "odd", "jsonPath": ".spec.x[?(@.a=='b')"}]);
            version["subresources"] = json!({"status": {}, "scale": {
                "specReplicasPath": ".x.y", "statusReplicasPath": ".status.r"}});
            version["selectableFields"] = json!([{"jsonPath": ".spec.o"}, {"jsonPath": ".nope"},
                {"jsonPath": ".spec.x"}, {"jsonPath": ".spec.x"}]);
        }),
        [
            "spec.subresources.scale.specReplicasPath: Invalid value: \".x.y\": should be a json path under \
             .spec",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"strin\": must be one of \
             boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path \
             starting with .",
            "spec.additionalPrinterColumns[1].format: Invalid value: \"odd\": must be one of \
             byte,date,date-time,double,float,int32,int64,password",
            "spec.additionalPrinterColumns[1].JSONPath: Invalid value: \".spec.x[?(@.a=='b')\": must be a \
             json path whose brackets and quotes are closed",
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.o\": must point to a field of type \
             string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[1].jsonPath: Invalid value: \".nope\": is an invalid path: does not \
             refer to a valid field",
            "spec.selectableFields[3].jsonPath: Duplicate value: \".spec.x\"",
        ]
    );
}

#[test]
fn with_a_status_subresource_the_root_says_little() {
    let messages = broken(|crd| {
        let version = &mut crd["spec"]["versions"][0];
        version["subresources"] = json!({"status": {}});
        version["schema"]["openAPIV3Schema"]["anyOf"] = json!([{"required": ["spec"]}]);
    });
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0].ends_with(
            "fields are allowed at the root of the schema if the status subresource is enabled"
        ),
        "{messages:?}"
    );
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    assert_eq!(
        broken(|crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook"})),
        ["spec.conversion.strategy: Forbidden: this server does not implement conversion webhooks"]
    );
    assert_eq!(
        broken(|crd| crd["spec"]["preserveUnknownFields"] = json!(true)),
        ["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
          x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"]
    );
}

#[test]
fn groups_of_the_community_need_approval() {
    let annotated = |text: Option<&str>| {
        broken(|crd| {
            crd["spec"]["group"] = json!("a.k8s.io");
            crd["metadata"]["name"] = json!("foos.a.k8s.io");
            if let Some(text) = text {
                crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": text});
            }
        })
    };
    assert_eq!(
        annotated(None),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have \
          approval annotation \"api-approved.kubernetes.io\", see \
          https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    assert_eq!(annotated(Some("unapproved, for a test")), [""; 0]);
    assert_eq!(annotated(Some("https://github.com/x/y/pull/1")), [""; 0]);
    assert_eq!(annotated(Some("yes")).len(), 1);
}

#[test]
fn what_objects_are_stored_under_cannot_change() {
    let mut old = good();
    old["status"] = super::super::status(&old, &|_| None, jiff::Timestamp::UNIX_EPOCH);
    let mut crd = old.clone();
    crd["spec"]["scope"] = json!("Cluster");
    crd["spec"]["names"]["kind"] = json!("Foz");
    crd["spec"]["group"] = json!("y.dev");
    crd["spec"]["names"]["plural"] = json!("x");
    assert_eq!(
        said(&crd, Some(&old)),
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Foz\": field is immutable",
            "spec.group: Invalid value: \"y.dev\": field is immutable",
            "spec.names.plural: Invalid value: \"x\": field is immutable",
        ]
    );
    let mut renamed = old.clone();
    renamed["spec"]["versions"][0]["name"] = json!("v2");
    assert_eq!(
        said(&renamed, Some(&old)),
        [
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a \
          storage version, and must remain in spec.versions until a storage migration ensures no data remains \
          persisted in v1 and removes v1 from status.storedVersions"
        ]
    );
}

#[test]
fn formats_that_mean_nothing_are_warned_of_once() {
    let mut crd = good();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/x/format";
    let parent = crd.pointer_mut(spec.trim_end_matches("/format")).unwrap();
    parent["format"] = json!("odd");
    assert_eq!(warnings(&crd, None), ["unrecognized format \"odd\""]);
    assert_eq!(warnings(&crd, Some(&crd)), [""; 0]);
}

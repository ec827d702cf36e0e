//! `Plan`: a part of what one load balancer must do. The leader writes them in our own namespace, the
//! load balancer's agent reads them; they hold references to Services and hashes of certificates,
//! never members or keys. What a fragment is belongs to `bowline-core`; here is its schema.

use crate::schema;
use bowline_core::hash::PlanHash;
use bowline_core::plan::Fragment;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What a load balancer must do for some of its consumers.
#[derive(Clone, Debug, PartialEq, Serialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "Plan",
    plural = "plans",
    namespaced,
    category = "bowline",
    derive = "PartialEq",
    doc = "A Plan holds a part of what one load balancer must do: where it listens, which requests go where. Bowline writes Plans in its own namespace and agents follow them; a change by hand is undone.",
    printcolumn(
        name = "Load-Balancer",
        type_ = "string",
        json_path = ".spec.loadBalancer",
        description = "The load balancer that it is for."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Hash",
        type_ = "string",
        json_path = ".spec.hash",
        description = "The hash of its fragments.",
        priority = 1
    )
)]
pub struct PlanSpec {
    /// The load balancer that it is for.
    #[schemars(schema_with = "schema::object_name")]
    pub load_balancer: String,
    /// The hash of the fragments here. The sum over all Plans of a load balancer is what its agent
    /// reports as applied.
    #[schemars(schema_with = "hash")]
    pub hash: PlanHash,
    /// What each Service or Ingress wants on the load balancer.
    #[schemars(schema_with = "fragments")]
    pub fragments: Vec<Fragment>,
    /// How many fragments were there that could not be read, and are not in `fragments`. Never
    /// written. Where it is not 0, another version of Bowline wrote the Plan, or a person did.
    #[serde(skip)]
    pub unreadable: usize,
}

/// The spec as it is read: a fragment that this version does not understand costs nobody else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    load_balancer: String,
    hash: PlanHash,
    fragments: Vec<MaybeFragment>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MaybeFragment {
    Readable(Fragment),
    Unreadable(IgnoredAny),
}

impl<'de> Deserialize<'de> for PlanSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { load_balancer, hash, fragments: written } =
            Written::deserialize(deserializer)?;
        let all = written.len();
        let fragments: Vec<Fragment> = written
            .into_iter()
            .filter_map(|one| match one {
                MaybeFragment::Readable(fragment) => Some(fragment),
                MaybeFragment::Unreadable(_) => None,
            })
            .collect();
        let unreadable = all - fragments.len();
        Ok(Self { load_balancer, hash, fragments, unreadable })
    }
}

fn hash(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 64, "pattern": "^[0-9a-f]{64}$" })
}

/// More than fits into an object, so that no plan fails for it.
const MOST_ITEMS: u64 = 65_536;
/// Longer than any text that is read into a fragment.
const LONGEST_TEXT: u64 = 8192;

/// The schema that core derives, with bounds.
fn fragments(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = <Vec<Fragment>>::json_schema(generator);
    bound(schema.ensure_object());
    for definition in generator.definitions_mut().values_mut() {
        bound_value(definition);
    }
    schema
}

fn bound(node: &mut serde_json::Map<String, Value>) {
    // What may be left out is derived as a list of its type and null.
    let type_ = node.get("type").map(|type_| type_.get(0).unwrap_or(type_));
    match type_.and_then(Value::as_str) {
        Some("string") if !node.contains_key("enum") && !node.contains_key("const") => {
            node.entry("maxLength").or_insert(LONGEST_TEXT.into());
        }
        Some("array") => {
            node.entry("maxItems").or_insert(MOST_ITEMS.into());
        }
        _ => {}
    }
    node.values_mut().for_each(bound_value);
}

fn bound_value(value: &mut Value) {
    match value {
        Value::Object(node) => bound(node),
        Value::Array(items) => items.iter_mut().for_each(bound_value),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::plan::Host;
    use ipnet::IpNet;
    use kube::CustomResourceExt;
    use proptest::prelude::*;
    use regex::Regex;
    use serde_json::json;
    use std::net::IpAddr;
    use std::sync::LazyLock;

    fn fragment(name: &str, address: &str) -> Value {
        json!({
            "consumer": {"kind": "Service", "namespace": "shop", "name": name, "uid": "1"},
            "listeners": [{"address": address, "port": 80, "protocol": "TCP", "serves": {"pool": "p"}}],
        })
    }

    #[test]
    fn a_fragment_that_cannot_be_read_costs_nobody_else() {
        let hash = "0".repeat(64);
        let read = |fragments: Value| {
            let spec = json!({"loadBalancer": "edge", "hash": hash, "fragments": fragments});
            serde_json::from_value::<PlanSpec>(spec).unwrap()
        };
        let (one, two) = (fragment("a", "192.0.2.1"), fragment("b", "2001:db8::1"));
        let readable = read(json!([one, two]));
        assert_eq!((readable.fragments.len(), readable.unreadable), (2, 0));
        let bad_host = json!({"consumer": one["consumer"], "sites": [
            {"entry": "web", "host": "a b", "rules": []},
        ]});
        let all = json!([one, fragment("c", "nowhere"), 7, bad_host, two]);
        assert_eq!(read(all), PlanSpec { unreadable: 3, ..readable.clone() });
        let written = serde_json::to_value(PlanSpec { unreadable: 3, ..readable }).unwrap();
        assert_eq!(written["fragments"], json!([one, two]));
        assert_eq!(written.as_object().unwrap().len(), 3);
    }

    /// The pattern and greatest length of texts at a place in a fragment.
    fn texts(path: &str) -> (Regex, usize) {
        static CRD: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(Plan::crd()).unwrap());
        let fragment =
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fragments";
        let schema = CRD.pointer(&format!("{fragment}/items/properties/{path}")).unwrap();
        let pattern = schema["pattern"].as_str().unwrap();
        (Regex::new(pattern).unwrap(), schema["maxLength"].as_u64().unwrap() as usize)
    }

    const ADDRESS: &str = "listeners/items/properties/address";
    const HOST: &str = "sites/items/properties/host";
    const RANGES: &str = "pools/items/properties/sourceRanges/items";

    #[test]
    fn servers_refuse_what_is_no_address_host_or_range() {
        for (path, bad) in [
            (
                ADDRESS,
                vec!["", "edge", "1.2.3", "1.2.3.4.5", "10.0.0.0/8", "1.2.3.4\n", "fe80::1%eth0"],
            ),
            (HOST, vec!["", "a b", "a\n", "*.*", "a;b", "A.example", "*."]),
            (RANGES, vec!["", "10.0.0.1", "10.0.0.0/", "10.0.0.0/8 ", "/8", "a/8"]),
        ] {
            let (pattern, _) = texts(path);
            for text in bad {
                assert!(!pattern.is_match(text), "{path}: {text:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn servers_take_every_address_host_and_range_that_can_be_planned(
            addresses in prop::collection::vec(any::<IpAddr>(), 8),
            length in 0..=32u8,
            hosts in prop::collection::vec("(\\*\\.)?[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?(\\.[a-z]{1,9}){0,3}|~.{1,20}", 8),
        ) {
            let ((address, most), (range, most_of_range)) = (texts(ADDRESS), texts(RANGES));
            for ip in addresses {
                let text = ip.to_string();
                prop_assert!(address.is_match(&text) && text.len() <= most, "{}", text);
                let text = IpNet::new(ip, length).unwrap().to_string();
                prop_assert!(range.is_match(&text) && text.len() <= most_of_range, "{}", text);
            }
            let (host, most) = texts(HOST);
            let hosts = hosts.iter().filter_map(|text| text.parse::<Host>().ok());
            for text in hosts.chain([Host::Any]).map(|host| host.to_string()) {
                prop_assert!(host.is_match(&text) && text.len() <= most, "{:?}", text);
            }
        }
    }
}

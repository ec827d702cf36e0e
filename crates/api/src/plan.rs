//! `Plan`: a part of what one load balancer must do. The leader writes Plans in Bowline's own namespace, the load
//! balancer's agents read them. They hold references to Services and hashes of certificates, never members or private
//! keys. `bowline-core` defines fragments; this file has their schema.

use crate::schema;
use bowline_core::hash::PlanHash;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::{ENTRY_WEB, Fragment, Host, Listener, ListenerProtocol, Serves, Site};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{SerializeSeq as _, SerializeStruct as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::net::IpAddr;

/// What a load balancer must do for some of its consumers.
#[derive(Clone, Debug, PartialEq, CustomResource, JsonSchema)]
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
    #[schemars(schema_with = "schema::recorded_name")]
    pub load_balancer: String,
    /// The hash of the fragments here. The sum over all Plans of a load balancer is what its agent
    /// reports as applied.
    #[schemars(schema_with = "hash")]
    pub hash: PlanHash,
    /// What each Service or Ingress wants on the load balancer.
    #[schemars(schema_with = "fragments")]
    pub fragments: Vec<Fragment>,
    /// Fragments that this version cannot read, and that are not in `fragments`. They are written after those, as
    /// they were. Another version of Bowline wrote them, or a person did.
    #[schemars(skip)]
    pub unread: Vec<Unread>,
}

/// A fragment that this version cannot read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unread {
    /// The consumer and the part. None: not even these can be read.
    pub item: Option<(ConsumerRef, u32)>,
    /// The JSON as it was written.
    pub raw: Value,
}

impl Unread {
    fn new(raw: Value) -> Self {
        let part = raw.get("part").map_or(Some(0), |part| u32::try_from(part.as_u64()?).ok());
        let consumer = raw.get("consumer").and_then(|it| ConsumerRef::deserialize(it).ok());
        Self { item: consumer.zip(part), raw }
    }

    /// The listeners and hosts of the fragment that can be read: its consumer holds them, although the rest is written
    /// in a way that this version does not know. None: its consumer cannot be read.
    pub fn holds(&self) -> Option<Fragment> {
        let (consumer, part) = self.item.clone()?;
        let all = |key: &str| self.raw.get(key).and_then(Value::as_array).into_iter().flatten();
        let listener = |it: &Value| {
            Some(Listener {
                address: IpAddr::deserialize(it.get("address")?).ok()?,
                port: u16::deserialize(it.get("port")?).ok()?,
                protocol: ListenerProtocol::deserialize(it.get("protocol")?).ok()?,
                serves: Serves::Entry(ENTRY_WEB.into()),
            })
        };
        let site = |it: &Value| {
            let host = Host::deserialize(it.get("host")?).ok()?;
            Some(Site { entry: ENTRY_WEB.into(), host, tls: None, rules: Vec::new() })
        };
        let (listeners, sites) =
            (all("listeners").filter_map(listener), all("sites").filter_map(site));
        let (listeners, sites) = (listeners.collect(), sites.collect());
        let (claimed, pools) = (false, Vec::new());
        Some(Fragment { consumer, part, claimed, listeners, sites, pools })
    }
}

impl PlanSpec {
    /// What consumers hold here: all fragments, and the readable parts of fragments that cannot be read.
    pub fn held(&self) -> Vec<Cow<'_, Fragment>> {
        let unread = self.unread.iter().filter_map(Unread::holds).map(Cow::Owned);
        self.fragments.iter().map(Cow::Borrowed).chain(unread).collect()
    }
}

impl Serialize for PlanSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Fragments<'a>(&'a PlanSpec);
        impl Serialize for Fragments<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let PlanSpec { fragments, unread, .. } = self.0;
                let mut all = serializer.serialize_seq(Some(fragments.len() + unread.len()))?;
                fragments.iter().try_for_each(|it| all.serialize_element(it))?;
                unread.iter().try_for_each(|it| all.serialize_element(&it.raw))?;
                all.end()
            }
        }
        let mut spec = serializer.serialize_struct("PlanSpec", 3)?;
        spec.serialize_field("loadBalancer", &self.load_balancer)?;
        spec.serialize_field("hash", &self.hash)?;
        spec.serialize_field("fragments", &Fragments(self))?;
        spec.end()
    }
}

/// The spec as it is read. A fragment that this version cannot read does not affect other fragments.
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
    Unreadable(Value),
}

impl<'de> Deserialize<'de> for PlanSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { load_balancer, hash, fragments: written } =
            Written::deserialize(deserializer)?;
        let (mut fragments, mut unread) = (Vec::with_capacity(written.len()), Vec::new());
        for one in written {
            match one {
                MaybeFragment::Readable(fragment) => fragments.push(fragment),
                MaybeFragment::Unreadable(raw) => unread.push(Unread::new(raw)),
            }
        }
        Ok(Self { load_balancer, hash, fragments, unread })
    }
}

fn hash(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 64, "pattern": "^[0-9a-f]{64}$" })
}

/// More items than fit into an object, so no plan fails for it.
const MOST_ITEMS: u64 = 65_536;
/// Longer than any text that is read into a fragment.
const LONGEST_TEXT: u64 = 8192;

/// What API servers check in texts that are types in core: the place in the schema of fragments, the pattern, and the
/// greatest length. It uses patterns, because rules (CEL) over lists in lists cost more than a server allows. Leaders
/// and agents parse the texts anyway.
const TEXTS: [(&str, &str, u64); 3] = [
    (
        "/items/properties/listeners/items/properties/address",
        r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f.]*)$",
        45,
    ),
    (
        "/items/properties/pools/items/properties/sourceRanges/items",
        r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9a-f]*:[0-9a-f:]*:[0-9a-f.]*)/[0-9]{1,3}$",
        49,
    ),
    (
        "/items/properties/sites/items/properties/host",
        r"^(\*$|~|(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$)",
        1025,
    ),
];

/// The schema that core derives, with added patterns and bounds.
fn fragments(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = <Vec<Fragment>>::json_schema(generator);
    for (place, pattern, longest) in TEXTS {
        // The tests find a place that core has renamed.
        if let Some(Value::Object(text)) = schema.pointer_mut(place) {
            text.insert("pattern".to_owned(), pattern.into());
            text.insert("maxLength".to_owned(), longest.into());
        }
    }
    bound(schema.ensure_object());
    for definition in generator.definitions_mut().values_mut() {
        bound_value(definition);
    }
    schema
}

fn bound(node: &mut serde_json::Map<String, Value>) {
    // An optional field is derived as a list of its type and null.
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
    use ipnet::IpNet;
    use kube::CustomResourceExt;
    use proptest::prelude::*;
    use regex::Regex;
    use serde_json::json;
    use std::sync::LazyLock;

    fn fragment(name: &str, address: &str) -> Value {
        json!({
            "consumer": {"kind": "Service", "namespace": "shop", "name": name, "uid": "1"},
            "listeners": [{"address": address, "port": 80, "protocol": "TCP", "serves": {"pool": "p"}}],
        })
    }

    #[test]
    fn of_a_fragment_from_another_version_listeners_and_hosts_are_held() {
        let mut newer = fragment("a", "192.0.2.1");
        newer["listeners"][0]["serves"] = json!({"somethingNew": {}});
        newer["sites"] = json!([{"entry": "web", "host": "shop.example", "rules": [{"new": 1}]}]);
        let spec = json!({"loadBalancer": "edge", "hash": "0".repeat(64), "fragments": [newer, 7]});
        let spec: PlanSpec = serde_json::from_value(spec).unwrap();
        assert_eq!((spec.fragments.len(), spec.unread.len()), (0, 2));
        let held = spec.held();
        let [held] = held.as_slice() else { panic!("{held:?}") };
        assert_eq!(held.listeners[0].address.to_string(), "192.0.2.1");
        assert_eq!(
            (held.listeners[0].port, held.sites[0].host.to_string().as_str()),
            (80, "shop.example")
        );
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
        assert_eq!((readable.fragments.len(), readable.unread.len()), (2, 0));
        let bad_host = json!({"consumer": one["consumer"], "sites": [
            {"entry": "web", "host": "a b", "rules": []},
        ]});
        let nowhere = fragment("c", "nowhere");
        let all = json!([one, nowhere, 7, bad_host, two]);
        let found = read(all);
        let item = |fragment: &Value| {
            Some((serde_json::from_value(fragment["consumer"].clone()).unwrap(), 0))
        };
        let unread = vec![
            Unread { item: item(&nowhere), raw: nowhere.clone() },
            Unread { item: None, raw: json!(7) },
            Unread { item: item(&bad_host), raw: bad_host.clone() },
        ];
        assert_eq!(found, PlanSpec { unread, ..readable });
        // An unread fragment is written as it was.
        let written = serde_json::to_value(&found).unwrap();
        assert_eq!(written["fragments"], json!([one, two, nowhere, 7, bad_host]));
        assert_eq!(written.as_object().unwrap().len(), 3);
    }

    #[test]
    fn a_field_of_a_newer_version_is_passed_over_and_a_newer_value_is_not_guessed() {
        let hash = "0".repeat(64);
        let read = |fragment: &Value| {
            let spec = json!({"loadBalancer": "edge", "hash": hash, "fragments": [fragment]});
            serde_json::from_value::<PlanSpec>(spec).unwrap()
        };
        let mut newer = fragment("a", "192.0.2.1");
        newer["listeners"][0]["mood"] = json!("calm");
        newer["part"] = json!(2);
        assert_eq!(read(&newer).fragments.len(), 1);
        newer["listeners"][0]["protocol"] = json!("QUIC");
        let spec = read(&newer);
        let (consumer, part) = spec.unread[0].item.clone().unwrap();
        assert_eq!((spec.fragments.len(), &*consumer.name, part), (0, "a", 2));
    }

    /// The pattern and greatest length of the texts at a place in a fragment.
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

//! `AddressPool`: addresses that may be granted, and to which objects. Administrators make AddressPools; the leader
//! writes counts into the status. The holder of each address is not here but in [`crate::address`].

use crate::condition::{Condition, conditions};
use crate::duration::Duration;
use crate::load_balancer::Scope;
use crate::schema;
use crate::selector::{LabelSelector, label_selectors};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Counts of addresses never exceed this, the largest whole number that every JSON reader keeps
/// exactly; a pool with more shows this many.
pub const COUNT_MAX: i64 = (1 << 53) - 1;

/// The addresses of a pool, and which objects may have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    shortname = "apool",
    category = "bowline",
    status = "AddressPoolStatus",
    derive = "PartialEq",
    doc = "An AddressPool is a set of addresses that Bowline may grant to Services, load balancers and Pods, \
        and the rules for granting them.",
    printcolumn(
        name = "Addresses",
        type_ = "string",
        json_path = ".spec.addresses",
        description = "Networks and ranges."
    ),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Used\")].reason",
        description = "Used: addresses are granted from it. Otherwise why not, in one word."
    ),
    printcolumn(
        name = "Auto-Assign",
        type_ = "boolean",
        json_path = ".spec.autoAssign",
        description = "Whether a request that names no pool may get an address of this one."
    ),
    printcolumn(
        name = "Assigned-v4",
        type_ = "integer",
        json_path = ".status.ipv4.assigned",
        description = "IPv4 addresses in use."
    ),
    printcolumn(
        name = "Available-v4",
        type_ = "integer",
        json_path = ".status.ipv4.available",
        description = "IPv4 addresses that can be granted."
    ),
    printcolumn(
        name = "Assigned-v6",
        type_ = "integer",
        json_path = ".status.ipv6.assigned",
        description = "IPv6 addresses in use."
    ),
    printcolumn(
        name = "Available-v6",
        type_ = "integer",
        json_path = ".status.ipv6.available",
        description = "IPv6 addresses that can be granted."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Scope",
        type_ = "string",
        json_path = ".spec.scope",
        description = "Who can reach the addresses.",
        priority = 1
    ),
    printcolumn(
        name = "Readable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Readable\")].status",
        description = "Whether all entries can be read.",
        priority = 1
    ),
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.allocateTo.priority",
        description = "Lower is tried first.",
        priority = 1
    ),
    printcolumn(
        name = "Quota",
        type_ = "integer",
        json_path = ".spec.perNamespaceQuota",
        description = "Addresses that one namespace may hold.",
        priority = 1
    ),
    printcolumn(
        name = "Reuse-After",
        type_ = "string",
        json_path = ".spec.reuseAfter",
        description = "How long an address rests.",
        priority = 1
    )
)]
pub struct AddressPoolSpec {
    /// The addresses: networks (203.0.113.0/24, 2001:db8::/64) and ranges (203.0.113.10-203.0.113.20), IPv4
    /// and IPv6. A network is written without host bits.
    #[schemars(schema_with = "address_ranges")]
    pub addresses: Vec<String>,
    /// Who can reach these addresses: Internet or Intranet. Left out: the pool serves both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Scope")]
    pub scope: Option<Scope>,
    /// Whether a request that names no pool may get an address of this one. Default: true.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Whether IPv4 addresses that end in .0 or .255 are left out, for the sake of old equipment. Default: false.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Which namespaces and Services may have addresses of this pool, and when the pool is tried. Left out:
    /// all of them, after the pools that have a priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocate_to: Option<AllocateTo>,
    /// How many addresses of this pool one namespace may hold. Left out: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 0))]
    pub per_namespace_quota: Option<i32>,
    /// Whether Services of different namespaces may share an address under the same key. Default: false.
    #[serde(default)]
    pub sharing_across_namespaces: bool,
    /// DNS domains whose names, and the names below them, may be used with bowline.dev/assign-from-fqdn to
    /// get an address of this pool. Left out: any name. Example: [example.com].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "domains")]
    pub allowed_domains: Vec<String>,
    /// How long an address rests after its last holder released it, before another object gets it. Left out:
    /// it does not rest. Example: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::duration::written_duration")]
    pub reuse_after: Option<Duration>,
}

fn yes() -> bool {
    true
}

fn domains(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": schema::domain(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// CEL cannot check whether a range runs forwards or whether ranges overlap: conditions report that.
fn address_ranges(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 128,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": 91,
            "x-kubernetes-validations": [
                {
                    "rule": "!isIP(self)",
                    "message": "a single address is written as a network: 203.0.113.7/32, or 2001:db8::7/128",
                    "messageExpression": "'a single address is written as a network: write ' + self + (ip(self).family() == 4 ? '/32' : '/128')",
                },
                {
                    "rule": "isIP(self) || (self.contains('/') ? isCIDR(self) : (self.split('-').size() == 2 && self.split('-').all(a, isIP(a)) && ip(self.split('-')[0]).family() == ip(self.split('-')[1]).family()))",
                    "message": "must be a network such as 203.0.113.0/24 or a range of one family such as 203.0.113.10-203.0.113.20",
                },
                {
                    "rule": "!isCIDR(self) || cidr(self).ip() == cidr(self).masked().ip()",
                    "message": "a network must not have host bits: write 203.0.113.0/24 rather than 203.0.113.5/24",
                },
            ],
        },
    })
}

/// Which namespaces and Services may have addresses of a pool. A field that is left out does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocateTo {
    /// Of the pools that fit, the one with the lowest number above 0 is tried first. 0 (the default): after all others.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub priority: i32,
    /// Namespaces by name. With namespaceSelectors, too: one entry of either list must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "namespaces")]
    pub namespaces: Vec<String>,
    /// Namespaces by their labels; one selector must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "label_selectors")]
    pub namespace_selectors: Vec<LabelSelector>,
    /// Services by their labels; one selector must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "label_selectors")]
    pub service_selectors: Vec<LabelSelector>,
}

fn namespaces(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "items": schema::label_name(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// What Bowline reports about a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AddressPoolStatus {
    /// The IPv4 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<FamilyCounts>,
    /// The IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyCounts>,
    /// What is wrong with the pool, if anything is: a range that runs backwards, an overlap with another pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// How many addresses of one family there are. No count is larger than 9007199254740991; a pool with more
/// shows this many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyCounts {
    /// Addresses that have a holder.
    #[schemars(range(min = 0))]
    pub assigned: i64,
    /// Addresses without a holder that rest until they may be granted again.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub resting: i64,
    /// Addresses that can be granted now; at most 9007199254740991 is shown.
    #[schemars(range(min = 0))]
    pub available: i64,
}

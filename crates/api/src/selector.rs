//! Label selectors inside Bowline's kinds, and the namespaces that may use an object:
//! `allowedNamespaces`. Only the shape is here; `bowline-core` matches labels.

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Namespaces that may use a load balancer or a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.selector) == (self.from == 'Selector')")
    .message("selector is needed with from: Selector, and only then"))]
pub struct AllowedNamespaces {
    /// None: no namespace. All: every namespace. Selector: those whose labels match selector.
    pub from: NamespacesFrom,
    /// Which namespaces, by their labels. Only with from: Selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub selector: Option<LabelSelector>,
}

impl AllowedNamespaces {
    /// Every namespace.
    pub fn all() -> Self {
        Self { from: NamespacesFrom::All, selector: None }
    }
}

/// How the namespaces of [`AllowedNamespaces`] are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamespacesFrom {
    /// No namespace.
    #[default]
    None,
    /// Every namespace.
    All,
    /// Those that a label selector matches.
    Selector,
}

/// `metav1.LabelSelector`, bounded, with the rules that Kubernetes itself has for its own kinds.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    // Servers estimate what this costs for all values of all selectors of a list, so the expression is short.
    let value = || {
        json_schema!({
            "type": "string",
            "maxLength": 63,
            "x-kubernetes-validations": [{
                "rule": "!self.matches('[^-A-Za-z0-9_.]|^[-_.]|[-_.]$')",
                "message": "must be the value of a label such as gold: letters, digits, '-', '_' and '.', with a letter or digit at \
                            both ends; or empty",
            }],
        })
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that an object must have with exactly these values.",
                "type": "object",
                "maxProperties": 32,
                "additionalProperties": value(),
            },
            "matchExpressions": {
                "description": "Further conditions on labels; all must hold.",
                "type": "array",
                "maxItems": 32,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The label's key.",
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 317,
                        },
                        "operator": {
                            "description": "In, NotIn (with values), Exists or DoesNotExist (without).",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "The values for In and NotIn.",
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": value(),
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                        "message": "values are needed with In and NotIn, and only with them",
                    }],
                },
            },
        },
    })
}

/// A list of selectors, of which one must match.
pub(crate) fn label_selectors(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": label_selector(generator),
        "x-kubernetes-list-type": "atomic",
    })
}

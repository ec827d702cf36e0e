//! Authorization and the reviews that show it. There are two identities: one may do everything, the
//! other may read everything but Secrets. Roles and bindings are stored for other programs, not
//! enforced.

use crate::error::{ApiError, FieldError};
use crate::kind::Kind;
use crate::registry::Kinds;
use serde_json::{Value, json};

/// The identity of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The administrator's token.
    Admin,
    /// The read-only token.
    ReadOnly,
}

/// The kinds of review that the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// `authorization.k8s.io` SelfSubjectAccessReview: may I?
    Access,
    /// `authorization.k8s.io` SelfSubjectRulesReview: what may I?
    Rules,
    /// `authentication.k8s.io` SelfSubjectReview: who am I?
    Subject,
}

impl Identity {
    /// The user name in messages and reviews.
    pub fn user(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ReadOnly => "read-only",
        }
    }

    fn groups(self) -> Value {
        match self {
            Self::Admin => json!(["system:masters", "system:authenticated"]),
            Self::ReadOnly => json!(["system:authenticated"]),
        }
    }

    /// Whether this identity may use `verb` on a resource.
    pub fn allowed(self, verb: &str, group: &str, resource: &str) -> bool {
        match self {
            Self::Admin => true,
            Self::ReadOnly => {
                let secrets =
                    matches!(group, "" | "*") && matches!(resource, "secrets" | "*" | "secrets/*");
                matches!(verb, "get" | "list" | "watch") && !secrets
            }
        }
    }

    /// 403 in the words of RBAC, if the verb is not allowed.
    pub fn check(
        self,
        verb: &str,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
    ) -> Result<(), ApiError> {
        if self.allowed(verb, &kind.group, &kind.plural) {
            return Ok(());
        }
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let asked = match subresource {
            "" => kind.plural.clone(),
            part => format!("{}/{part}", kind.plural),
        };
        let resource = crate::error::qualified(&kind.group, &kind.plural);
        let object = if name.is_empty() { resource } else { format!("{resource} \"{name}\"") };
        let mut error = ApiError::new(
            403,
            "Forbidden",
            format!(
                "{object} is forbidden: User \"{}\" cannot {verb} resource \"{asked}\" in API group \
                 \"{}\" {place}",
                self.user(),
                kind.group
            ),
        );
        error = error.about(&kind.group, &kind.plural, name);
        Err(error)
    }
}

impl Review {
    /// The review at a path.
    pub fn find(group: &str, version: &str, resource: &str) -> Option<Self> {
        match (group, version, resource) {
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::Access),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::Rules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::Subject),
            _ => None,
        }
    }

    /// Fills in the status of a review.
    pub fn answer(
        self,
        identity: Identity,
        mut review: Value,
        kinds: &Kinds,
    ) -> Result<Value, ApiError> {
        let kind = match self {
            Self::Access => "SelfSubjectAccessReview",
            Self::Rules => "SelfSubjectRulesReview",
            Self::Subject => "SelfSubjectReview",
        };
        if !review.is_object() || review.get("kind").is_some_and(|given| given != kind) {
            return Err(ApiError::bad_request(format!("the body is not a {kind}")));
        }
        let status = match self {
            Self::Access => access(identity, &review["spec"])?,
            Self::Rules => rules(identity, kinds),
            Self::Subject => {
                json!({"userInfo": {"username": identity.user(), "groups": identity.groups()}})
            }
        };
        review["kind"] = json!(kind);
        if review.get("metadata").is_none() {
            review["metadata"] = json!({});
        }
        review["status"] = status;
        Ok(review)
    }
}

fn access(identity: Identity, spec: &Value) -> Result<Value, ApiError> {
    let resource = &spec["resourceAttributes"];
    let other = &spec["nonResourceAttributes"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let allowed = if resource.is_object() {
        identity.allowed(
            &text(&resource["verb"]),
            &text(&resource["group"]),
            &text(&resource["resource"]),
        )
    } else if other.is_object() {
        identity == Identity::Admin || text(&other["verb"]) == "get"
    } else {
        let error = FieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
        return Err(ApiError::invalid("authorization.k8s.io", "", "", &[error]));
    };
    Ok(json!({"allowed": allowed}))
}

fn rules(identity: Identity, kinds: &Kinds) -> Value {
    let resources = match identity {
        Identity::Admin => json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
        Identity::ReadOnly => kinds
            .groups()
            .into_keys()
            .map(|group| {
                let readable: Vec<&str> = kinds
                    .iter()
                    .filter(|kind| kind.group == group)
                    .map(|kind| kind.plural.as_str())
                    .filter(|plural| identity.allowed("get", group, plural))
                    .collect();
                let verbs = ["get", "list", "watch"];
                json!({"verbs": verbs, "apiGroups": [group], "resources": readable})
            })
            .collect(),
    };
    json!({
        "resourceRules": resources,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

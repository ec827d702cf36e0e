//! The rules of Roles and their bindings: defaults and validation. They are stored, not enforced.
//! The write path calls the rules; they do no I/O.

use super::fields::{Findings, child, default_text, has, items, list, text, texts};
use super::metadata::check_selector;
use crate::error::{FieldError, FieldErrorKind};
use crate::kind::Rules;
use crate::names::{self, NameRule};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules of Roles and ClusterRoles.
pub struct RoleRules {
    /// Whether the objects are Roles.
    pub namespaced: bool,
}

impl Rules for RoleRules {
    fn name_rule(&self) -> NameRule {
        names::name_is_path_segment
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn validate(&self, object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        for (i, rule) in list(object, "rules").iter().enumerate() {
            self.rule(rule, &format!("rules[{i}]"), &mut found);
        }
        if has(object, "aggregationRule") {
            let field = "aggregationRule.clusterRoleSelectors";
            let selectors = list(&object["aggregationRule"], "clusterRoleSelectors");
            if selectors.is_empty() {
                found.required(
                    field,
                    "at least one clusterRoleSelector required if aggregationRule is non-nil",
                );
            }
            for (i, selector) in selectors.iter().enumerate() {
                check_selector(selector, &format!("{field}[{i}]"), &mut found);
            }
        }
        found.done()
    }
}

impl RoleRules {
    fn rule(&self, rule: &Value, at: &str, found: &mut Findings) {
        let empty = |field: &str| texts(rule, field).is_empty();
        if empty("verbs") {
            found.required(format!("{at}.verbs"), "verbs must contain at least one value");
        }
        if !empty("nonResourceURLs") {
            let field = format!("{at}.nonResourceURLs");
            let urls = &rule["nonResourceURLs"];
            if self.namespaced {
                let words = "namespaced rules cannot apply to non-resource URLs";
                found.invalid(field.as_str(), urls.clone(), words);
            }
            if !(empty("apiGroups") && empty("resources") && empty("resourceNames")) {
                let words = "rules cannot apply to both regular resources and non-resource URLs";
                found.invalid(field, urls.clone(), words);
            }
            return;
        }
        if empty("apiGroups") {
            let words = "resource rules must supply at least one api group";
            found.required(format!("{at}.apiGroups"), words);
        }
        if empty("resources") {
            let words = "resource rules must supply at least one resource";
            found.required(format!("{at}.resources"), words);
        }
    }
}

/// The rules of RoleBindings and ClusterRoleBindings.
pub struct BindingRules {
    /// Whether the objects are RoleBindings.
    pub namespaced: bool,
}

impl Rules for BindingRules {
    fn name_rule(&self) -> NameRule {
        names::name_is_path_segment
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        if let Some(role) = child(object, "roleRef") {
            default_text(role, "apiGroup", GROUP);
        }
        for subject in items(object, "subjects") {
            if let "User" | "Group" = text(subject, "kind") {
                default_text(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let role = &object["roleRef"];
        group(role, "roleRef.apiGroup", &mut found);
        let kinds: &[&str] =
            if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        if !kinds.contains(&text(role, "kind")) {
            let kind = json!(text(role, "kind"));
            found.push(FieldError::not_supported("roleRef.kind", &kind, kinds));
        }
        let name = text(role, "name");
        if name.is_empty() {
            found.required("roleRef.name", "");
        } else {
            found.each("roleRef.name", name, names::is_path_segment(name));
        }
        for (i, subject) in list(object, "subjects").iter().enumerate() {
            self.subject(subject, &format!("subjects[{i}]"), &mut found);
        }
        if let Some(old) = old
            && old["roleRef"] != *role
        {
            // kube-apiserver shows its internal form of a reference here.
            let member = |field| json!(text(role, field));
            found.push(FieldError {
                kind: FieldErrorKind::Invalid,
                field: "roleRef".to_owned(),
                value: Some(format!(
                    "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
                    member("apiGroup"),
                    member("kind"),
                    member("name")
                )),
                detail: "cannot change roleRef".to_owned(),
            });
        }
        found.done()
    }
}

impl BindingRules {
    fn subject(&self, subject: &Value, at: &str, found: &mut Findings) {
        let name = text(subject, "name");
        if name.is_empty() {
            found.required(format!("{at}.name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    found.each(&format!("{at}.name"), name, names::is_dns1123_subdomain(name));
                }
                let given = text(subject, "apiGroup");
                if !given.is_empty() {
                    let field = format!("{at}.apiGroup");
                    found.push(FieldError::not_supported(field, &json!(given), &[""]));
                }
                if !self.namespaced && text(subject, "namespace").is_empty() {
                    found.required(format!("{at}.namespace"), "");
                }
            }
            "User" | "Group" => group(subject, &format!("{at}.apiGroup"), found),
            other => found.push(FieldError::not_supported(
                format!("{at}.kind"),
                &json!(other),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}

fn group(value: &Value, field: &str, found: &mut Findings) {
    let given = text(value, "apiGroup");
    if given != GROUP {
        found.push(FieldError::not_supported(field, &json!(given), &[GROUP]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_say_what_may_be_done_to_what() {
        let role = |rule: Value| {
            said(RoleRules { namespaced: true }.validate(&json!({"rules": [rule]}), None))
        };
        assert_eq!(
            role(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]})),
            Vec::<String>::new()
        );
        assert_eq!(
            role(json!({})),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        assert_eq!(
            role(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
            [
                "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"
            ]
        );
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let rules = BindingRules { namespaced: false };
        let mut binding = json!({"roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [{"kind": "User", "name": "u"}]});
        rules.default(&mut binding);
        assert_eq!(binding["subjects"][0]["apiGroup"], GROUP);
        assert_eq!(said(rules.validate(&binding, None)), Vec::<String>::new());
        let mut other = binding.clone();
        other["roleRef"]["name"] = json!("y");
        assert_eq!(
            said(rules.validate(&other, Some(&binding))),
            [
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"y\"}: \
              cannot change roleRef"
            ]
        );
        other["roleRef"]["kind"] = json!("Role");
        assert_eq!(
            said(rules.validate(&other, None)),
            ["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""]
        );
        let subject = |subject: Value| {
            let mut binding =
                json!({"roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [subject]});
            rules.default(&mut binding);
            said(rules.validate(&binding, None))
        };
        assert_eq!(
            subject(json!({"kind": "ServiceAccount", "name": "a"})),
            ["subjects[0].namespace: Required value"]
        );
        assert_eq!(subject(json!({"kind": "Robot", "name": "a"})).len(), 1);
    }
}

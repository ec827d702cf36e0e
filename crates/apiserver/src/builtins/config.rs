//! The rules of ConfigMaps, Secrets and ServiceAccounts: defaults and validation. The write path
//! calls them; they do no I/O.

use super::fields::{Findings, child, default_text, entries, has, omit_empty, remove, set, text};
use super::tls;
use crate::error::FieldError;
use crate::kind::Rules;
use crate::names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

/// The most bytes of an object's data.
const DATA_MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

/// The rules of ConfigMaps.
pub struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        omit_empty(object, &["data", "binaryData"]);
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        frozen(object, old, &["data", "binaryData"], &mut found);
        let mut size = 0;
        for (key, value) in entries(object, "data") {
            let field = format!("data[{key}]");
            found.each(&field, key.as_str(), names::is_config_key(key));
            if has(&object["binaryData"], key) {
                found.invalid(field, key.as_str(), "duplicate of key present in binaryData");
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in entries(object, "binaryData") {
            let field = format!("binaryData[{key}]");
            found.each(&field, key.as_str(), names::is_config_key(key));
            size += decoded(&field, value, &mut found).len();
        }
        if size > DATA_MAX {
            found.push(FieldError::too_long("[]", DATA_MAX));
        }
        found.done()
    }
}

/// The rules of Secrets.
pub struct SecretRules;

impl Rules for SecretRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        default_text(object, "type", "Opaque");
        let plain = match object.get_mut("stringData").map(Value::take) {
            Some(Value::Object(plain)) => plain,
            // A value of the wrong type is put back, so that schema validation refuses it.
            Some(other) if !other.is_null() => return set(object, "stringData", other),
            _ => serde_json::Map::new(),
        };
        remove(object, "stringData");
        if !plain.is_empty()
            && let Some(data) = child(object, "data")
        {
            for (key, value) in plain {
                let text = value.as_str().unwrap_or_default();
                set(data, &key, json!(BASE64.encode(text)));
            }
        }
        omit_empty(object, &["data"]);
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        if let Some(old) = old {
            found.immutable("type", &object["type"], &old["type"]);
        }
        frozen(object, old, &["data"], &mut found);
        let mut size = 0;
        for (key, value) in entries(object, "data") {
            let field = format!("data[{key}]");
            found.each(&field, key.as_str(), names::is_config_key(key));
            size += decoded(&field, value, &mut found).len();
        }
        if size > DATA_MAX {
            found.push(FieldError::too_long("data", DATA_MAX));
        }
        secret_type(object, &mut found);
        found.done()
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        if text(object, "type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let half = |key| BASE64.decode(text(&object["data"], key)).unwrap_or_default();
        tls::check_pair(&half("tls.crt"), &half("tls.key")).into_iter().collect()
    }
}

fn secret_type(object: &Value, found: &mut Findings) {
    let data = &object["data"];
    let mut needs = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(data, key)) {
            found.required(format!("data[{key}]"), "");
        }
    };
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"], name).is_empty() {
                found.required(format!("metadata.annotations[{name}]"), "");
            }
        }
        "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            found.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/basic-auth" if !has(data, "username") && !has(data, "password") => {
            needs(&["username", "password"]);
        }
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg", found),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson", found),
        _ => {}
    }
}

fn docker_config(data: &Value, key: &str, found: &mut Findings) {
    let field = format!("data[{key}]");
    if !has(data, key) {
        found.required(field, "");
        return;
    }
    let bytes = BASE64.decode(text(data, key)).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        found.invalid(field, "<secret contents redacted>", error.to_string());
    }
}

/// The bytes of a base64 value.
fn decoded(field: &str, value: &Value, found: &mut Findings) -> Vec<u8> {
    let text = value.as_str().unwrap_or_default();
    BASE64.decode(text).unwrap_or_else(|error| {
        found.invalid(field, "<contents redacted>", format!("illegal base64 data: {error}"));
        Vec::new()
    })
}

fn frozen(object: &Value, old: Option<&Value>, fields: &[&str], found: &mut Findings) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    if object["immutable"] != true {
        found.forbidden("immutable", FROZEN);
    }
    for field in fields.iter().filter(|field| object[**field] != old[**field]) {
        found.forbidden(*field, FROZEN);
    }
}

/// The rules of ServiceAccounts.
pub struct ServiceAccountRules;

impl Rules for ServiceAccountRules {
    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(object: Value, old: Option<&Value>) -> Vec<String> {
        let mut object = object;
        SecretRules.default(&mut object);
        SecretRules.validate(&object, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plain_strings_become_data() {
        let mut object = json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "ü"}});
        SecretRules.default(&mut object);
        assert_eq!(object, json!({"type": "Opaque", "data": {"a": "eQ==", "b": "w7w="}}));
        let mut object = json!({"stringData": null});
        SecretRules.default(&mut object);
        assert_eq!(object, json!({"type": "Opaque"}));
        let mut object = json!({"stringData": [1], "data": "x"});
        SecretRules.default(&mut object);
        assert_eq!(object["stringData"], json!([1]), "left for the schema to refuse");
    }

    #[test]
    fn typed_secrets_have_what_their_type_needs() {
        for (object, expected) in [
            (json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}}), vec![]),
            (
                json!({"type": "kubernetes.io/tls"}),
                vec!["data[tls.crt]: Required value", "data[tls.key]: Required value"],
            ),
            (json!({"type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}}), vec![]),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                vec!["data[username]: Required value", "data[password]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/ssh-auth"}),
                vec!["data[ssh-privatekey]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}),
                vec![],
            ),
            (json!({"type": "kubernetes.io/dockercfg"}), vec!["data[.dockercfg]: Required value"]),
            (
                json!({"type": "kubernetes.io/service-account-token"}),
                vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
            (json!({"type": "example.com/anything"}), vec![]),
        ] {
            assert_eq!(secret(object.clone(), None), expected, "{object}");
        }
        let bad = json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "secret!"}});
        let said = secret(bad, None).join("");
        assert!(
            said.starts_with(
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": "
            ),
            "{said}"
        );
        assert!(!said.contains("secret!"));
    }

    #[test]
    fn keys_and_sizes_are_checked_without_showing_the_content() {
        assert_eq!(secret(json!({"stringData": {"a b": "", "..": "", "ok": ""}}), None).len(), 2);
        let big = "x".repeat(DATA_MAX + 1);
        assert_eq!(
            secret(json!({"stringData": {"a": big}}), None),
            ["data: Too long: may not be more than 1048576 bytes"]
        );
        let said = secret(json!({"data": {"a": "not base64!"}}), None).join("");
        assert!(said.contains("illegal base64 data") && !said.contains("not base64!"), "{said}");
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"type": "Opaque", "immutable": true, "data": {"a": "eA=="}});
        assert_eq!(secret(old.clone(), Some(&old)), Vec::<String>::new());
        assert_eq!(
            secret(json!({"type": "Other", "data": {"a": "eQ=="}}), Some(&old)),
            [
                "type: Invalid value: \"Other\": field is immutable",
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ]
        );
    }

    #[test]
    fn config_maps_have_each_key_once() {
        let check = |object: Value, old: Option<&Value>| {
            ConfigMapRules
                .validate(&object, old)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            check(json!({"data": {"a": "x"}, "binaryData": {"b": "eA=="}}), None),
            Vec::<String>::new()
        );
        assert_eq!(
            check(json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}}), None),
            ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
        );
        let old = json!({"immutable": true, "data": {"a": "x"}});
        assert_eq!(
            check(json!({"immutable": true, "data": {"a": "y"}}), Some(&old)),
            ["data: Forbidden: field is immutable when `immutable` is set"]
        );
    }
}

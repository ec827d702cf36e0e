//! The kinds that a CustomResourceDefinition serves, one for each served version, with the rules of
//! their objects. It does no I/O; the server calls it when it establishes a definition.

use super::{storage_version, text, texts, versions};
use crate::error::{FieldError, FieldErrorKind};
use crate::kind::{Cell, Column, Kind, Rules, ScalePaths};
use crate::schema::{CelRules, Schema, blocking, compile_crd_at, unchecked_rules};
use crate::table::age_column;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One kind for each served version of a definition that has passed [`super::validate`].
pub fn kinds(crd: &Value) -> Result<Vec<Kind>, Vec<FieldError>> {
    let is_served = |version: &Value| version["served"] == Value::Bool(true);
    let mut schemas = BTreeMap::new();
    for (index, version) in versions(crd).iter().enumerate() {
        match compile_crd_at(&version["schema"]["openAPIV3Schema"], &schema_path(index)) {
            Ok(schema) => drop(schemas.insert(api_version(crd, text(version, "name")), schema)),
            Err(errors) if is_served(version) => return Err(errors),
            // A schema of a version that is not served may be invalid. Objects stored in that version
            // are taken as they are.
            Err(_) => {}
        }
    }
    let schemas = Arc::new(schemas);
    let served = versions(crd).iter().enumerate().filter(|(_, version)| is_served(version));
    served.map(|(index, version)| kind(crd, version, index, &schemas)).collect()
}

/// The schema of every version, by `group/version`.
type Schemas = BTreeMap<String, Schema>;

fn schema_path(index: usize) -> String {
    format!("spec.versions[{index}].schema.openAPIV3Schema")
}

fn api_version(crd: &Value, version: &str) -> String {
    format!("{}/{version}", text(&crd["spec"], "group"))
}

fn kind(
    crd: &Value,
    version: &Value,
    index: usize,
    schemas: &Arc<Schemas>,
) -> Result<Kind, Vec<FieldError>> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let group = text(spec, "group").to_owned();
    let path = schema_path(index);
    let raw = &version["schema"]["openAPIV3Schema"];
    let served = api_version(crd, text(version, "name"));
    let schema = match schemas.get(&served) {
        Some(schema) => schema.clone(),
        None => compile_crd_at(raw, &path)?,
    };
    let cel = CelRules::compile_at(raw, &schema, &path)?;
    let subresources = &version["subresources"];
    let status = !subresources["status"].is_null();
    let scale = scale(&subresources["scale"]);
    let stored = storage_version(crd);
    let rules = CustomRules {
        schema: schema.clone(),
        cel,
        status,
        scale: scale.clone(),
        served,
        stored: api_version(crd, stored),
        versions: schemas.clone(),
        // It is not known which change this was, nor which objects are older than it, so all stored
        // objects are checked.
        changed: crd["metadata"]["generation"].as_i64().unwrap_or(1) > 1,
    };
    Ok(Kind {
        version: text(version, "name").to_owned(),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        status,
        scale,
        storage: format!("{}.{group}", text(names, "plural")).into(),
        storage_version: stored.to_owned(),
        schema,
        strategic: false,
        columns: columns(version),
        selectable: version["selectableFields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        rules: Arc::new(rules),
        group,
    })
}

fn scale(scale: &Value) -> Option<ScalePaths> {
    (!scale.is_null()).then(|| ScalePaths {
        spec_replicas: text(scale, "specReplicasPath").to_owned(),
        status_replicas: text(scale, "statusReplicasPath").to_owned(),
        label_selector: scale["labelSelectorPath"]
            .as_str()
            .filter(|path| !path.is_empty())
            .map(str::to_owned),
    })
}

fn columns(version: &Value) -> Vec<Column> {
    let columns: Vec<Column> = version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| {
            let path = text(column, "jsonPath").to_owned();
            let description = match text(column, "description") {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                words => words.to_owned(),
            };
            Column {
                name: text(column, "name").to_owned(),
                type_: text(column, "type").to_owned(),
                format: text(column, "format").to_owned(),
                description,
                priority: column["priority"].as_i64().unwrap_or(0).try_into().unwrap_or(i32::MAX),
                cell: Cell::Path(path),
            }
        })
        .collect();
    if !columns.is_empty() {
        return columns;
    }
    vec![age_column()]
}

/// The rules of custom objects: defaults and CEL rules of the schema, and the checks of the scale
/// subresource.
struct CustomRules {
    schema: Schema,
    cel: CelRules,
    status: bool,
    scale: Option<ScalePaths>,
    served: String,
    stored: String,
    versions: Arc<Schemas>,
    changed: bool,
}

impl Rules for CustomRules {
    fn default(&self, object: &mut Value) {
        self.schema.default(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut().filter(|_| self.status) {
            map.remove("status");
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.scaled(object, true);
        if !self.cel.is_empty() {
            let structure = match old {
                Some(old) => self.schema.validate_update(object, old),
                None => self.schema.validate(object),
            };
            errors.extend(self.rules(&structure, object, old));
        }
        errors
    }

    fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.scaled(object, false);
        if !self.cel.is_empty() {
            let structure = self.schema.validate_status(object, old);
            errors.extend(self.rules(&structure, object, Some(old)));
        }
        errors
    }

    /// Everything but metadata counts. With a status subresource, the status is still the old one
    /// here.
    fn generation_changes(&self, object: &Value, old: &Value) -> bool {
        let rest = |value: &Value| {
            let mut map = value.as_object().cloned().unwrap_or_default();
            map.remove("metadata");
            map
        };
        rest(object) != rest(old)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let known = old.map(crate::meta::finalizers).unwrap_or_default();
        let standard = ["orphan", "foregroundDeletion", "kubernetes"];
        let mut added: Vec<&str> = crate::meta::finalizers(object);
        added.retain(|name| {
            !known.contains(name) && !name.contains('/') && !standard.contains(name)
        });
        added.sort_unstable();
        added
            .iter()
            .map(|name| {
                let path = if name.contains('.') { " including a path (/)" } else { "" };
                format!(
                    "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid \
                     accidental conflicts with other finalizer writers"
                )
            })
            .collect()
    }

    fn schema_changed(&self) -> bool {
        self.changed
    }

    fn to_storage(&self, object: &mut Value) {
        self.convert(object, &self.stored);
    }

    fn to_served(&self, object: &mut Value) {
        let stored = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        // The object is pruned and defaulted in its storage version, as kube-apiserver does.
        if let Some(schema) = self.versions.get(&stored) {
            schema.prune(object);
            schema.default(object);
        }
        if stored != self.served {
            self.convert(object, &self.served);
            self.schema.prune(object);
        }
    }
}

impl CustomRules {
    /// Conversion strategy `None` changes `apiVersion` only.
    fn convert(&self, object: &mut Value, version: &str) {
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), version.into());
        }
    }

    fn rules(
        &self,
        structure: &[FieldError],
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        if blocking(structure) { vec![unchecked_rules()] } else { self.cel.validate(object, old) }
    }

    /// Checks that the fields of the scale subresource hold counts and a selector.
    fn scaled(&self, object: &Value, with_spec: bool) -> Vec<FieldError> {
        let Some(scale) = &self.scale else { return Vec::new() };
        let mut errors = Vec::new();
        let mut wrong = |path: &str, value: String, detail: String| {
            let field = path.to_owned();
            let kind = FieldErrorKind::Invalid;
            errors.push(FieldError { kind, field, value: Some(value), detail });
        };
        let spec = with_spec.then_some(&scale.spec_replicas);
        for path in spec.into_iter().chain([&scale.status_replicas]) {
            match find(object, path).map(|found| found.map(|v| (v, v.as_i64()))) {
                Err(why) => wrong(path, "0".into(), why),
                Ok(Some((value, None))) => {
                    wrong(path, "0".into(), accessor_error(path, value, "int64"));
                }
                Ok(Some((_, Some(n)))) if n < 0 => {
                    wrong(path, n.to_string(), "should be a non-negative integer".into());
                }
                Ok(Some((_, Some(n)))) if n > i64::from(i32::MAX) => {
                    let detail = format!("should be less than or equal to {}", i32::MAX);
                    wrong(path, n.to_string(), detail);
                }
                Ok(_) => {}
            }
        }
        if let Some(path) = &scale.label_selector {
            match find(object, path) {
                Err(why) => wrong(path, "\"\"".into(), why),
                Ok(Some(value)) if !value.is_string() => {
                    wrong(path, "\"\"".into(), accessor_error(path, value, "string"));
                }
                Ok(_) => {}
            }
        }
        errors
    }
}

/// The value at a plain path. An error if a value on the way is not an object.
fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut at = object;
    for name in path.trim_start_matches('.').split('.') {
        let Some(map) = at.as_object() else {
            return Err(accessor_error(path, at, "map[string]interface{}"));
        };
        match map.get(name) {
            Some(value) => at = value,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn accessor_error(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("{path} accessor error: {shown} is of the type {found}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::good;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_served_version_is_a_kind_and_all_share_their_storage() {
        let mut crd = good();
        let mut second = crd["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        second["storage"] = json!(false);
        let mut third = second.clone();
        third["name"] = json!("v3");
        third["served"] = json!(false);
        crd["spec"]["versions"].as_array_mut().unwrap().extend([second, third]);
        let kinds = kinds(&crd).unwrap();
        let seen: Vec<_> = kinds
            .iter()
            .map(|k| (k.api_version(), &*k.storage, k.storage_version.as_str(), k.converts()))
            .collect();
        assert_eq!(
            seen,
            [
                ("x.dev/v1".to_owned(), "foos.x.dev", "v1", false),
                ("x.dev/v2".to_owned(), "foos.x.dev", "v1", true),
            ]
        );
        let mut object = json!({"apiVersion": "x.dev/v2", "kind": "Foo"});
        kinds[1].rules.to_storage(&mut object);
        assert_eq!(object["apiVersion"], "x.dev/v1");
        kinds[1].rules.to_served(&mut object);
        assert_eq!(object["apiVersion"], "x.dev/v2");
    }

    #[test]
    fn a_definition_without_columns_shows_the_age() {
        let mut crd = good();
        let column = |crd: &Value| kinds(crd).unwrap()[0].columns[0].clone();
        let printed = |column: &Column| format!("{column:?}");
        let age = column(&crd);
        let path = Cell::Path(".metadata.creationTimestamp".into());
        assert_eq!((age.name, format!("{:?}", age.cell)), ("Age".into(), format!("{path:?}")));
        crd["spec"]["versions"][0]["additionalPrinterColumns"] =
            json!([{"name": "X", "type": "string", "jsonPath": ".spec.x", "priority": 1}]);
        let expected = Column {
            name: "X".into(),
            type_: "string".into(),
            format: String::new(),
            description: "Custom resource definition column (in JSONPath format): .spec.x".into(),
            priority: 1,
            cell: Cell::Path(".spec.x".into()),
        };
        assert_eq!(printed(&column(&crd)), printed(&expected));
    }

    #[test]
    fn rules_run_only_on_objects_whose_structure_is_right() {
        let mut crd = good();
        let version = &mut crd["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{"rule": "self.x == oldSelf.x", "message": "x is immutable"}]);
        version["subresources"] = json!({"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"}});
        let kinds = kinds(&crd).unwrap();
        let rules = &kinds[0].rules;
        let said = |errors: Vec<FieldError>| -> Vec<String> {
            errors.iter().map(ToString::to_string).collect()
        };
        let old = json!({"spec": {"x": "a"}});
        assert_eq!(
            said(rules.validate(&json!({"spec": {"x": "b", "replicas": -1}}), Some(&old))),
            [
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                "spec: Invalid value: x is immutable",
            ]
        );
        assert_eq!(said(rules.validate(&json!({"spec": {"x": "b"}}), None)), [""; 0]);
        assert_eq!(
            said(rules.validate(&json!({"spec": {"x": 5}}), Some(&old))),
            [
                "<nil>: Invalid value: null: some validation rules were not checked because the object was \
              invalid; correct the existing errors to complete validation"
            ]
        );
        assert_eq!(
            said(rules.validate(&json!({"spec": 5}), None))[0],
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 5 is of the type int64, \
             expected map[string]interface{}"
        );
        let mut object = json!({"spec": {}, "status": {"n": 1}});
        rules.prepare_create(&mut object);
        assert_eq!(object, json!({"spec": {}}));
        assert_eq!(kinds[0].scale.as_ref().unwrap().spec_replicas, ".spec.replicas");
    }

    #[test]
    fn any_change_outside_metadata_is_a_new_generation() {
        let kinds = kinds(&good()).unwrap();
        let changes = |a: Value, b: Value| kinds[0].rules.generation_changes(&a, &b);
        assert!(!changes(json!({"metadata": {"a": 1}}), json!({"metadata": {}})));
        assert!(changes(json!({"data": 1}), json!({"data": 2})));
        assert!(changes(json!({"spec": {"a": 1}}), json!({"spec": {}})));
    }
}

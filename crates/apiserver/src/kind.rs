//! What the server knows of one served resource type: names, scope, schema, columns, and rules.
//! Built-in kinds and CustomResourceDefinitions both become a [`Kind`]; other code distinguishes them
//! only by `strategic`.

use crate::error::{FieldError, qualified};
use crate::names::{self, NameRule};
use crate::schema::Schema;
use serde_json::Value;
use std::sync::Arc;

/// One served resource type in one version.
#[derive(Clone)]
pub struct Kind {
    /// API group, empty for core.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Such as `Service`.
    pub kind: String,
    /// Such as `ServiceList`.
    pub list_kind: String,
    /// The resource, such as `services`.
    pub plural: String,
    /// Such as `service`.
    pub singular: String,
    /// Such as `svc`.
    pub short_names: Vec<String>,
    /// Such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is `/status`.
    pub status: bool,
    /// The paths of `/scale`, if it is served.
    pub scale: Option<ScalePaths>,
    /// The storage name of its objects. All versions of a kind share it.
    pub storage: Arc<str>,
    /// The version in which objects are stored. It equals `version` unless objects are converted.
    pub storage_version: String,
    /// The structure of its objects.
    pub schema: Schema,
    /// Whether strategic merge patches are accepted (built-in kinds only).
    pub strategic: bool,
    /// Columns of `kubectl get`, without Name (always first).
    pub columns: Vec<Column>,
    /// Fields for field selectors besides `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<String>,
    /// The rules that the schema cannot express.
    pub rules: Arc<dyn Rules>,
}

/// JSON paths of the scale subresource, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePaths {
    /// The desired count.
    pub spec_replicas: String,
    /// The observed count.
    pub status_replicas: String,
    /// The label selector as text, if any.
    pub label_selector: Option<String>,
}

/// One printer column.
#[derive(Clone, Debug)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// OpenAPI type: `string`, `integer`, `date` …
    pub type_: String,
    /// OpenAPI format.
    pub format: String,
    /// The explanation that `kubectl` shows.
    pub description: String,
    /// 0: always shown. 1: only with `-o wide`.
    pub priority: i32,
    /// How a cell is made from an object.
    pub cell: Cell,
}

/// How a cell is made.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A Kubernetes JSON path, such as `.spec.replicas`, for custom kinds.
    Path(String),
    /// A function over the object, for built-in kinds. The second argument is the present time.
    Function(fn(&Value, jiff::Timestamp) -> Value),
}

/// The rules of a kind that its schema cannot express. They take and return values and do no I/O.
///
/// The order on a write is: decode, prune, `default`, `prepare_*`, `allocate`, schema validation,
/// `validate`. Every method has a default that does nothing.
pub trait Rules: Send + Sync {
    /// The name rule of its objects.
    fn name_rule(&self) -> NameRule {
        names::name_is_subdomain
    }

    /// Whether its objects have a generation.
    fn has_generation(&self) -> bool {
        true
    }

    /// Sets the defaults.
    fn default(&self, _object: &mut Value) {}

    /// Removes fields that a creator may not set, such as the status.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Sets what a new object leaves out and other objects say, as an admission plugin of a real server does. `list`
    /// returns the objects of a resource of the store.
    fn complete_create(&self, _object: &mut Value, _list: &dyn Fn(&str) -> Vec<Value>) {}

    /// Restores from `old` the fields that a write to the main resource may not change, and clears
    /// fields that a change of type makes meaningless. With a status subresource, the status is
    /// already restored.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Allocates what only the server can (cluster IPs, node ports). `taken` says whether another
    /// object holds a claim. It is called again if the commit finds a claim taken.
    fn allocate(
        &self,
        _object: &mut Value,
        _old: Option<&Value>,
        _taken: &dyn Fn(&str) -> bool,
    ) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    /// The claims of this object, which are unique in the whole server, such as `clusterip/10.0.0.1`.
    fn claims(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// The errors of the object (`old` on update).
    fn validate(&self, _object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }

    /// The errors of a new status (`object` has the old spec).
    fn validate_status(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Whether a change from `old` to `object` makes a new generation. Default: `spec` differs.
    fn generation_changes(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// The seconds that a deleted object gets to end; `asked` is the client's request.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> i64 {
        0
    }

    /// Whether a completed deletion is answered with the object instead of a Status.
    fn answers_with_deleted(&self) -> bool {
        false
    }

    /// Whether deletecollection is served.
    fn deletes_collections(&self) -> bool {
        true
    }

    /// Texts for `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// The value of a selectable field that differs from the value at its path, such as `false` for an
    /// absent flag. Default: the value at its path.
    fn selectable_value(&self, _object: &Value, _field: &str) -> Option<String> {
        None
    }

    /// Converts an object from this served version to the stored one.
    fn to_storage(&self, _object: &mut Value) {}

    /// Whether stored objects may have been written under another schema. They are then converted
    /// ([`Rules::to_served`]) whenever they are read.
    fn schema_changed(&self) -> bool {
        false
    }

    /// Converts an object from any stored version to this served one.
    fn to_served(&self, _object: &mut Value) {}
}

/// The rules of a kind that needs none.
pub struct NoRules;

impl Rules for NoRules {}

impl Kind {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether new objects are stored in another version than they are served.
    pub fn converts(&self) -> bool {
        self.version != self.storage_version
            || *self.storage != *qualified(&self.group, &self.plural)
    }

    /// Whether these stored bytes can be served unchanged. A custom object names its own stored
    /// version: the stored version of a definition can change, and its objects stay as they are.
    pub fn serves_as_stored(&self, stored: &[u8]) -> bool {
        if self.strategic {
            return !self.converts();
        }
        if self.rules.schema_changed() {
            return false;
        }
        let version = stored.strip_prefix(b"{\"apiVersion\":\"");
        version
            .and_then(|rest| rest.strip_prefix(self.group.as_bytes())?.strip_prefix(b"/"))
            .and_then(|rest| rest.strip_prefix(self.version.as_bytes()))
            .is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// Converts a stored object to the served form.
    pub fn serve(&self, object: &mut Value) {
        let same = match object["apiVersion"].as_str() {
            _ if self.strategic => !self.converts(),
            version => version.is_some_and(|version| version == self.api_version()),
        };
        if !same || self.rules.schema_changed() {
            self.rules.to_served(object);
        }
    }
}

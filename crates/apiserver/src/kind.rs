//! What the server knows of one served resource type: names, scope, schema, columns, and the rules of
//! its kind. Built-in kinds and CustomResourceDefinitions both become a [`Kind`]; nothing behind it
//! asks which it was.

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
    /// Where `/scale` finds its numbers, if it is served.
    pub scale: Option<ScalePaths>,
    /// Under which name the store keeps its objects; two versions of a kind share one.
    pub storage: Arc<str>,
    /// The version in which objects are stored; equal to `version` unless converted.
    pub storage_version: String,
    /// The structure of its objects.
    pub schema: Schema,
    /// Whether strategic merge patches are accepted (built-in kinds only).
    pub strategic: bool,
    /// Columns of `kubectl get`, without Name (always first).
    pub columns: Vec<Column>,
    /// Fields that a field selector may name besides `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<String>,
    /// What the schema cannot say.
    pub rules: Arc<dyn Rules>,
}

/// JSON paths of the scale subresource, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePaths {
    /// Desired count.
    pub spec_replicas: String,
    /// Observed count.
    pub status_replicas: String,
    /// Serialized label selector, if any.
    pub label_selector: Option<String>,
}

/// One printer column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// OpenAPI type: `string`, `integer`, `date` …
    pub type_: String,
    /// OpenAPI format.
    pub format: String,
    /// What `kubectl` shows as explanation.
    pub description: String,
    /// 0 always, 1 only with `-o wide`.
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

/// The rules of a kind that its schema cannot say. All pure: values in, values out.
///
/// The order on a write is: decode, prune, `default`, `prepare_*`, `allocate`, schema validation,
/// `validate`. Every method has a default that does nothing.
pub trait Rules: Send + Sync {
    /// What names its objects may have.
    fn name_rule(&self) -> NameRule {
        names::name_is_subdomain
    }

    /// Whether its objects count their generations at all.
    fn has_generation(&self) -> bool {
        true
    }

    /// Fills in what the user left out.
    fn default(&self, _object: &mut Value) {}

    /// Removes what a creator may not set (a status, say).
    fn prepare_create(&self, _object: &mut Value) {}

    /// Restores from `old` what a writer of the main resource may not change, and clears what a change
    /// of type makes meaningless. The status is already restored where there is a status subresource.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Gives out what only the server can (cluster IPs, node ports). `taken` tells whether a claim is
    /// held by somebody else. Called again when a commit finds a claim taken after all.
    fn allocate(
        &self,
        _object: &mut Value,
        _old: Option<&Value>,
        _taken: &dyn Fn(&str) -> bool,
    ) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    /// Names that this object holds exclusively in the whole server, such as `clusterip/10.0.0.1`.
    fn claims(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// What is wrong with the object (`old` on update).
    fn validate(&self, _object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong with a new status (`object` has the old spec).
    fn validate_status(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Whether a change from `old` to `object` is a new generation. By default: `spec` differs.
    fn generation_changes(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// Seconds that an object gets to end after its deletion was asked for; `asked` is what the client
    /// wished.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> i64 {
        0
    }

    /// Whether a deletion that is done is answered with the object rather than with a Status.
    fn answers_with_deleted(&self) -> bool {
        false
    }

    /// Whether all objects of a namespace, or of the cluster, may be deleted at once.
    fn deletes_collections(&self) -> bool {
        true
    }

    /// Things worth telling the writer, sent as `Warning` headers.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// The value of a selectable field that is not what stands at its path, such as the `false` of an
    /// absent flag. By default: what stands at the path.
    fn selectable_value(&self, _object: &Value, _field: &str) -> Option<String> {
        None
    }

    /// From this served version to the stored one.
    fn to_storage(&self, _object: &mut Value) {}

    /// Whether objects may be stored that were written under another schema. They are brought into the
    /// form of this one ([`Rules::to_served`]) whenever they are read.
    fn schema_changed(&self) -> bool {
        false
    }

    /// From whatever version an object is stored in to this served one.
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

    /// Whether new objects are stored in another version than they are served in.
    pub fn converts(&self) -> bool {
        self.version != self.storage_version
            || *self.storage != *qualified(&self.group, &self.plural)
    }

    /// Whether these stored bytes are the object as it is served. What custom objects are stored in is
    /// theirs to say: the stored version of a definition can change, and its objects stay as they are.
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

    /// Makes of a stored object what is served.
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

//! The server: the store, the kinds, and the code that all verbs share. The verbs turn a decoded request
//! into a committed object or an [`ApiError`]. HTTP is in `http`, and rules of a kind are in its
//! [`Kind`].

use crate::builtins::{self, ServiceNetwork, definitions::enforced};
use crate::crd::DefinitionRules;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::registry::Registry;
use crate::schema::{Node, Schema, compile};
use crate::store::{Key, Store};
use crate::verbs::{Definitions, Establishing};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// Rewrites an object of a built-in kind before any check: takes group, kind and object. An error text
/// becomes a 422 for the writer.
pub type Translation = Arc<dyn Fn(&str, &str, &mut Value) -> Result<(), String> + Send + Sync>;

/// The options of a server.
#[derive(Clone, Default)]
pub struct Options {
    /// The networks and ports from which Services get addresses and node ports.
    pub services: ServiceNetwork,
    /// The rewrite of written objects, for spellings that a product accepts in addition.
    pub translate: Option<Translation>,
}

/// The Kubernetes API over one store.
pub struct Server {
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) translate: Option<Translation>,
    /// The stored CRDs and the kinds that they define.
    pub(crate) definitions: Arc<Definitions>,
    /// The task that establishes CRDs. It ends with the server.
    pub(crate) establishing: OnceLock<Establishing>,
}

impl Server {
    /// A server for `store`. Stored CRDs are served when [`Server::establish`] has returned; after that,
    /// every write of a CRD takes effect.
    pub fn new(store: Store, options: Options) -> Result<Self, ApiError> {
        let kinds = builtin_kinds(&options.services)?;
        let registry = Arc::new(Registry::new(kinds));
        let definitions = Arc::new(Definitions::new(store.clone(), registry.clone()));
        let establishing = OnceLock::new();
        Ok(Self { store, registry, translate: options.translate, definitions, establishing })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The kind of a path, or 404.
    pub fn kind(&self, group: &str, version: &str, resource: &str) -> Result<Arc<Kind>, ApiError> {
        let kinds = self.registry.kinds();
        if let Some(kind) = kinds.get(group, version, resource) {
            return Ok(kind.clone());
        }
        // kube-apiserver answers 404 as a Status for its own groups; for other groups another server
        // would answer, with a text page.
        let builtin = kinds.iter().any(|kind| kind.strategic && kind.group == group);
        Err(if builtin { ApiError::no_such_path() } else { ApiError::no_page() })
    }

    /// The stored object in the served version, with the revision that wrote it.
    pub fn read(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Stored, ApiError> {
        let entry = self
            .store
            .get(&key(kind, namespace, name))
            .ok_or_else(|| ApiError::not_found(&kind.group, &kind.plural, name))?;
        let value = serde_json::from_slice(&entry.bytes).map_err(ApiError::internal)?;
        Ok(Stored { value, revision: entry.revision, bytes: entry.bytes })
    }
}

/// The built-in kinds, with compiled schemas, columns and the rules of CRDs.
fn builtin_kinds(network: &ServiceNetwork) -> Result<Vec<Kind>, ApiError> {
    let mut failure = None;
    let failed = std::cell::RefCell::new(&mut failure);
    let compiled = |name: &str| {
        let root = enforced(name).unwrap_or_default();
        compile(&root, &enforced).unwrap_or_else(|error| {
            **failed.borrow_mut() = Some(format!("{name}: {error}"));
            Schema::new(Arc::from([Node::default()]), 0)
        })
    };
    let mut kinds = builtins::all(network, &compiled);
    for kind in &mut kinds {
        kind.columns = crate::table::columns(&kind.group, &kind.kind);
        if Server::defines_kinds(kind) {
            kind.rules = Arc::new(DefinitionRules);
        }
    }
    match failure {
        None => Ok(kinds),
        Some(why) => Err(ApiError::internal(why)),
    }
}

/// An object read from the store, in the stored version.
pub struct Stored {
    /// The object.
    pub value: Value,
    /// The revision that wrote it.
    pub revision: u64,
    /// Its canonical bytes.
    pub bytes: bytes::Bytes,
}

/// The store's key of an object.
pub fn key(kind: &Kind, namespace: &str, name: &str) -> Key {
    Key { resource: kind.storage.clone(), namespace: namespace.into(), name: name.into() }
}

/// The present time in the form of object metadata.
pub fn timestamp() -> String {
    written(jiff::Timestamp::now())
}

/// A time in the form of object metadata: whole seconds.
pub fn written(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A random (version 4) uid.
pub fn new_uid() -> Result<String, ApiError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(ApiError::internal)?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// A suffix of five characters for a generated name, without vowels and without digits that look like
/// letters.
pub fn name_suffix() -> Result<String, ApiError> {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bytes = [0_u8; 5];
    getrandom::fill(&mut bytes).map_err(ApiError::internal)?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect())
}

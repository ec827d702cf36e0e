//! The server's heart: the store, the kinds, and what every verb shares. It turns a decoded request into
//! a committed object or an [`ApiError`]; HTTP stays outside, rules of kinds stay in their [`Kind`].

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

/// Rewrites objects of built-in kinds before anything else looks at them: group, kind, object in; an
/// error text is a 422 for the writer.
pub type Translation = Arc<dyn Fn(&str, &str, &mut Value) -> Result<(), String> + Send + Sync>;

/// What a server is made of.
#[derive(Clone, Default)]
pub struct Options {
    /// Ranges from which Services get addresses and ports.
    pub services: ServiceNetwork,
    /// Rewrites on write, for kinds that a product accepts in an older spelling.
    pub translate: Option<Translation>,
}

/// The Kubernetes API over one store.
pub struct Server {
    pub(crate) store: Store,
    pub(crate) registry: Arc<Registry>,
    pub(crate) translate: Option<Translation>,
    /// What the stored CRDs mean.
    pub(crate) definitions: Arc<Definitions>,
    /// The task that lets CRDs take effect. It ends with the server.
    pub(crate) establishing: OnceLock<Establishing>,
}

impl Server {
    /// A server over `store`. CRDs that are stored already are served once [`Server::establish`] has
    /// returned; from then on every write to one takes effect.
    pub fn new(store: Store, options: Options) -> Result<Self, ApiError> {
        let kinds = builtin_kinds(&options.services)?;
        let registry = Arc::new(Registry::new(kinds));
        let definitions = Arc::new(Definitions::new(store.clone(), registry.clone()));
        let establishing = OnceLock::new();
        Ok(Self { store, registry, translate: options.translate, definitions, establishing })
    }

    /// The store underneath.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The kind behind a path, or 404.
    pub fn kind(&self, group: &str, version: &str, resource: &str) -> Result<Arc<Kind>, ApiError> {
        let kinds = self.registry.kinds();
        if let Some(kind) = kinds.get(group, version, resource) {
            return Ok(kind.clone());
        }
        // A real server knows its own groups; what is below the others is another server's page.
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

/// The built-in kinds, complete: schemas compiled, columns and the rules of CRDs put in.
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

/// Where an object of a kind is kept.
pub fn key(kind: &Kind, namespace: &str, name: &str) -> Key {
    Key { resource: kind.storage.clone(), namespace: namespace.into(), name: name.into() }
}

/// The present time as objects carry it.
pub fn timestamp() -> String {
    written(jiff::Timestamp::now())
}

/// A time as objects carry it: to the second.
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

/// Five characters to end a generated name with: no vowels, nothing that reads like a word or a digit
/// that reads like a letter.
pub fn name_suffix() -> Result<String, ApiError> {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bytes = [0_u8; 5];
    getrandom::fill(&mut bytes).map_err(ApiError::internal)?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect())
}

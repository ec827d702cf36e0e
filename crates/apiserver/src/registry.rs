//! The kinds that are served now: the built-in kinds and those of CustomResourceDefinitions. Readers get
//! an immutable snapshot; a change of CRDs replaces it. It does no I/O.

use crate::kind::Kind;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;

/// The OpenAPI definitions of custom kinds, by name, with their group and version.
pub type Definitions = BTreeMap<String, ((String, String), Arc<Value>)>;

/// A document as it is sent: its hash and its bytes.
pub type Document = (String, Bytes);

/// The kinds served at one moment.
#[derive(Default)]
pub struct Kinds {
    by_resource: BTreeMap<(String, String, String), Arc<Kind>>,
    /// OpenAPI definitions of custom kinds.
    pub custom_definitions: Definitions,
    /// Documents that were requested. They are dropped with the kinds that they describe.
    documents: Mutex<BTreeMap<String, Document>>,
}

impl Kinds {
    /// The kind of a group, version and plural.
    pub fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Kind>> {
        self.by_resource.get(&(group.to_owned(), version.to_owned(), resource.to_owned()))
    }

    /// All kinds, ordered by group, version and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_resource.values()
    }

    /// The kinds of one group-version, ordered by plural.
    pub fn of<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> + 'a {
        self.iter().filter(move |kind| kind.group == group && kind.version == version)
    }

    /// Groups with their versions in order of preference (stable before beta before alpha, newer first).
    pub fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for kind in self.iter() {
            let versions = groups.entry(&kind.group).or_default();
            if !versions.contains(&kind.version.as_str()) {
                versions.push(&kind.version);
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| std::cmp::Reverse(maturity(version)));
        }
        groups
    }

    /// Adds a kind.
    pub fn insert(&mut self, kind: impl Into<Arc<Kind>>) {
        let kind = kind.into();
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.by_resource.insert(key, kind);
    }

    /// Whether exactly this kind is served, not another definition of it.
    fn serves(&self, kind: &Arc<Kind>) -> bool {
        self.get(&kind.group, &kind.version, &kind.plural)
            .is_some_and(|current| Arc::ptr_eq(current, kind))
    }

    /// The document at `path`. `make` creates it at the first request.
    pub fn document(
        &self,
        path: &str,
        make: impl FnOnce() -> Option<Document>,
    ) -> Option<Document> {
        if let Some(found) = self.documents.lock().get(path) {
            return Some(found.clone());
        }
        let made = make()?;
        self.documents.lock().insert(path.to_owned(), made.clone());
        Some(made)
    }
}

/// Orders versions as Kubernetes does: v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else by name.
fn maturity(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, tail) = rest.split_at(digits);
        let major: u32 = major.parse().ok()?;
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (stage, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((stage, major, minor.parse().ok()?))
    });
    let (stage, major, minor) = parsed.unwrap_or_default();
    (stage, major, minor, std::cmp::Reverse(version.to_owned()))
}

/// The served kinds, and the way to change them.
pub struct Registry {
    builtin: Vec<Arc<Kind>>,
    current: watch::Sender<Arc<Kinds>>,
}

impl Registry {
    /// A registry of built-in kinds only.
    pub fn new(builtin: Vec<Kind>) -> Self {
        let registry = Self {
            builtin: builtin.into_iter().map(Arc::new).collect(),
            current: watch::Sender::default(),
        };
        registry.set_custom(Vec::new(), Definitions::new());
        registry
    }

    /// The kinds that are served now.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.current.borrow().clone()
    }

    /// Replaces all custom kinds.
    pub fn set_custom(&self, kinds: Vec<Arc<Kind>>, definitions: Definitions) {
        let mut next = Kinds { custom_definitions: definitions, ..Kinds::default() };
        for kind in self.builtin.iter().cloned().chain(kinds) {
            next.insert(kind);
        }
        self.current.send_replace(Arc::new(next));
    }

    /// Waits until `kind` is no longer served, or another definition serves it.
    pub fn superseded(&self, kind: &Arc<Kind>) -> impl Future<Output = ()> + Send + use<> {
        let (mut current, kind) = (self.current.subscribe(), kind.clone());
        async move {
            if current.wait_for(|kinds| !kinds.serves(&kind)).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_made_once_and_belongs_to_the_kinds_it_was_made_from() {
        let registry = Registry::new(Vec::new());
        let old = registry.kinds();
        registry.set_custom(Vec::new(), Definitions::new());
        let made =
            |text: &'static str| Some((text.to_owned(), Bytes::from_static(text.as_bytes())));
        // A reader of the old snapshot may finish after the change.
        assert_eq!(old.document("apis/x.dev/v1", || made("old")), made("old"));
        assert_eq!(old.document("apis/x.dev/v1", || made("again")), made("old"));
        assert_eq!(registry.kinds().document("apis/x.dev/v1", || made("new")), made("new"));
    }

    #[test]
    fn stable_versions_come_before_beta_and_beta_before_alpha() {
        let mut versions = vec!["v1alpha1", "v1", "foo", "v2beta1", "v1beta2", "v2", "v10"];
        versions.sort_by_key(|version| std::cmp::Reverse(maturity(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}

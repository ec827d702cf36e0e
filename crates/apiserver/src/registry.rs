//! The kinds that are served right now: the built-in ones, and those that CustomResourceDefinitions
//! added. Readers get an immutable snapshot; a change of CRDs swaps in a new one.

use crate::kind::Kind;
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kinds served at one moment.
#[derive(Clone, Default)]
pub struct Kinds {
    by_resource: BTreeMap<(String, String, String), Arc<Kind>>,
    /// OpenAPI definitions of custom kinds by name, and which group-version they belong to.
    pub custom_definitions: BTreeMap<String, ((String, String), Value)>,
}

impl Kinds {
    /// The kind behind a group, version and plural.
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
    pub fn insert(&mut self, kind: Kind) {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.by_resource.insert(key, Arc::new(kind));
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

/// The kinds served, and a way to change them.
pub struct Registry {
    builtin: Kinds,
    current: RwLock<Arc<Kinds>>,
}

impl Registry {
    /// A registry of built-in kinds only.
    pub fn new(builtin: Vec<Kind>) -> Self {
        let mut kinds = Kinds::default();
        for kind in builtin {
            kinds.insert(kind);
        }
        Self { current: RwLock::new(Arc::new(kinds.clone())), builtin: kinds }
    }

    /// What is served now.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.current.read().clone()
    }

    /// Replaces all custom kinds.
    pub fn set_custom(
        &self,
        kinds: Vec<Kind>,
        definitions: BTreeMap<String, ((String, String), Value)>,
    ) {
        let mut next = self.builtin.clone();
        for kind in kinds {
            next.insert(kind);
        }
        next.custom_definitions = definitions;
        *self.current.write() = Arc::new(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_beta_before_alpha() {
        let mut versions = vec!["v1alpha1", "v1", "foo", "v2beta1", "v1beta2", "v2", "v10"];
        versions.sort_by_key(|version| std::cmp::Reverse(maturity(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]);
    }
}

//! Objects for the tests of this module, from YAML as users write it.

use serde::de::DeserializeOwned;

/// An object of any kind.
pub(super) fn object<T: DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).unwrap()
}

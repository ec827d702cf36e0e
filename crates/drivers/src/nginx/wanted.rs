//! The wanted configuration of nginx: one file and certificates. Every difference needs a reload, so the whole file has
//! one mark, which nginx reports after a load. It decides nothing; the renderer makes it, and the driver compares
//! marks.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the main file.
pub const CONFIG: &str = "nginx.conf";

/// The complete configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The main file up to its mark.
    pub(super) head: String,
    /// The main file after its mark.
    pub(super) tail: String,
    /// Certificates with their keys, by hash.
    pub certificates: BTreeMap<Arc<str>, Arc<str>>,
}

/// The file of a certificate.
pub(super) fn certificate_file(hash: &str) -> String {
    format!("certs/{hash}.pem")
}

impl Wanted {
    /// A hash of the main file. It names certificates by hash, so it covers them as well.
    pub fn mark(&self) -> String {
        let mut digest = Sha256::new();
        for part in [&self.head, &self.tail] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let bytes = digest.finalize();
        bytes.iter().take(16).fold("bowline-".to_owned(), |mark, byte| format!("{mark}{byte:02x}"))
    }

    /// The main file.
    pub fn config(&self) -> String {
        format!("{}{}{}", self.head, self.mark(), self.tail)
    }

    /// All files, by name.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::from([(CONFIG.to_owned(), self.config().into_bytes())]);
        for (hash, pem) in &self.certificates {
            files.insert(certificate_file(hash), pem.as_bytes().to_vec());
        }
        files
    }
}

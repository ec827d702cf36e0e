//! The credentials of a server: its certificate authority, a certificate for its address, two random
//! tokens, and the kubeconfig with them. With a data folder, the authority and the tokens are kept, so
//! that a kubeconfig stays valid over restarts.

use crate::error::ApiError;
use crate::http::access::{Access, new_token};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Why credentials cannot be made or kept.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A stored file is damaged.
    #[error("{path} is damaged ({why}); remove it to have new credentials made")]
    Damaged {
        /// The file.
        path: String,
        /// The error.
        why: String,
    },
    /// A key or certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A folder belongs to another program.
    #[error("{path} holds other files and no data of this program; name a folder of its own")]
    Foreign {
        /// The folder.
        path: String,
    },
    /// No random bytes are available.
    #[error("cannot make a token: {0}")]
    Token(ApiError),
}

/// What is kept over restarts.
#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    /// The cluster's name, also in the authority's certificate.
    name: String,
    ca_certificate: String,
    ca_key: String,
    admin_token: String,
    read_only_token: String,
}

/// Credentials of one server.
#[derive(Clone)]
pub struct Credentials {
    kept: Kept,
    /// PEM chain of the server.
    pub certificate: String,
    /// PEM key of the server.
    pub key: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

fn authority_parameters(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("{name} embedded API"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

impl Credentials {
    /// New credentials for a server at `address`, lost with the process.
    pub fn ephemeral(name: &str, address: SocketAddr) -> Result<Self, PkiError> {
        Self::issue(Kept::generate(name)?, address)
    }

    /// Credentials kept in `file` (mode 0600), which is created if it does not exist.
    pub fn kept(name: &str, file: &Path, address: SocketAddr) -> Result<Self, PkiError> {
        let path = file.display().to_string();
        let kept = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| PkiError::Damaged { path, why: error.to_string() })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let kept = Kept::generate(name)?;
                let text = serde_json::to_vec(&kept)
                    .map_err(|error| PkiError::Damaged { path, why: error.to_string() })?;
                write_private(file, &text)?;
                kept
            }
            Err(source) => return Err(PkiError::File { action: "read", path, source }),
        };
        Self::issue(kept, address)
    }

    fn issue(kept: Kept, address: SocketAddr) -> Result<Self, PkiError> {
        let authority =
            Issuer::new(authority_parameters(&kept.name), KeyPair::from_pem(&kept.ca_key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, &kept.name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if !addresses.contains(&address.ip()) && !address.ip().is_unspecified() {
            addresses.push(address.ip());
        }
        params.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
        let certificate = params.signed_by(&key, &authority)?.pem();
        Ok(Self { kept, certificate, key: key.serialize_pem() })
    }

    /// PEM of the authority, for clients.
    pub fn authority(&self) -> &str {
        &self.kept.ca_certificate
    }

    /// The token with all rights.
    pub fn admin_token(&self) -> &str {
        &self.kept.admin_token
    }

    /// The token that may read everything but Secrets.
    pub fn read_only_token(&self) -> &str {
        &self.kept.read_only_token
    }

    /// How the server identifies callers.
    pub fn access(&self) -> Access {
        Access::Tokens {
            admin: self.kept.admin_token.clone(),
            read_only: self.kept.read_only_token.clone(),
        }
    }

    /// A kubeconfig for the server at `url`; the read-only user is its second context.
    pub fn kubeconfig(&self, url: &str) -> String {
        let user = |name: &str, token: &str| json!({"name": name, "user": {"token": token}});
        let name = self.kept.name.as_str();
        let context = |context: &str, user: &str| json!({"name": context, "context": {"cluster": name, "user": user}});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {
                "server": url, "certificate-authority-data": STANDARD.encode(self.authority()),
            }}],
            "contexts": [
                context(name, "admin"), context(&format!("{name}-read-only"), "read-only"),
            ],
            "users": [
                user("admin", self.admin_token()), user("read-only", self.read_only_token()),
            ],
        });
        // JSON is valid YAML, so it can replace YAML if rendering fails.
        crate::yaml::to_yaml(&config).unwrap_or_else(|_| config.to_string())
    }
}

impl Kept {
    fn generate(name: &str) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        Ok(Self {
            name: name.to_owned(),
            ca_certificate: authority_parameters(name).self_signed(&key)?.pem(),
            ca_key: key.serialize_pem(),
            admin_token: new_token().map_err(PkiError::Token)?,
            read_only_token: new_token().map_err(PkiError::Token)?,
        })
    }
}

/// The authority of credentials kept in `file`, as a kubeconfig has it. None: there are none that can be read.
pub fn authority_in(file: &Path) -> Option<String> {
    let kept: Kept = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    Some(STANDARD.encode(kept.ca_certificate))
}

/// Writes a file that only its owner can read: beside, then renamed, so that nobody sees half of it.
pub fn write_private(file: &Path, contents: &[u8]) -> Result<(), PkiError> {
    let failed =
        |action, source| PkiError::File { action, path: file.display().to_string(), source };
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let beside = std::path::PathBuf::from(beside);
    // A file left by a crash would keep its old mode, so it is removed first.
    let _ = std::fs::remove_file(&beside);
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(|error| failed("create", error))?;
    out.write_all(contents)
        .and_then(|()| out.sync_all())
        .and_then(|()| std::fs::rename(&beside, file))
        .map_err(|error| failed("write", error))
}

/// Creates a folder that only its owner can enter. An existing folder is used only if it is empty or
/// contains `mark`, a file that shows it is Bowline's: a mistake must not change the mode of a home
/// folder or `/tmp`.
pub fn private_folder(folder: &Path, mark: &str) -> Result<(), PkiError> {
    let path = || folder.display().to_string();
    let failed = |action, source| PkiError::File { action, path: path(), source };
    std::fs::create_dir_all(folder).map_err(|error| failed("create", error))?;
    let empty = std::fs::read_dir(folder).map_err(|error| failed("read", error))?.next().is_none();
    if !empty && !folder.join(mark).exists() {
        return Err(PkiError::Foreign { path: path() });
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
        .map_err(|error| failed("protect", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_credentials_come_back_and_only_their_owner_can_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials.json");
        let address = "127.0.0.1:6443".parse().unwrap();
        let first = Credentials::kept("test", &file, address).unwrap();
        let second = Credentials::kept("test", &file, address).unwrap();
        assert_eq!(first.admin_token(), second.admin_token());
        assert_eq!(first.authority(), second.authority());
        assert_ne!(first.admin_token(), first.read_only_token());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damaged_credentials_say_which_file_to_remove() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials.json");
        std::fs::write(&file, "{").unwrap();
        let error = Credentials::kept("test", &file, "127.0.0.1:1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("credentials.json"), "{error}");
        assert!(error.to_string().contains("remove it"), "{error}");
    }

    #[test]
    fn a_folder_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(), mode(0o755)).unwrap();
        std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
        let error = private_folder(folder.path(), "store.redb").unwrap_err();
        assert!(matches!(error, PkiError::Foreign { .. }), "{error}");
        let seen = std::fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(seen & 0o777, 0o755);
        std::fs::write(folder.path().join("store.redb"), "").unwrap();
        private_folder(folder.path(), "store.redb").unwrap();
        let seen = std::fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(seen & 0o777, 0o700);
    }
}

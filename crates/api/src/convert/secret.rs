//! Certificates: from users' Secrets of type `kubernetes.io/tls`, and into and out of Bowline's own Secrets by which
//! agents get them. Chain and key are encoded again from what was parsed, so that equal hashes mean equal bytes and
//! nothing but a chain and a key ever reaches a proxy. No key ever occurs in a message.

use super::read::key;
use crate::names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bowline_core::certificate_rooms::Room;
use bowline_core::objects;
use bowline_core::outcome::{Problem, Reason, quote};
use bowline_core::update::Certificate;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rustls::CertificateError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The type of Secrets with a certificate and its key.
pub const TYPE_TLS: &str = "kubernetes.io/tls";

/// The longest chain. Real ones have two to five certificates.
const MOST_CERTIFICATES: usize = 20;
/// The most bytes of a chain, without its PEM encoding. Certificates of many tenants share a Secret.
const LONGEST_CHAIN: usize = 64 * 1024;

/// A TLS Secret as the planner gets it, and the certificate itself for Bowline's own Secrets.
pub fn tls_secret(secret: &Secret) -> (objects::TlsSecret, Option<Arc<Certificate>>) {
    let read = read(secret);
    let (certificate, whole) = match read {
        Ok((hash, certificate)) => {
            let size = certificate.chain.len() + certificate.key.len();
            (Ok(objects::TlsContent { hash, size }), Some(Arc::new(certificate)))
        }
        Err(why) => (Err(Problem::new(Reason::BadCertificate, why)), None),
    };
    (objects::TlsSecret { key: key(&secret.metadata), certificate }, whole)
}

/// The certificates in one of Bowline's own Secrets, by hash. An entry whose content has another hash is left out.
pub fn certificates(secret: &Secret) -> Vec<(Arc<str>, Arc<Certificate>)> {
    let entries = secret.data.iter().flatten();
    entries
        .filter_map(|(name, ByteString(bytes))| {
            let (hash, certificate) = Pair::parse(bytes, bytes).ok()?.written();
            (*hash == **name).then(|| (hash, Arc::new(certificate)))
        })
        .collect()
}

/// The data of one of Bowline's own Secrets with these certificates: an entry for each hash, chain before key.
pub fn certificates_data<'a>(
    certificates: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<Certificate>)>,
) -> BTreeMap<String, ByteString> {
    certificates
        .into_iter()
        .map(|(hash, certificate)| {
            let pem = [certificate.chain.as_bytes(), certificate.key.as_bytes()].concat();
            (hash.to_string(), ByteString(pem))
        })
        .collect()
}

/// The rooms that are recorded on one of Bowline's own Secrets, by hash. An entry that cannot be read is left out.
pub fn rooms(secret: &Secret) -> BTreeMap<Arc<str>, Room> {
    let annotations = secret.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(names::ANNOTATION_ROOMS));
    let entries = text.into_iter().flat_map(|text| text.split_ascii_whitespace());
    entries
        .filter_map(|entry| {
            let (hash, room) = entry.split_once('=')?;
            Some((hash.into(), room.parse().ok()?))
        })
        .collect()
}

/// The text that `rooms` reads: `HASH=PLACE:SIZE` for each certificate, separated by spaces.
pub fn rooms_text<'a>(rooms: impl IntoIterator<Item = (&'a Arc<str>, Room)>) -> String {
    let entries: Vec<_> = rooms.into_iter().map(|(hash, room)| format!("{hash}={room}")).collect();
    entries.join(" ")
}

fn read(secret: &Secret) -> Result<(Arc<str>, Certificate), String> {
    let type_ = secret.type_.as_deref().unwrap_or("Opaque");
    if type_ != TYPE_TLS {
        return Err(format!("the Secret is of type {}, not {TYPE_TLS}", quote(type_)));
    }
    let pair = Pair::parse(entry(secret, "tls.crt")?, entry(secret, "tls.key")?)?;
    pair.check()?;
    Ok(pair.written())
}

fn entry<'a>(secret: &'a Secret, name: &str) -> Result<&'a [u8], String> {
    match secret.data.as_ref().and_then(|data| data.get(name)) {
        Some(ByteString(bytes)) if !bytes.is_empty() => Ok(bytes),
        Some(_) => Err(format!("{name} is empty")),
        None => Err(format!("{name} is missing")),
    }
}

/// A chain and a key.
struct Pair {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Pair {
    fn parse(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = parse_chain(chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            "tls.key has no readable section BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY or BEGIN EC \
             PRIVATE KEY"
        })?;
        Ok(Self { chain, key })
    }

    /// Checks that a server can present the first certificate: its key is of a known kind and belongs to it, and the
    /// rest of the chain can be read. HAProxy and nginx refuse all of their files for a single bad certificate.
    fn check(&self) -> Result<(), String> {
        for (n, certificate) in self.chain.iter().enumerate().skip(1) {
            // Kinds that rustls does not know, such as version 1, are left to clients to judge.
            let read = ParsedCertificate::try_from(certificate);
            if let Err(rustls::Error::InvalidCertificate(CertificateError::BadEncoding)) = read {
                return Err(format!("certificate {} of tls.crt cannot be read as X.509", n + 1));
            }
        }
        let signing = rustls::crypto::ring::sign::any_supported_type(&self.key)
            .map_err(|_| "tls.key is not an RSA, ECDSA (P-256, P-384) or Ed25519 key")?;
        match CertifiedKey::new(self.chain.clone(), signing).keys_match() {
            Ok(()) => Ok(()),
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err("tls.key does not belong to the first certificate of tls.crt".into())
            }
            Err(_) => Err("the first certificate of tls.crt cannot be read as X.509".into()),
        }
    }

    /// The hash, and the certificate encoded as PEM again.
    fn written(&self) -> (Arc<str>, Certificate) {
        let mut digest = Sha256::new();
        let mut count = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        let mut chain = String::new();
        for certificate in &self.chain {
            count(certificate);
            pem(&mut chain, "CERTIFICATE", certificate);
        }
        let label = match &self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        count(label.as_bytes());
        count(self.key.secret_der());
        let mut key = String::new();
        pem(&mut key, label, self.key.secret_der());
        let mut hash = String::with_capacity(64);
        for byte in digest.finalize() {
            // Writing into a String cannot fail.
            let _ = write!(hash, "{byte:02x}");
        }
        (hash.into(), Certificate { chain: chain.into(), key: key.into() })
    }
}

fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let (mut chain, mut bytes) = (Vec::new(), 0);
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate
            .map_err(|_| "tls.crt is not PEM: a section does not end or is not base64")?;
        bytes += certificate.len();
        chain.push(certificate);
        if chain.len() > MOST_CERTIFICATES || bytes > LONGEST_CHAIN {
            return Err(format!(
                "tls.crt is too large: a chain has at most {MOST_CERTIFICATES} certificates and \
                 {LONGEST_CHAIN} bytes"
            ));
        }
    }
    if chain.is_empty() {
        return Err("tls.crt has no section BEGIN CERTIFICATE".into());
    }
    Ok(chain)
}

fn pem(into: &mut String, label: &str, der: &[u8]) {
    let encoded = STANDARD.encode(der);
    let _ = writeln!(into, "-----BEGIN {label}-----");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        let _ = writeln!(into, "{line}");
        rest = after;
    }
    let _ = writeln!(into, "-----END {label}-----");
}

#[cfg(test)]
mod tests;

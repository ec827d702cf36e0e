//! Certificates for TLS tests: the test's own authority, the certificates that it signs, and
//! clients that trust it.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// An extension that no client knows, under the enterprise number for examples (RFC 5612).
const PADDING: &[u64] = &[1, 3, 6, 1, 4, 1, 32473, 1];

/// Signs certificates for the hosts of one test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate and its key, in the form of a Secret.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate, as PEM.
    pub certificate: String,
    /// Its key, as PEM.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "traffic test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("generate a key");
        let certificate = params.self_signed(&key).expect("sign the CA").der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate for these hosts. Each call makes a new one.
    pub fn issue(&self, hosts: &[&str]) -> Issued {
        self.issue_padded(hosts, 0)
    }

    /// As [`Self::issue`], with this many meaningless bytes in the signed part.
    pub fn issue_padded(&self, hosts: &[&str], bytes: usize) -> Issued {
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("host names");
        if bytes > 0 {
            let padding = CustomExtension::from_oid_content(PADDING, vec![0; bytes]);
            params.custom_extensions.push(padding);
        }
        let key = KeyPair::generate().expect("generate a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("sign a certificate");
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// The TLS configuration of a client that trusts only this authority, with these ALPN
    /// protocols.
    pub fn trusted(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a usable CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        // Every connection must see the present certificate; a resumed one would see the old one.
        config.resumption = rustls::client::Resumption::disabled();
        Arc::new(config)
    }
}

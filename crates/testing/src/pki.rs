//! The certificates and keys for one run of kube-apiserver. They are in the scratch folder and are
//! deleted with it.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A CA and the certificates that it signed, as PEM.
pub(crate) struct Pki {
    pub(crate) ca: String,
    pub(crate) server_cert: String,
    pub(crate) server_key: String,
    /// Signs the tokens of ServiceAccounts.
    pub(crate) accounts_key: String,
    /// Verifies the tokens of ServiceAccounts.
    pub(crate) accounts_public: String,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "bowline test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_key = key();
        let ca = params.self_signed(&ca_key).expect("sign the CA");
        let issuer = Issuer::from_params(&params, ca_key);

        let names = ["127.0.0.1", "10.0.0.1", "localhost", "kubernetes.default.svc"];
        let mut params =
            CertificateParams::new(names.map(str::to_owned)).expect("these are valid names");
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = key();
        let server = params.signed_by(&server_key, &issuer).expect("sign the server");
        let accounts = key();
        Self {
            ca: ca.pem(),
            server_cert: server.pem(),
            server_key: server_key.serialize_pem(),
            accounts_key: accounts.serialize_pem(),
            accounts_public: accounts.public_key_pem(),
        }
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("generate a key")
}

//! Tests of certificates from users' Secrets, and into and out of Bowline's own Secrets.

use super::*;
use bowline_core::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// A chain and a key as PEM.
fn pair() -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

fn secret(type_: &str, data: &[(&str, &[u8])]) -> Secret {
    let data = data.iter().map(|(name, bytes)| (name.to_string(), ByteString(bytes.to_vec())));
    Secret {
        metadata: ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("cert".into()),
            ..ObjectMeta::default()
        },
        type_: Some(type_.into()),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

fn tls(chain: &[u8], key: &[u8]) -> Secret {
    secret(TYPE_TLS, &[("tls.crt", chain), ("tls.key", key)])
}

/// Why a Secret is refused.
fn refused(secret: &Secret) -> String {
    let (read, certificate) = tls_secret(secret);
    assert_eq!(certificate, None);
    let problem = read.certificate.unwrap_err();
    assert_eq!(problem.reason, Reason::BadCertificate);
    problem.message.to_string()
}

#[test]
fn a_chain_and_its_key_are_read_and_found_by_their_hash() {
    let (chain, key) = pair();
    let (read, certificate) = tls_secret(&tls(chain.as_bytes(), key.as_bytes()));
    let content = read.certificate.clone().unwrap();
    assert_eq!(content.hash.len(), 64);
    let key_of = ObjectKey::new("shop", "cert");
    assert_eq!(read, objects::TlsSecret { key: key_of, certificate: Ok(content.clone()) });
    let unix = |text: &str| text.replace("\r\n", "\n");
    let expected = Certificate { chain: unix(&chain).into(), key: unix(&key).into() };
    assert_eq!(content.size, expected.chain.len() + expected.key.len());
    assert_eq!(certificate, Some(Arc::new(expected)));
}

#[test]
fn what_stands_around_the_pem_changes_nothing_and_goes_nowhere() {
    let (chain, key) = pair();
    let around = format!("subject=hostile\r\n{}\nbind :80\n", chain.replace('\n', "\r\n"));
    let plain = tls_secret(&tls(chain.as_bytes(), key.as_bytes()));
    assert_eq!(tls_secret(&tls(around.as_bytes(), key.as_bytes())), plain);
}

#[test]
fn another_chain_or_key_is_another_hash() {
    let (one, two) = (pair(), pair());
    let hash = |chain: &str, key: &str| {
        tls_secret(&tls(chain.as_bytes(), key.as_bytes())).0.certificate.unwrap()
    };
    assert_ne!(hash(&one.0, &one.1), hash(&two.0, &two.1));
    assert_ne!(hash(&one.0, &one.1), hash(&format!("{}{}", one.0, two.0), &one.1));
}

#[test]
fn what_cannot_be_used_is_refused_with_what_is_wrong() {
    let (chain, key) = pair();
    let other = pair();
    let (chain, key) = (chain.as_bytes(), key.as_bytes());
    let garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let rest = [chain, garbage].concat();
    let unknown = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let no_key = "tls.key has no readable section BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY or BEGIN \
                  EC PRIVATE KEY";
    let cut = &chain[..chain.len() / 2];
    let cases = [
        (secret("Opaque", &[]), "the Secret is of type \"Opaque\", not kubernetes.io/tls"),
        (secret(TYPE_TLS, &[("tls.key", key)]), "tls.crt is missing"),
        (tls(b"", key), "tls.crt is empty"),
        (tls(chain, b""), "tls.key is empty"),
        (tls(b"hello", key), "tls.crt has no section BEGIN CERTIFICATE"),
        (tls(&[0xff, 0xfe, 0], key), "tls.crt has no section BEGIN CERTIFICATE"),
        (tls(cut, key), "tls.crt is not PEM: a section does not end or is not base64"),
        (tls(key, chain), "tls.crt has no section BEGIN CERTIFICATE"),
        (tls(chain, b"hello"), no_key),
        (tls(chain, chain), no_key),
        (tls(chain, unknown), "tls.key is not an RSA, ECDSA (P-256, P-384) or Ed25519 key"),
        (tls(garbage, key), "the first certificate of tls.crt cannot be read as X.509"),
        (tls(&rest, key), "certificate 2 of tls.crt cannot be read as X.509"),
        (
            tls(chain, other.1.as_bytes()),
            "tls.key does not belong to the first certificate of tls.crt",
        ),
    ];
    for (secret, why) in cases {
        assert_eq!(refused(&secret), why);
    }
    assert_eq!(
        refused(&Secret::default()),
        "the Secret is of type \"Opaque\", not kubernetes.io/tls"
    );
}

#[test]
fn what_is_put_into_a_secret_of_ours_comes_out_again() {
    let mut certificates: Vec<_> = (0..3)
        .map(|_| {
            let (chain, key) = pair();
            let (read, certificate) = tls_secret(&tls(chain.as_bytes(), key.as_bytes()));
            (read.certificate.unwrap().hash, certificate.unwrap())
        })
        .collect();
    certificates.sort_by(|a, b| a.0.cmp(&b.0));
    let ours = Secret {
        data: Some(certificates_data(certificates.iter().map(|(hash, cert)| (hash, cert)))),
        ..Secret::default()
    };
    assert_eq!(super::certificates(&ours), certificates);
}

#[test]
fn an_entry_that_is_not_what_its_hash_says_is_left_out() {
    let (chain, key) = pair();
    let (read, certificate) = tls_secret(&tls(chain.as_bytes(), key.as_bytes()));
    let (hash, certificate) = (read.certificate.unwrap().hash, certificate.unwrap());
    let mut data = certificates_data([(&hash, &certificate)]);
    data.insert("0".repeat(64), data[&*hash].clone());
    data.insert("x".into(), ByteString(b"nothing".to_vec()));
    let ours = Secret { data: Some(data), ..Secret::default() };
    assert_eq!(certificates(&ours), [(hash, certificate)]);
}

#[test]
fn a_chain_is_bounded_so_that_one_tenant_cannot_fill_what_all_share() {
    let (chain, key) = pair();
    let times = |n: usize| tls(chain.repeat(n).as_bytes(), key.as_bytes());
    assert!(tls_secret(&times(MOST_CERTIFICATES)).1.is_some());
    let bound = "tls.crt is too large: a chain has at most 20 certificates and 65536 bytes";
    assert_eq!(refused(&times(MOST_CERTIFICATES + 1)), bound);
    let mut large = chain;
    pem(&mut large, "CERTIFICATE", &vec![0; LONGEST_CHAIN]);
    assert_eq!(refused(&tls(large.as_bytes(), key.as_bytes())), bound);
}

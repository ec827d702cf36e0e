//! Checks whether certificate and key of a TLS Secret belong together, in the words of Go's TLS
//! library. The result is only a warning: the Secret is stored in any case. The rules of Secrets call
//! it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

/// What is wrong with a certificate chain and its key, both PEM. None: no error is known.
pub(super) fn check_pair(certificate: &[u8], key: &[u8]) -> Option<String> {
    let blocks = pem_blocks(certificate);
    let chain: Vec<CertificateDer<'static>> = blocks
        .iter()
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| CertificateDer::from(block.bytes.clone()))
        .collect();
    if chain.is_empty() {
        return Some(match &blocks[..] {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if one.label.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private \
                 key; PEM inputs may have been switched"
                    .to_owned()
            }
            skipped => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM \
                 blocks of the following types: {}",
                labels(skipped)
            ),
        });
    }
    let blocks = pem_blocks(key);
    let is_key = |label: &str| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let Some(found) = blocks.iter().find(|block| is_key(&block.label)) else {
        return Some(match &blocks[..] {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [one] if one.label == "CERTIFICATE" => {
                "tls: found a certificate rather than a key in the PEM for the private key"
                    .to_owned()
            }
            skipped => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after \
                 skipping PEM blocks of the following types: {}",
                labels(skipped)
            ),
        });
    };
    let Ok(key) = PrivateKeyDer::try_from(found.bytes.clone()) else {
        return Some("tls: failed to parse private key".to_owned());
    };
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Some("tls: private key does not match public key".to_owned())
        }
        Err(Error::InvalidCertificate(_)) => Some("x509: malformed certificate".to_owned()),
        // Go knows more kinds of keys; an unknown kind causes no warning.
        Err(_) | Ok(_) => None,
    }
}

struct Block {
    label: String,
    bytes: Vec<u8>,
}

fn labels(blocks: &[Block]) -> String {
    let labels: Vec<&str> = blocks.iter().map(|block| block.label.as_str()).collect();
    format!("[{}]", labels.join(" "))
}

/// The complete blocks of a PEM text. Text between them is a comment.
fn pem_blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines().map(str::trim_end) {
        let marker = |kind: &str| {
            line.strip_prefix("-----")?.strip_prefix(kind)?.strip_prefix(' ')?.strip_suffix("-----")
        };
        if let Some(label) = marker("BEGIN") {
            open = Some((label.to_owned(), String::new()));
        } else if let Some(label) = marker("END") {
            if let Some((begun, body)) = open.take()
                && begun == label
                && let Ok(bytes) = BASE64.decode(body)
            {
                blocks.push(Block { label: begun, bytes });
            }
        } else if let Some((_, body)) = &mut open
            // Skips headers such as `Proc-Type: 4,ENCRYPTED`.
            && !line.contains(':')
        {
            body.push_str(line.trim());
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["shop.example".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn said(certificate: &str, key: &str) -> String {
        check_pair(certificate.as_bytes(), key.as_bytes()).unwrap_or_default()
    }

    #[test]
    fn halves_that_belong_together_are_not_warned_of() {
        let (certificate, key) = pair();
        assert_eq!(said(&certificate, &key), "");
        assert_eq!(said(&format!("a comment\r\n{certificate}"), &key.replace('\n', "\r\n")), "");
    }

    #[test]
    fn halves_that_do_not_belong_together_are_told_apart() {
        let (certificate, key) = pair();
        let (_, other) = pair();
        assert_eq!(said(&certificate, &other), "tls: private key does not match public key");
        assert_eq!(said("x", &key), "tls: failed to find any PEM data in certificate input");
        assert_eq!(said(&certificate, ""), "tls: failed to find any PEM data in key input");
        assert!(said(&key, &certificate).ends_with("PEM inputs may have been switched"));
        assert_eq!(
            said(&certificate, &certificate),
            "tls: found a certificate rather than a key in the PEM for the private key"
        );
        let odd = "-----BEGIN ODD-----\nAAAA\n-----END ODD-----\n";
        assert!(said(odd, &key).ends_with("following types: [ODD]"));
        assert!(said(&certificate, &odd.repeat(2)).ends_with("following types: [ODD ODD]"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(said(broken, &key), "x509: malformed certificate");
        let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(said(&certificate, broken), "tls: failed to parse private key");
        assert_eq!(said("-----BEGIN CERTIFICATE-----\nAAAA", &key), said("", &key));
    }
}

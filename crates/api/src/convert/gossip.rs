//! The key that speakers have in common, into and out of Bowline's own Secret that keeps it. No part of it ever occurs in
//! a message.

use crate::names;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeMap;

/// The fewest bytes of a key.
const SHORTEST: usize = 16;

/// The key in a Secret. None: it is of another type, or has no key that is long enough.
pub fn gossip_key(secret: &Secret) -> Option<Vec<u8>> {
    if secret.type_.as_deref() != Some(names::SECRET_TYPE_GOSSIP) {
        return None;
    }
    let ByteString(bytes) = secret.data.as_ref()?.get(names::GOSSIP_ENTRY)?;
    Some(bytes.clone()).filter(|bytes| bytes.len() >= SHORTEST)
}

/// The data of the Secret with this key.
pub fn gossip_key_data(key: &[u8]) -> BTreeMap<String, ByteString> {
    [(names::GOSSIP_ENTRY.to_owned(), ByteString(key.to_vec()))].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        let of = |type_: &str, key: &[u8]| {
            let (type_, data) = (Some(type_.to_owned()), Some(gossip_key_data(key)));
            gossip_key(&Secret { type_, data, ..Secret::default() })
        };
        assert_eq!(of(names::SECRET_TYPE_GOSSIP, &[7; 32]), Some(vec![7; 32]));
        assert_eq!(of("Opaque", &[7; 32]), None);
        assert_eq!(of(names::SECRET_TYPE_GOSSIP, &[7; 15]), None);
    }
}

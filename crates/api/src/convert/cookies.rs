//! The secret that signs persistence cookies, into and out of Bowline's own Secret that keeps it for all agents of a
//! load balancer. No part of it ever occurs in a message.

use crate::names;
use bowline_core::update::CookieSecret;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeMap;

/// The key of the entry in the Secret's data.
const ENTRY: &str = "secret";

/// The cookie secret in one of Bowline's own Secrets. None: an unauthorized writer made or changed the Secret.
pub fn cookie_secret(secret: &Secret) -> Option<CookieSecret> {
    if secret.type_.as_deref() != Some(names::SECRET_TYPE_COOKIES) {
        return None;
    }
    let ByteString(bytes) = secret.data.as_ref()?.get(ENTRY)?;
    bytes.as_slice().try_into().ok().map(CookieSecret)
}

/// The data of Bowline's own Secret with this cookie secret.
pub fn cookie_secret_data(secret: &CookieSecret) -> BTreeMap<String, ByteString> {
    [(ENTRY.to_owned(), ByteString(secret.0.to_vec()))].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(type_: &str, data: BTreeMap<String, ByteString>) -> Option<CookieSecret> {
        let (type_, data) = (Some(type_.to_owned()), Some(data));
        cookie_secret(&Secret { type_, data, ..Secret::default() })
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        let secret = CookieSecret([7; 32]);
        let data = cookie_secret_data(&secret);
        assert_eq!(of(names::SECRET_TYPE_COOKIES, data.clone()), Some(secret));
        assert_eq!(of("Opaque", data), None);
        let short = [(ENTRY.to_owned(), ByteString(vec![7; 31]))].into();
        assert_eq!(of(names::SECRET_TYPE_COOKIES, short), None);
        assert_eq!(of(names::SECRET_TYPE_COOKIES, BTreeMap::new()), None);
    }
}

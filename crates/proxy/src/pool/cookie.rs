//! The cookie that ties a client to a member: an opaque id of the member, its expiry, and a
//! signature over both. It reveals nothing about the member, and a cookie that was not signed with
//! the proxy's key for this pool is ignored. The pool calls it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The id of a member in cookies: a keyed hash of pool and address.
pub(super) type MemberId = [u8; 16];

const ENDS: usize = 8;
const SIGNATURE: usize = 16;
const LENGTH: usize = 16 + ENDS + SIGNATURE;

/// Signs cookies. Proxies that share a key accept each other's cookies.
#[derive(Clone)]
pub struct CookieKey {
    mac: Hmac<Sha256>,
}

impl CookieKey {
    /// A key from secret bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        let mut block = [0; 64];
        block[..32].copy_from_slice(&secret);
        Self { mac: Hmac::new(&block.into()) }
    }

    /// A key that no other process knows.
    pub fn random() -> Self {
        let mut secret = [0; 32];
        if getrandom::fill(&mut secret).is_err() {
            // The standard library has its own source, and panics rather than be predictable.
            for (i, chunk) in secret.chunks_exact_mut(8).enumerate() {
                chunk.copy_from_slice(&RandomState::new().hash_one(i).to_ne_bytes());
            }
        }
        Self::new(secret)
    }

    /// The key of this process, which no other process knows.
    pub(crate) fn of_process() -> Arc<Self> {
        static KEY: OnceLock<Arc<CookieKey>> = OnceLock::new();
        KEY.get_or_init(|| Arc::new(Self::random())).clone()
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        for part in parts {
            // The length before each part makes different lists of parts different.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }

    fn short<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        let full = self.over(parts).finalize().into_bytes();
        std::array::from_fn(|i| full[i])
    }

    /// The name of the pool's cookie: different for each pool, so that two pools on one host do not
    /// overwrite each other's cookies.
    pub(super) fn cookie_name(&self, pool: &str) -> String {
        let id: [u8; 4] = self.short(&[b"name", pool.as_bytes()]);
        id.iter().fold(String::from("bowline-"), |name, byte| format!("{name}{byte:02x}"))
    }

    pub(super) fn member_id(&self, pool: &str, member: SocketAddr) -> MemberId {
        self.short(&[b"member", pool.as_bytes(), member.to_string().as_bytes()])
    }

    /// A cookie that names the member until `ends`, in seconds since 1970.
    pub(super) fn sign(&self, pool: &str, member: &MemberId, ends: u64) -> String {
        let ends = ends.to_be_bytes();
        let signature: [u8; SIGNATURE] = self.short(&[b"cookie", pool.as_bytes(), member, &ends]);
        URL_SAFE_NO_PAD.encode([member.as_slice(), &ends, &signature].concat())
    }

    /// The member that a cookie names, and its expiry, if it is genuine and not expired.
    pub(super) fn read(&self, pool: &str, cookie: &str, now: u64) -> Option<(MemberId, u64)> {
        let mut bytes = [0; LENGTH];
        let length = URL_SAFE_NO_PAD.decode_slice(cookie, &mut bytes).ok()?;
        if length != LENGTH {
            return None;
        }
        let (signed, signature) = bytes.split_at(LENGTH - SIGNATURE);
        let (member, ends) = signed.split_at(LENGTH - SIGNATURE - ENDS);
        self.over(&[b"cookie", pool.as_bytes(), member, ends])
            .verify_truncated_left(signature)
            .ok()?;
        let ends = u64::from_be_bytes(ends.try_into().ok()?);
        (now < ends).then_some((member.try_into().ok()?, ends))
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEMBER: MemberId = *b"0123456789abcdef";

    fn key(secret: &str) -> CookieKey {
        CookieKey::new([secret.len() as u8; 32])
    }

    #[test]
    fn a_cookie_is_good_until_it_ends() {
        let cookie = key("k").sign("pool", &MEMBER, 100);
        assert_eq!(key("k").read("pool", &cookie, 99), Some((MEMBER, 100)));
        assert_eq!(key("k").read("pool", &cookie, 100), None);
    }

    #[test]
    fn a_cookie_of_another_key_or_pool_is_none() {
        let cookie = key("k").sign("pool", &MEMBER, 100);
        assert_eq!(key("other").read("pool", &cookie, 1), None);
        assert_eq!(key("k").read("other", &cookie, 1), None);
    }

    #[test]
    fn a_member_has_another_name_in_each_pool_and_under_each_key() {
        let at = "10.0.0.1:80".parse().unwrap();
        let id = key("k").member_id("pool", at);
        assert_ne!(id, key("k").member_id("other", at));
        assert_ne!(id, key("other").member_id("pool", at));
        assert_eq!(id, key("k").member_id("pool", at));
    }

    proptest! {
        #[test]
        fn a_cookie_with_any_character_changed_is_none(
            at in 0usize..54, other in "[A-Za-z0-9_-]", ends: u64,
        ) {
            let cookie = key("k").sign("pool", &MEMBER, ends);
            let mut forged = cookie.clone();
            forged.replace_range(at..=at, &other);
            if forged != cookie {
                prop_assert_eq!(key("k").read("pool", &forged, 0), None);
            }
        }

        #[test]
        fn no_text_is_taken_for_a_cookie(text in "\\PC{0,80}") {
            prop_assert_eq!(key("k").read("pool", &text, 0), None);
        }
    }
}

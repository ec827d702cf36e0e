//! Identifies the caller of a request: by a bearer token, compared in constant time, or as the
//! administrator if the router is used inside the process. It does not decide what a caller may do;
//! `verbs::review` does.

use crate::error::ApiError;
use crate::verbs::Identity;
use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// How callers are identified.
#[derive(Clone)]
pub enum Access {
    /// Every caller is the administrator: for a router that no socket serves.
    Open,
    /// Bearer tokens.
    Tokens {
        /// The token that may do everything.
        admin: String,
        /// The token that may read everything but Secrets.
        read_only: String,
    },
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Tokens { .. } => "Tokens",
        })
    }
}

impl Access {
    /// The identity of a request's caller, or 401.
    pub fn identify(&self, headers: &HeaderMap) -> Result<Identity, ApiError> {
        let Self::Tokens { admin, read_only } = self else { return Ok(Identity::Admin) };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.strip_prefix("Bearer "))
            .unwrap_or_default()
            .trim();
        let impersonates = headers.keys().any(|name| name.as_str().starts_with("impersonate-"));
        let is_admin = given.as_bytes().ct_eq(admin.as_bytes());
        let is_reader = given.as_bytes().ct_eq(read_only.as_bytes());
        let identity = if bool::from(is_admin) {
            Identity::Admin
        } else if bool::from(is_reader) {
            Identity::ReadOnly
        } else {
            return Err(ApiError::new(401, "Unauthorized", "Unauthorized"));
        };
        // Answering such a request with the caller's own rights would be wrong.
        if impersonates { Err(ApiError::not_implemented("impersonation")) } else { Ok(identity) }
    }
}

/// A new random token of 256 bits.
pub fn new_token() -> Result<String, ApiError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(ApiError::internal)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(access: &Access, authorization: Option<&str>) -> Result<Identity, u16> {
        let mut headers = HeaderMap::new();
        if let Some(text) = authorization {
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
        }
        access.identify(&headers).map_err(|error| error.code)
    }

    #[test]
    fn who_wants_to_be_somebody_else_is_refused_by_name() {
        let access = Access::Tokens { admin: "aaaa".into(), read_only: "bbbb".into() };
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Bearer aaaa".parse().unwrap());
        headers.insert("Impersonate-User", "bob".parse().unwrap());
        let error = access.identify(&headers).unwrap_err();
        assert_eq!(error.code, 501);
        assert!(error.message.contains("impersonation"), "{error}");
    }

    #[test]
    fn each_token_is_somebody_and_everything_else_is_nobody() {
        let access = Access::Tokens { admin: "aaaa".into(), read_only: "bbbb".into() };
        assert_eq!(ask(&access, Some("Bearer aaaa")), Ok(Identity::Admin));
        assert_eq!(ask(&access, Some("Bearer bbbb")), Ok(Identity::ReadOnly));
        for wrong in
            [None, Some(""), Some("Bearer "), Some("aaaa"), Some("Bearer aaa"), Some("Basic aaaa")]
        {
            assert_eq!(ask(&access, wrong), Err(401), "{wrong:?}");
        }
    }
}

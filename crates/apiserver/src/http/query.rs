//! Parses the query parameters of the Kubernetes API into types, once. An invalid value is refused; a
//! parameter with an effect that this server does not implement is refused by name. It does no I/O;
//! the HTTP shell calls it.

use super::target::percent_decode;
use crate::error::{ApiError, FieldError};
use serde_json::json;
use std::num::{IntErrorKind, ParseIntError};

/// A year. A longer timeout means no end.
pub const LONGEST_TIMEOUT: u64 = 365 * 24 * 60 * 60;

/// How strictly unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and send `Warning` headers.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// At least as new as the given version.
    NotOlderThan,
    /// Exactly the given version.
    Exact,
}

/// All query parameters that a verb reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `labelSelector`, unparsed.
    pub label_selector: String,
    /// `fieldSelector`, unparsed.
    pub field_selector: String,
    /// `limit`. 0 or negative: no limit.
    pub limit: usize,
    /// `continue`.
    pub continue_token: String,
    /// `resourceVersion`, unparsed: empty, "0" and numbers mean different things.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub version_match: Option<VersionMatch>,
    /// `watch`.
    pub watch: bool,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
    /// `timeoutSeconds`, at most [`LONGEST_TIMEOUT`].
    pub timeout_seconds: Option<u64>,
    /// `fieldValidation`.
    pub field_validation: FieldValidation,
    /// `propagationPolicy`.
    pub propagation_policy: Option<String>,
    /// `orphanDependents`.
    pub orphan_dependents: Option<bool>,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `includeObject` of a Table request.
    pub include_object: String,
}

impl Query {
    /// Reads the query string of a request.
    pub fn parse(raw: &str) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (decode(key), decode(value)) else {
                return Err(ApiError::bad_request(format!("invalid query parameter {pair:?}")));
            };
            query.set(&key, value)?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), ApiError> {
        match key {
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            "limit" => self.limit = usize::try_from(number(&value)?).unwrap_or(0),
            "continue" => self.continue_token = value,
            "resourceVersion" => self.resource_version = value,
            "resourceVersionMatch" => self.version_match = version_match(&value)?,
            "watch" => self.watch = flag(&value),
            "allowWatchBookmarks" => self.bookmarks = flag(&value),
            "sendInitialEvents" => self.send_initial_events = Some(flag(&value)),
            "timeoutSeconds" => self.timeout_seconds = Some(timeout(&value)?),
            "fieldValidation" => self.field_validation = field_validation(&value)?,
            "propagationPolicy" => self.propagation_policy = Some(value),
            "orphanDependents" => self.orphan_dependents = Some(flag(&value)),
            "gracePeriodSeconds" => self.grace_period_seconds = Some(number(&value)?),
            "includeObject" => self.include_object = value,
            "dryRun" if !value.is_empty() => {
                return Err(ApiError::not_implemented("dry-run (query parameter dryRun)"));
            }
            "ignoreStoreReadErrorWithClusterBreakingPotential" if flag(&value) => {
                return Err(ApiError::not_implemented(
                    "unsafe deletion (query parameter ignoreStoreReadErrorWithClusterBreakingPotential)",
                ));
            }
            // `fieldManager` matters only for server-side apply, which is refused elsewhere. `pretty`,
            // `force`, `timeout` and cache busters change nothing that is stored.
            _ => {}
        }
        Ok(())
    }
}

fn decode(text: &str) -> Option<String> {
    percent_decode(&text.replace('+', " "))
}

/// Kubernetes reads every value but "0" and "false" as true, also the empty one: `?watch` is a watch.
fn flag(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "0" | "false")
}

/// A number as Go reads it, or kube-apiserver's error.
fn number(value: &str) -> Result<i64, ApiError> {
    value.parse().map_err(|error: ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        ApiError::bad_request(format!("strconv.ParseInt: parsing {value:?}: {why}"))
    })
}

/// kube-apiserver accepts a negative timeout and ends such a watch with an error; this server refuses
/// it.
fn timeout(value: &str) -> Result<u64, ApiError> {
    let seconds = number(value)?;
    u64::try_from(seconds).map(|seconds| seconds.min(LONGEST_TIMEOUT)).map_err(|_| {
        ApiError::bad_request(format!("invalid value {value:?} for query parameter timeoutSeconds"))
    })
}

fn version_match(value: &str) -> Result<Option<VersionMatch>, ApiError> {
    match value {
        "" => Ok(None),
        "NotOlderThan" => Ok(Some(VersionMatch::NotOlderThan)),
        "Exact" => Ok(Some(VersionMatch::Exact)),
        other => {
            let error = FieldError::not_supported(
                "resourceVersionMatch",
                &json!(other),
                &["Exact", "NotOlderThan", ""],
            );
            Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]))
        }
    }
}

fn field_validation(value: &str) -> Result<FieldValidation, ApiError> {
    match value {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Ignore" => Ok(FieldValidation::Ignore),
        "Strict" => Ok(FieldValidation::Strict),
        other => {
            let error = FieldError::not_supported(
                "fieldValidation",
                &json!(other),
                &["", "Ignore", "Strict", "Warn"],
            );
            Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", &[error]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_arrive_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+(d)&watch=1&limit=5").unwrap();
        assert_eq!(query.label_selector, "a=b,c in (d)");
        assert!(query.watch);
        assert_eq!(query.limit, 5);
    }

    #[test]
    fn dry_run_is_refused_by_name() {
        let error = Query::parse("dryRun=All").unwrap_err();
        assert_eq!(error.code, 501);
        assert!(error.message.contains("dry-run"), "{error}");
    }

    #[test]
    fn a_number_that_is_none_is_refused() {
        for (query, why) in [
            ("limit=ten", "strconv.ParseInt: parsing \"ten\": invalid syntax"),
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            (
                "limit=99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
            (
                "timeoutSeconds=18446744073709551615",
                "strconv.ParseInt: parsing \"18446744073709551615\": value out of range",
            ),
            (
                "gracePeriodSeconds=-9223372036854775809",
                "strconv.ParseInt: parsing \"-9223372036854775809\": value out of range",
            ),
            ("timeoutSeconds=-1", "invalid value \"-1\" for query parameter timeoutSeconds"),
        ] {
            let error = Query::parse(query).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (400, why), "{query}");
        }
    }

    #[test]
    fn extreme_numbers_are_brought_within_reason() {
        let query = |text: &str| Query::parse(text).unwrap();
        assert_eq!(query("limit=-9223372036854775808").limit, 0);
        assert_eq!(query("limit=9223372036854775807").limit, 9_223_372_036_854_775_807);
        let longest = query("timeoutSeconds=9223372036854775807").timeout_seconds;
        assert_eq!(longest, Some(LONGEST_TIMEOUT));
    }

    #[test]
    fn a_flag_is_set_unless_it_says_no() {
        for (query, expected) in [
            ("watch", true),
            ("watch=", true),
            ("watch=yes", true),
            ("watch=0", false),
            ("watch=False", false),
            ("", false),
        ] {
            assert_eq!(Query::parse(query).unwrap().watch, expected, "{query}");
        }
    }

    #[test]
    fn unsafe_deletion_is_refused_by_name() {
        let name = "ignoreStoreReadErrorWithClusterBreakingPotential";
        let error = Query::parse(&format!("{name}=true")).unwrap_err();
        assert_eq!(error.code, 501);
        assert!(error.message.contains(name), "{error}");
        assert!(Query::parse(&format!("{name}=false")).is_ok());
    }
}

//! LIST: selectors, pages of one snapshot, and the meaning of resource versions. The HTTP shell and
//! deletecollection call it.

use crate::error::{ApiError, Cause, FieldError};
use crate::http::query::{Query, VersionMatch};
use crate::kind::Kind;
use crate::selector::{FieldSelector, LabelSelector};
use crate::server::Server;
use crate::store::{Key, ListQuery};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Parsed selectors, checked for the kind.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub(super) labels: Option<LabelSelector>,
    pub(super) fields: Option<FieldSelector>,
}

/// What to list, and at which revision.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Which objects to list.
    pub selection: Selection,
    limit: Option<usize>,
    after: Option<(String, String)>,
    /// The exact revision to show.
    at: Option<u64>,
    /// The revision that the store must have reached.
    not_older_than: u64,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The revision of the list.
    pub revision: u64,
    /// Objects in the stored version, ordered by namespace and name.
    pub items: Vec<(Key, Bytes)>,
    /// The token for the next page.
    pub continue_token: Option<String>,
    /// How many objects follow, if known.
    pub remaining: Option<usize>,
}

/// How long a list waits for a revision that the store has not reached.
const PATIENCE: Duration = Duration::from_secs(3);

impl Selection {
    /// Reads the selectors of a query.
    pub fn parse(kind: &Kind, query: &Query) -> Result<Self, ApiError> {
        let labels = match query.label_selector.as_str() {
            "" => None,
            text => Some(LabelSelector::parse(text).map_err(ApiError::bad_request)?),
        };
        let fields = match query.field_selector.as_str() {
            "" => None,
            text => {
                let selector = FieldSelector::parse(text).map_err(ApiError::bad_request)?;
                check_fields(kind, &selector).map_err(ApiError::bad_request)?;
                Some(selector)
            }
        };
        Ok(Self { labels, fields })
    }

    /// Whether all objects are selected.
    pub fn everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether an object in the stored version is selected.
    pub fn matches(&self, kind: &Kind, bytes: &[u8]) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches_bytes(bytes))
            && self.fields.as_ref().is_none_or(|fields| {
                serde_json::from_slice::<Value>(bytes).is_ok_and(|mut object| {
                    kind.serve(&mut object);
                    fields
                        .matches_with(&object, |field| kind.rules.selectable_value(&object, field))
                })
            })
    }
}

/// Checks that the kind supports every field of the selector.
fn check_fields(kind: &Kind, selector: &FieldSelector) -> Result<(), String> {
    if kind.selectable.is_empty() && kind.strategic && kind.namespaced {
        return selector.check_metadata_only();
    }
    let mut allowed = vec!["metadata.name"];
    if kind.namespaced {
        allowed.push("metadata.namespace");
    }
    allowed.extend(kind.selectable.iter().map(String::as_str));
    selector.check(&allowed)
}

impl ListOptions {
    /// All objects of a selection, as they are now.
    pub fn now(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// Reads the parameters of a list.
    pub fn parse(kind: &Kind, query: &Query) -> Result<Self, ApiError> {
        let selection = Selection::parse(kind, query)?;
        let invalid =
            |errors: &[FieldError]| ApiError::invalid("meta.k8s.io", "ListOptions", "", errors);
        let wrong = list_errors(query);
        if !wrong.is_empty() {
            return Err(invalid(&wrong));
        }
        let limit = (query.limit > 0).then_some(query.limit);
        if !query.continue_token.is_empty() {
            if !query.resource_version.is_empty() && query.resource_version != "0" {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let (at, after) = read_token(&query.continue_token).map_err(|why| {
                ApiError::bad_request(format!(
                    "invalid continue token: continue key is not valid: {why}"
                ))
            })?;
            return Ok(Self { selection, limit, after: Some(after), at, not_older_than: 0 });
        }
        let version = resource_version(&query.resource_version)
            .map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))?;
        let exact = match query.version_match {
            Some(VersionMatch::Exact) => true,
            Some(VersionMatch::NotOlderThan) => false,
            None => limit.is_some() && version > 0,
        };
        Ok(Self {
            selection,
            limit,
            after: None,
            at: exact.then_some(version),
            not_older_than: version,
        })
    }
}

impl Server {
    /// LIST. An empty `namespace` means all namespaces.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Listed, ApiError> {
        self.wait_for(options.not_older_than).await?;
        let filter = |_: &Key, bytes: &[u8]| options.selection.matches(kind, bytes);
        let filtered = !options.selection.everything();
        let query = ListQuery {
            namespace: (!namespace.is_empty()).then_some(namespace),
            at: options.at,
            after: options.after.as_ref().map(|(ns, name)| (ns.as_str(), name.as_str())),
            limit: options.limit,
            filter: if filtered { Some(&filter) } else { None },
        };
        let page = self.store.list(&kind.storage, &query).map_err(|expired| {
            ApiError::expired(if options.after.is_some() {
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter."
                    .to_owned()
            } else {
                format!(
                    "The resourceVersion for the provided list is too old: {} ({})",
                    expired.requested, expired.oldest
                )
            })
        })?;
        let continue_token =
            page.next.as_ref().map(|(ns, name)| write_token(page.revision, ns, name));
        Ok(Listed {
            revision: page.revision,
            items: page.items.into_iter().map(|(key, entry)| (key, entry.bytes)).collect(),
            remaining: page.remaining.filter(|_| continue_token.is_some()),
            continue_token,
        })
    }

    /// Waits for the version of a GET, as a list does.
    pub async fn wait_to_get(&self, version: &str) -> Result<(), ApiError> {
        let revision = resource_version(version).map_err(|why| ApiError::new(500, "", why))?;
        self.wait_for(revision).await
    }

    /// Waits for a revision for a short time; 504 if it is not reached.
    pub(super) async fn wait_for(&self, revision: u64) -> Result<(), ApiError> {
        if self.store.revision() >= revision || self.store.reached(revision, PATIENCE).await {
            return Ok(());
        }
        let message =
            format!("Too large resource version: {revision}, current: {}", self.store.revision());
        let mut error = ApiError::new(504, "Timeout", format!("Timeout: {message}"));
        error.details.retry_after_seconds = 1;
        error.details.causes.push(Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        });
        Err(error)
    }
}

/// The errors of a list's parameters.
fn list_errors(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
    match (query.version_match, query.resource_version.as_str()) {
        (Some(_), _) if !query.continue_token.is_empty() => forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        ),
        (Some(_), "") => forbid(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (Some(VersionMatch::Exact), "0") => forbid(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        _ => {}
    }
    if query.send_initial_events.is_some() {
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    errors
}

/// The number in `resourceVersion`; absent is 0. The error is a text to be wrapped.
pub(super) fn resource_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid \
             syntax"
        )
    })
}

fn write_token(revision: u64, namespace: &str, name: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "ns": namespace, "name": name});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

type Position = (Option<u64>, (String, String));

fn read_token(text: &str) -> Result<Position, String> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| e.to_string())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    match (token["v"].as_str(), token["rv"].as_u64(), token["ns"].as_str(), token["name"].as_str())
    {
        (Some("meta.k8s.io/v1"), Some(revision), Some(namespace), Some(name)) => {
            Ok((Some(revision), (namespace.to_owned(), name.to_owned())))
        }
        _ => Err("server does not recognize this encoded version".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_comes_back_as_it_went_and_nonsense_is_refused() {
        let token = write_token(7, "ns", "a");
        assert_eq!(read_token(&token).unwrap(), (Some(7), ("ns".into(), "a".into())));
        for text in ["", "%", "bnVsbA", "e30", "////"] {
            assert!(read_token(text).is_err(), "{text:?}");
        }
    }
}

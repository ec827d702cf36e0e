//! Negotiates the form of an answer from the `Accept` header: JSON or YAML, as the object itself,
//! as a Table or as metadata only. It renders nothing; the HTTP shell calls it.

use crate::error::ApiError;

/// The shape of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    Object,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata or its List.
    Partial,
    /// `apidiscovery.k8s.io/v2` APIGroupDiscoveryList.
    Discovery,
}

/// The encoding of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// The negotiated form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The shape.
    pub form: Form,
    /// The encoding.
    pub encoding: Encoding,
}

const JSON: Accepted = Accepted { form: Form::Object, encoding: Encoding::Json };

/// The encoding of an error, for any form of answer.
pub fn encoding(header: Option<&str>) -> Encoding {
    let first = header.unwrap_or_default().split(',').find_map(|item| {
        match item.split(';').next().unwrap_or_default().trim() {
            "application/json" | "*/*" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            _ => None,
        }
    });
    first.unwrap_or(Encoding::Json)
}

/// The first alternative of an `Accept` header that this server supports. `discovery`: whether this
/// path has the aggregated form.
pub fn accepted(header: Option<&str>, discovery: bool) -> Result<Accepted, ApiError> {
    let Some(header) = header.filter(|text| !text.trim().is_empty()) else { return Ok(JSON) };
    header.split(',').find_map(|item| alternative(item, discovery)).ok_or_else(|| {
        let known = |item: &str| item.contains("json") || item.contains("yaml");
        let message = if header.split(',').any(known) {
            "only the following media types are accepted: application/json, application/yaml"
        } else {
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"
        };
        let error = ApiError::new(406, "NotAcceptable", message);
        if header.split(',').any(known) { error } else { error.generic() }
    })
}

fn alternative(item: &str, discovery: bool) -> Option<Accepted> {
    let mut parts = item.split(';').map(str::trim);
    let encoding = match parts.next()? {
        "application/json" | "*/*" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let (mut shape, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => shape = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            // Parameters such as `stream=watch`, `q=0.8` and `charset=utf-8` do not change the
            // form.
            _ => {}
        }
    }
    let form = match (shape, group, version) {
        ("", _, _) => Form::Object,
        ("Table", "meta.k8s.io", "v1") => Form::Table,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Form::Partial
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if discovery => Form::Discovery,
        _ => return None,
    };
    Some(Accepted { form, encoding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_made_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(accepted(Some(table), false).unwrap().form, Form::Table);
        let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json";
        assert_eq!(accepted(Some(old), false).unwrap(), JSON);
        let proto = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(accepted(Some(proto), false).unwrap(), JSON);
        assert_eq!(accepted(None, false).unwrap(), JSON);
        assert_eq!(accepted(Some("*/*"), false).unwrap(), JSON);
    }

    #[test]
    fn a_client_that_reads_only_protobuf_is_told_what_there_is() {
        let error = accepted(Some("application/vnd.kubernetes.protobuf"), false).unwrap_err();
        assert_eq!((error.code, error.reason), (406, "NotAcceptable"));
    }
}

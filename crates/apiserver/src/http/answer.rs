//! Renders answers: an object, a list, a Table, a watch or a Status, in the negotiated form. An object is
//! sent as its stored bytes if nothing in it has to change. It decides nothing; the HTTP shell calls it.

use super::negotiate::{Accepted, Encoding, Form};
use crate::error::ApiError;
use crate::kind::Kind;
use crate::meta;
use crate::table::{self, IncludeObject};
use crate::verbs::{Listed, Notice, WatchStream};
use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{DefaultHasher, Hasher as _};

/// The form of an answer for one kind.
pub(super) struct Answer<'a> {
    pub(super) kind: &'a Kind,
    pub(super) accept: Accepted,
    pub(super) include: &'a str,
}

/// The Status of an error.
pub(super) fn failure(error: &ApiError, encoding: Encoding) -> Response<Body> {
    if *error == ApiError::no_page() {
        return text(404, error.message.clone());
    }
    let accept = Accepted { form: Form::Object, encoding };
    let mut response = encoded(error.code, &error.status(), accept)
        .unwrap_or_else(|_| json(error.code, &error.status()));
    if error.details.retry_after_seconds > 0 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(error.details.retry_after_seconds));
    }
    response
}

/// A JSON answer.
pub(super) fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, Bytes::from(value.to_string()))
}

/// A JSON answer that is already encoded.
pub(super) fn bytes(code: u16, bytes: Bytes) -> Response<Body> {
    build(code, "application/json", Body::from(bytes))
}

/// A plain text answer.
pub(super) fn text(code: u16, text: impl Into<Body>) -> Response<Body> {
    build(code, "text/plain; charset=utf-8", text.into())
}

/// A value in the negotiated encoding.
pub(super) fn document(value: &Value, accept: Accepted) -> Result<Response<Body>, ApiError> {
    if accept.form == Form::Discovery {
        let body = Body::from(value.to_string());
        let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        return Ok(build(200, media, body));
    }
    encoded(200, value, accept)
}

fn encoded(code: u16, value: &Value, accept: Accepted) -> Result<Response<Body>, ApiError> {
    match accept.encoding {
        Encoding::Json => Ok(json(code, value)),
        Encoding::Yaml => {
            let text = crate::yaml::to_yaml(value).map_err(ApiError::internal)?;
            Ok(build(code, "application/yaml", Body::from(text)))
        }
    }
}

fn build(code: u16, media: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A short hash of a document, for caches only.
pub(super) fn hash(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016X}", hasher.finish())
}

/// If all warnings together are longer than this, each is cut to [`WARNING_RUNES`], as kube-apiserver
/// does.
const WARNINGS_RUNES: usize = 4096;
/// The length of each warning then.
const WARNING_RUNES: usize = 256;

/// Adds `Warning` headers: each text once, and in total no more than a client can read.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for text in shortened(warnings) {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn shortened(warnings: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut told: Vec<&String> = warnings.iter().filter(|text| !text.is_empty()).collect();
    told.retain(|text| seen.insert(*text));
    let runes = |text: &String| text.chars().count();
    if told.iter().map(|text| runes(text)).sum::<usize>() <= WARNINGS_RUNES {
        return told.into_iter().cloned().collect();
    }
    let mut written = 0;
    let cut = told.into_iter().map(|text| text.chars().take(WARNING_RUNES).collect::<String>());
    cut.take_while(|text| {
        let room = written < WARNINGS_RUNES;
        written += runes(text);
        room
    })
    .collect()
}

impl Answer<'_> {
    fn plain(&self) -> bool {
        self.accept == Accepted { form: Form::Object, encoding: Encoding::Json }
    }

    /// The object in the served version.
    fn value(&self, bytes: &[u8]) -> Result<Value, ApiError> {
        let mut value = serde_json::from_slice(bytes).map_err(ApiError::internal)?;
        self.kind.serve(&mut value);
        Ok(value)
    }

    fn include(&self) -> Result<IncludeObject, ApiError> {
        IncludeObject::parse(self.include).map_err(|_| {
            ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {:?}: must be \
                 'Metadata', 'Object', 'None', or empty",
                self.include
            ))
        })
    }

    /// One object.
    pub(super) fn object(
        &self,
        code: u16,
        stored: &Bytes,
        warnings: &[String],
    ) -> Result<Response<Body>, ApiError> {
        let mut response = if self.plain() && self.kind.serves_as_stored(stored) {
            bytes(code, stored.clone())
        } else {
            let value = self.value(stored)?;
            let version = value["metadata"]["resourceVersion"].clone();
            let shaped = match self.accept.form {
                Form::Table => self.table(&json!({"resourceVersion": version}), &[value])?,
                Form::Partial => table::partial(&value),
                Form::Object | Form::Discovery => value,
            };
            encoded(code, &shaped, self.accept)?
        };
        warn(&mut response, warnings);
        Ok(response)
    }

    /// The Status of a completed deletion.
    pub(super) fn deleted(&self, stored: &Bytes) -> Result<Response<Body>, ApiError> {
        let value = self.value(stored)?;
        let mut details = json!({
            "name": meta::name(&value), "kind": self.kind.plural, "uid": meta::uid(&value),
        });
        if !self.kind.group.is_empty() {
            details["group"] = json!(self.kind.group);
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details,
        });
        encoded(200, &status, self.accept)
    }

    /// A page of a list.
    pub(super) fn list(&self, listed: &Listed) -> Result<Response<Body>, ApiError> {
        let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
        match &listed.continue_token {
            Some(token) => metadata["continue"] = json!(token),
            // Lists of custom objects have an empty `continue` on their last page.
            None if !self.kind.strategic && self.accept.form == Form::Object => {
                metadata["continue"] = json!("");
            }
            None => {}
        }
        if let Some(remaining) = listed.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        self.items_with(&metadata, listed.items.iter().map(|(_, bytes)| bytes))
    }

    /// A list of these objects.
    pub(super) fn items(&self, revision: u64, items: &[Bytes]) -> Result<Response<Body>, ApiError> {
        self.items_with(&json!({"resourceVersion": revision.to_string()}), items.iter())
    }

    fn items_with<'b>(
        &self,
        metadata: &Value,
        items: impl Iterator<Item = &'b Bytes>,
    ) -> Result<Response<Body>, ApiError> {
        if self.plain() {
            return Ok(bytes(200, self.concatenated(metadata, items)?));
        }
        let values: Vec<Value> =
            items.map(|stored| self.value(stored)).collect::<Result<_, _>>()?;
        let shaped = match self.accept.form {
            Form::Table => self.table(metadata, &values)?,
            Form::Partial => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": values.iter().map(table::partial).collect::<Vec<_>>(),
            }),
            Form::Object | Form::Discovery => json!({
                "kind": self.kind.list_kind, "apiVersion": self.kind.api_version(),
                "metadata": metadata, "items": values,
            }),
        };
        encoded(200, &shaped, self.accept)
    }

    /// The list made by concatenating stored bytes, so that a large list is copied, not parsed.
    fn concatenated<'b>(
        &self,
        metadata: &Value,
        items: impl Iterator<Item = &'b Bytes>,
    ) -> Result<Bytes, ApiError> {
        let head = format!(
            "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{metadata},\"items\":[",
            self.kind.api_version(),
            self.kind.list_kind
        );
        let mut out = BytesMut::from(head.as_bytes());
        for (index, stored) in items.enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            if self.kind.serves_as_stored(stored) {
                out.put_slice(stored);
            } else {
                out.put_slice(self.value(stored)?.to_string().as_bytes());
            }
        }
        out.put_slice(b"]}");
        Ok(out.freeze())
    }

    fn table(&self, metadata: &Value, values: &[Value]) -> Result<Value, ApiError> {
        let objects: Vec<&Value> = values.iter().collect();
        let (columns, rows) =
            table::table(self.kind, &objects, self.include()?, jiff::Timestamp::now());
        Ok(json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        }))
    }

    /// A stream of watch events, one JSON document per line. It ends when the kind is `superseded`,
    /// because its objects then have another meaning; the client starts a new watch.
    pub(super) fn watch(
        &self,
        stream: WatchStream,
        superseded: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Response<Body>, ApiError> {
        if self.accept.encoding != Encoding::Json {
            return Err(ApiError::new(406, "NotAcceptable", "watches are served as JSON only"));
        }
        let frames = Frames {
            form: self.accept.form,
            include: self.include()?,
            columns_sent: false,
            stream,
        };
        let begin = (frames, Box::pin(superseded));
        let lines = futures::stream::unfold(begin, |(mut frames, mut superseded)| async move {
            let notice = tokio::select! {
                // Events before the end are sent first: the last objects were deleted before their kind.
                biased;
                notice = frames.stream.next() => notice?,
                () = &mut superseded => return None,
            };
            let line = frames.line(&notice);
            Some((Ok::<_, Infallible>(line), (frames, superseded)))
        });
        Ok(build(200, "application/json", Body::from_stream(lines)))
    }
}

/// Converts notices into lines.
struct Frames {
    form: Form,
    include: IncludeObject,
    columns_sent: bool,
    stream: WatchStream,
}

impl Frames {
    fn line(&mut self, notice: &Notice) -> Bytes {
        match notice {
            Notice::Change(type_, stored) => match self.object(stored) {
                Some(value) => event(type_, value.to_string().as_bytes()),
                None => event(type_, stored),
            },
            Notice::Bookmark(revision, ends_initial) => {
                let kind = self.stream.kind();
                let mut metadata = json!({"resourceVersion": revision.to_string()});
                if *ends_initial {
                    metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                }
                let mut object = json!({
                    "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata,
                });
                match self.form {
                    Form::Partial => object = table::partial(&object),
                    Form::Table => object = self.table(&object, metadata.clone()),
                    Form::Object | Form::Discovery => {}
                }
                event("BOOKMARK", object.to_string().as_bytes())
            }
            Notice::Error(error) => event("ERROR", error.status().to_string().as_bytes()),
        }
    }

    /// The object in its form. None: the stored bytes can be sent unchanged.
    fn object(&mut self, stored: &Bytes) -> Option<Value> {
        let kind = self.stream.kind();
        if self.form == Form::Object && kind.serves_as_stored(stored) {
            return None;
        }
        let mut value: Value = serde_json::from_slice(stored).ok()?;
        kind.serve(&mut value);
        Some(match self.form {
            Form::Partial => table::partial(&value),
            Form::Table => {
                let version = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                self.table(&value, version)
            }
            Form::Object | Form::Discovery => value,
        })
    }

    fn table(&mut self, value: &Value, metadata: Value) -> Value {
        let now = jiff::Timestamp::now();
        let (columns, rows) = table::table(self.stream.kind(), &[value], self.include, now);
        // Only the first event of a watch carries the columns.
        let columns =
            if std::mem::replace(&mut self.columns_sent, true) { Value::Null } else { columns };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }
}

fn event(type_: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(type_.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_fit_into_the_headers_that_clients_read() {
        let many: Vec<String> = (0..10_000).map(|i| format!("unknown field \"f{i}\"")).collect();
        let mut response = json(200, &json!({}));
        warn(&mut response, &many);
        let headers: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(headers[0], "299 - \"unknown field \\\"f0\\\"\"");
        let bytes: usize = headers.iter().map(|value| value.len()).sum();
        assert!((4096..8192).contains(&bytes), "{bytes}");
    }

    #[test]
    fn long_warnings_are_cut_only_when_they_are_too_long_together() {
        let long = "x".repeat(3000);
        assert_eq!(shortened(std::slice::from_ref(&long)), std::slice::from_ref(&long));
        let other = format!("{long}y");
        assert_eq!(shortened(&[long.clone(), other, long]), ["x".repeat(256), "x".repeat(256)]);
    }

    #[test]
    fn warnings_need_not_be_ascii_and_are_dropped_when_they_would_break_the_header() {
        let mut response = json(200, &json!({}));
        warn(&mut response, &["unknown field \"größe\"".to_owned(), "two\nlines".to_owned()]);
        let headers: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(headers, ["299 - \"unknown field \\\"größe\\\"\""]);
    }
}

//! The HTTP shell: reads requests, calls the verbs, and writes answers. It has no rules of the API; its
//! submodules parse paths, queries and `Accept` headers without I/O.

pub mod access;
pub mod answer;
pub mod negotiate;
pub mod query;
pub mod serve;
pub mod target;

use crate::decode::{self, BodyType};
use crate::discovery;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::openapi;
use crate::patch::Patch;
use crate::registry::{Document, Kinds};
use crate::server::Server;
use crate::verbs::{
    DeleteOptions, Deleted, Identity, Input, ListOptions, Part, Review, Scaled, WatchOptions,
    Written,
};
use access::Access;
use answer::Answer;
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Method, Request, Response, header};
use negotiate::{Accepted, Form, accepted};
use query::Query;
use serde_json::{Value, json};
use serve::Stranger;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use target::{ResourceTarget, Target};

/// The largest body that is read.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// The API as an axum router, to be served over a socket or used in the same process.
pub fn router(server: Arc<Server>, access: Access) -> axum::Router {
    let access = Arc::new(access);
    axum::Router::new().fallback(move |request: Request<Body>| {
        let (server, access) = (server.clone(), access.clone());
        async move { respond(&server, &access, request).await }
    })
}

async fn respond(server: &Arc<Server>, access: &Access, request: Request<Body>) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let header = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let encoding = negotiate::encoding(header);
    // A panic is a bug that affects one request only: other requests of the connection or process go
    // on.
    let routed = AssertUnwindSafe(route(server, access, request)).catch_unwind().await;
    let response = match routed {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => answer::failure(&error, encoding),
        Err(_) => {
            tracing::error!(%method, path, "a request panicked");
            answer::failure(
                &ApiError::internal("the request failed in a way it should not"),
                encoding,
            )
        }
    };
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    response
}

async fn route(
    server: &Arc<Server>,
    access: &Access,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let target = target::parse(request.uri().path());
    // Health and version need no token, as in a cluster with its default bindings.
    match target {
        Target::Health => {
            let verbose = request.uri().query().unwrap_or_default().contains("verbose");
            return health(server, request.uri().path().trim_start_matches('/'), verbose);
        }
        Target::Version => return Ok(answer::json(200, &version())),
        _ => {}
    }
    let identity = access.identify(request.headers())?;
    if let Some(stranger) = request.extensions().get::<Stranger>() {
        stranger.is_known();
    }
    let header = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let reading = *request.method() == Method::GET;
    let document = |value: Option<Value>, accept: Accepted| match value {
        Some(_) if !reading => Err(ApiError::method_not_allowed()),
        Some(value) => answer::document(&value, accept),
        None => Err(ApiError::no_such_path()),
    };
    let kinds = server.registry.kinds();
    match target {
        Target::CoreVersions | Target::Groups => {
            let core = target == Target::CoreVersions;
            let accept = accepted(header, true)?;
            let value = match (accept.form, core) {
                (Form::Discovery, _) => discovery::aggregated(&kinds, core),
                (_, true) => discovery::core_versions(&host(request.headers())),
                (_, false) => discovery::group_list(&kinds),
            };
            document(Some(value), accept)
        }
        Target::Group(group) => match discovery::group(&kinds, &group) {
            None => Err(ApiError::no_page()),
            found => document(found, accepted(header, false)?),
        },
        Target::GroupVersion { group, version } => {
            document(discovery::resources(&kinds, &group, &version), accepted(header, false)?)
        }
        Target::OpenApiIndex => {
            let documents = openapi::paths(&kinds)
                .into_iter()
                .filter_map(|path| Some((path.clone(), described(&kinds, &path)?.0)))
                .collect();
            document(Some(openapi::index(&documents)), accepted(header, false)?)
        }
        Target::OpenApi(path) => {
            let (_, bytes) = described(&kinds, &path).ok_or_else(ApiError::no_such_path)?;
            Ok(answer::bytes(200, bytes))
        }
        Target::Resource(target) => {
            Call::read(server, identity, target, request).await?.answer().await
        }
        Target::Health | Target::Version | Target::Nowhere => Err(ApiError::no_page()),
    }
}

/// Ready and alive while writes are taken. A store whose disk failed takes them again once the disk works.
fn health(server: &Server, check: &str, verbose: bool) -> Result<Response<Body>, ApiError> {
    if let Some(why) = server.store.failure() {
        return Ok(answer::text(500, format!("[-]store failed: {why}\n{check} check failed\n")));
    }
    let report = format!("[+]ping ok\n[+]store ok\n{check} check passed\n");
    Ok(answer::text(200, if verbose { report } else { "ok".to_owned() }))
}

fn host(headers: &HeaderMap) -> String {
    headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// An OpenAPI document of these kinds.
fn described(kinds: &Kinds, path: &str) -> Option<Document> {
    kinds.document(path, || {
        let document = openapi::document(kinds, path, crate::builtins::definitions::definitions())?;
        let bytes = Bytes::from(document.to_string());
        Some((answer::hash(&bytes), bytes))
    })
}

/// A parsed request for a collection, an object or a subresource.
struct Call<'a> {
    server: &'a Arc<Server>,
    identity: Identity,
    target: ResourceTarget,
    method: Method,
    query: Query,
    accept: Accepted,
    content_type: Option<String>,
    body: Bytes,
}

impl<'a> Call<'a> {
    async fn read(
        server: &'a Arc<Server>,
        identity: Identity,
        target: ResourceTarget,
        request: Request<Body>,
    ) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let text =
            |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let accept = accepted(text(header::ACCEPT).as_deref(), false)?;
        let mut query = Query::parse(parts.uri.query().unwrap_or_default())?;
        query.watch |= target.watch;
        let limited = http_body_util::Limited::new(body, MAX_BODY);
        let body = http_body_util::BodyExt::collect(limited)
            .await
            .map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    ApiError::too_large(MAX_BODY)
                } else {
                    ApiError::bad_request(format!("the body could not be read: {error}"))
                }
            })?
            .to_bytes();
        Ok(Self {
            server,
            identity,
            target,
            method: parts.method,
            query,
            accept,
            content_type: text(header::CONTENT_TYPE),
            body,
        })
    }

    async fn answer(self) -> Result<Response<Body>, ApiError> {
        let target = &self.target;
        if let Some(review) = Review::find(&target.group, &target.version, &target.resource) {
            return self.review(review);
        }
        let kind = self.server.kind(&target.group, &target.version, &target.resource)?;
        if !kind.namespaced && !target.namespace.is_empty() {
            return Err(ApiError::no_such_path());
        }
        if kind.namespaced && target.namespace.is_empty() && !target.name.is_empty() {
            return Err(ApiError::no_such_path());
        }
        let verb = self.verb();
        self.identity.check(verb, &kind, &target.namespace, &target.name, &target.subresource)?;
        if self.method == Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        match (target.name.as_str(), target.subresource.as_str()) {
            ("", _) => self.collection(&kind).await,
            (_, "") => self.object(&kind, Part::Object).await,
            (_, "status") if kind.status => self.object(&kind, Part::Status).await,
            (_, "finalize") if &*kind.storage == "namespaces" && self.method == Method::PUT => {
                self.object(&kind, Part::Finalize).await
            }
            (_, "scale") if kind.scale.is_some() => self.scale(&kind).await,
            (name, _) if !kind.strategic => {
                Err(ApiError::not_found(&kind.group, &kind.plural, name))
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn verb(&self) -> &'static str {
        match (&self.method, self.target.name.is_empty()) {
            (&Method::GET, _) if self.query.watch => "watch",
            (&Method::GET, true) => "list",
            (&Method::GET, false) => "get",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "deletecollection",
            (&Method::DELETE, false) => "delete",
            _ => "use this method on",
        }
    }

    fn review(&self, review: Review) -> Result<Response<Body>, ApiError> {
        if self.method != Method::POST || !self.target.name.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        let value = match BodyType::parse(self.content_type.as_deref())? {
            // Only the access review uses its body; the others ignore it.
            BodyType::Protobuf if review != Review::Access => {
                json!({"apiVersion": self.target.api_version()})
            }
            body => decode::body(body, "a review", &self.body)?.value,
        };
        let answered = review.answer(self.identity, value, &self.server.registry.kinds())?;
        Ok(answer::json(201, &answered))
    }

    fn input(&self, kind: &Kind) -> Result<Input, ApiError> {
        self.input_as(&kind.kind)
    }

    fn input_as(&self, kind: &str) -> Result<Input, ApiError> {
        let body = BodyType::parse(self.content_type.as_deref())?;
        let decoded = decode::body(body, kind, &self.body)?;
        Ok(Input { decoded, validation: self.query.field_validation })
    }

    fn answerer<'k>(&'k self, kind: &'k Kind) -> Answer<'k> {
        Answer { kind, accept: self.accept, include: &self.query.include_object }
    }

    async fn collection(&self, kind: &Arc<Kind>) -> Result<Response<Body>, ApiError> {
        let namespace = self.target.namespace.as_str();
        let answer = self.answerer(kind);
        match self.method {
            Method::GET if self.query.watch => {
                let options = WatchOptions::parse(kind, &self.query)?;
                let stream = self.server.watch(kind, namespace, options).await?;
                answer.watch(stream, self.server.registry.superseded(kind))
            }
            Method::GET => {
                let options = ListOptions::parse(kind, &self.query)?;
                let listed = self.server.list(kind, namespace, &options).await?;
                answer.list(&listed)
            }
            Method::POST if kind.namespaced && namespace.is_empty() => {
                Err(ApiError::method_not_allowed())
            }
            Method::POST => {
                let written = self.server.create(kind, namespace, self.input(kind)?).await?;
                self.written(kind, 201, written)
            }
            Method::DELETE
                if !kind.rules.deletes_collections() || kind.namespaced && namespace.is_empty() =>
            {
                Err(ApiError::method_not_allowed())
            }
            Method::DELETE => {
                let list = ListOptions::parse(kind, &self.query)?;
                let options = self.delete_options()?;
                let (revision, items) =
                    self.server.delete_collection(kind, namespace, &list, &options).await?;
                answer.items(revision, &items)
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    async fn object(&self, kind: &Arc<Kind>, part: Part) -> Result<Response<Body>, ApiError> {
        let (namespace, name) = (self.target.namespace.as_str(), self.target.name.as_str());
        let answer = self.answerer(kind);
        match self.method {
            Method::GET if self.query.watch => self.watch_one(kind).await,
            Method::GET => {
                self.server.wait_to_get(&self.query.resource_version).await?;
                let stored = self.server.read(kind, namespace, name)?;
                answer.object(200, &stored.bytes, &[])
            }
            Method::PUT => {
                let input = self.input(kind)?;
                let written = self.server.replace(kind, namespace, name, part, input).await?;
                self.written(kind, 200, written)
            }
            Method::PATCH => {
                let patch = self.patch(kind)?;
                let validation = self.query.field_validation;
                let written =
                    self.server.patch(kind, namespace, name, part, &patch, validation).await?;
                self.written(kind, 200, written)
            }
            Method::DELETE if part == Part::Object => {
                let options = self.delete_options()?;
                let deleted = self.server.delete(kind, namespace, name, &options).await?;
                match deleted {
                    Deleted::Marked(bytes) => answer.object(200, &bytes, &[]),
                    Deleted::Gone(bytes) if kind.rules.answers_with_deleted() => {
                        answer.object(200, &bytes, &[])
                    }
                    Deleted::Gone(bytes) => answer.deleted(&bytes),
                }
            }
            _ if !kind.strategic && part != Part::Object => {
                Err(ApiError::verb_not_supported(&kind.group, &kind.plural, self.verb()))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// `GET …/NAME?watch=1`: a watch of the collection with only this object.
    async fn watch_one(&self, kind: &Arc<Kind>) -> Result<Response<Body>, ApiError> {
        let mut query = self.query.clone();
        let one = format!("metadata.name={}", self.target.name);
        query.field_selector = match query.field_selector.as_str() {
            "" => one,
            more => format!("{one},{more}"),
        };
        let options = WatchOptions::parse(kind, &query)?;
        let stream = self.server.watch(kind, &self.target.namespace, options).await?;
        self.answerer(kind).watch(stream, self.server.registry.superseded(kind))
    }

    async fn scale(&self, kind: &Arc<Kind>) -> Result<Response<Body>, ApiError> {
        let (namespace, name) = (self.target.namespace.as_str(), self.target.name.as_str());
        let Scaled { scale, warnings } = match self.method {
            Method::GET => {
                let scale = self.server.scale(kind, namespace, name)?;
                Scaled { scale, warnings: Vec::new() }
            }
            Method::PUT => {
                let input = self.input_as("Scale")?;
                self.server.replace_scale(kind, namespace, name, input).await?
            }
            Method::PATCH => {
                let patch = self.patch(kind)?;
                let validation = self.query.field_validation;
                self.server.patch_scale(kind, namespace, name, &patch, validation).await?
            }
            _ => {
                return Err(ApiError::method_not_allowed());
            }
        };
        let mut response = answer::document(&scale, self.accept)?;
        answer::warn(&mut response, &warnings);
        Ok(response)
    }

    fn patch(&self, kind: &Kind) -> Result<Patch, ApiError> {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        Patch::parse_for(kind, content_type, &self.body).map_err(|error| match error.code {
            415 if kind.strategic => error.generic(),
            _ => error,
        })
    }

    fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        if self.body.is_empty() {
            return DeleteOptions::read(&self.query, None);
        }
        let body = BodyType::parse(self.content_type.as_deref())?;
        let decoded = decode::body(body, "DeleteOptions", &self.body)?;
        DeleteOptions::read(&self.query, Some(&decoded.value))
    }

    fn written(
        &self,
        kind: &Kind,
        code: u16,
        written: Written,
    ) -> Result<Response<Body>, ApiError> {
        self.answerer(kind).object(code, &written.bytes, &written.warnings)
    }
}

impl Server {
    /// A client of this server in the same process, without a socket.
    pub fn client(self: &Arc<Self>) -> kube::Client {
        kube::Client::new(router(self.clone(), Access::Open), "default")
    }
}

/// The body of `/version`.
fn version() -> Value {
    let mut parts = crate::VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    json!({
        "major": major, "minor": minor,
        "gitVersion": format!("{}+embedded-{}", crate::VERSION, env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": std::env::consts::OS,
    })
}

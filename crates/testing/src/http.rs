//! Raw HTTP to the API server, for asserts on the protocol itself: any method, path, header and body
//! in; status, headers and bytes out. It knows nothing of kinds.

use crate::cluster::{Access, Cluster};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// The caller.
    pub access: Access,
    /// Such as `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
    /// The body as it is sent.
    pub body: Vec<u8>,
}

impl Call {
    /// A request of the administrator without a body.
    pub fn new(method: &str, path: impl Into<String>) -> Self {
        Self {
            access: Access::Admin,
            method: method.to_owned(),
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body and its content type.
    pub fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut call = self.header("content-type", content_type);
        call.body = body.into();
        call
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Sets the caller.
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status code.
    pub status: u16,
    /// Names in lower case. Several values of one name are joined by `, `.
    pub headers: BTreeMap<String, String>,
    /// The body as it was received.
    pub bytes: Vec<u8>,
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {} {}", self.status, self.text()))
    }

    /// The JSON values of the body, one after another, as a watch sends them.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        serde_json::Deserializer::from_slice(&self.bytes)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|e| panic!("not JSON lines ({e}): {}", self.text()))
    }

    /// The JSON body of an answer that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert!(self.status == status, "expected {status}: {} {}", self.status, self.text());
        self.json()
    }
}

impl Cluster {
    /// Sends a request and reads the whole answer. A watch needs a `timeoutSeconds`, because an
    /// answer that takes longer than half a minute is a failure.
    pub async fn http(&self, call: Call) -> Reply {
        let what = format!("{} {}", call.method, call.path);
        tokio::time::timeout(Duration::from_secs(30), self.exchange(call))
            .await
            .unwrap_or_else(|_| panic!("{what}: the answer does not end"))
    }

    async fn exchange(&self, call: Call) -> Reply {
        let mut request = ::http::Request::builder().method(call.method.as_str()).uri(&call.path);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(call.body)).expect("a well-formed request");
        let response = self
            .client_as(call.access)
            .send(request)
            .await
            .unwrap_or_else(|e| panic!("{} {}: {e}", call.method, call.path));
        let (parts, body) = response.into_parts();
        let mut headers = BTreeMap::<String, String>::new();
        for (name, value) in &parts.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            headers
                .entry(name.as_str().to_owned())
                .and_modify(|all| all.push_str(&format!(", {value}")))
                .or_insert_with(|| value.into_owned());
        }
        let bytes = body.collect().await.expect("read the answer").to_bytes().to_vec();
        Reply { status: parts.status.as_u16(), headers, bytes }
    }

    /// `GET`: the status and the JSON body, for any status.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        let reply = self.http(Call::new("GET", path)).await;
        (reply.status, reply.json())
    }

    /// `POST` of a JSON body that must be accepted.
    pub async fn create(&self, path: &str, body: &Value) -> Value {
        self.http(Call::new("POST", path).json(body)).await.expect(201)
    }
}

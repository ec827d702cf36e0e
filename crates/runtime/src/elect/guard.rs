//! A client that sends writes only while this process leads. It checks at the last moment, for every single
//! request: a write of several requests, or one that waited, may resume in a process that was stopped for longer
//! than its lease. Requests sent before are safe by their resourceVersion, or because they create. The
//! controller's writers use it.

use super::Leadership;
use kube::client::Body;
use kube::{Client, Error};

/// A client that always sends reads, and sends writes only while this process leads.
pub(crate) fn guard(client: &Client, leadership: &Leadership) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (client, leadership) = (client.clone(), leadership.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, leadership) = (client.clone(), leadership.clone());
        async move {
            if !request.method().is_safe() && !leadership.leads() {
                return Err(Error::Service(NOT_LEADING.into()));
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// Why a write was not sent.
const NOT_LEADING: &str = "this process does not lead any more";

#[cfg(test)]
mod tests {
    use super::super::{Election, Leadership};
    use super::*;
    use bowline_core::election::{Answer, Effect, Event, Record, Request};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::{mpsc, watch};

    /// A clock that a test sets, as if the machine had been suspended.
    static NOW: AtomicU64 = AtomicU64::new(0);

    fn now() -> Duration {
        Duration::from_secs(NOW.load(Ordering::SeqCst))
    }

    /// Leadership that has just got the Lease.
    fn leading() -> Leadership {
        let election = Election { clock: now, ..Election::new("us") };
        let mut version = 0;
        loop {
            let effects = election.take();
            if effects.contains(&Effect::StartLeading) {
                let (_, led) = watch::channel(true);
                return Leadership { election: Some(Arc::new(election)), led };
            }
            let Some(Effect::Send(id, request)) = effects.into_iter().last() else { panic!() };
            election.handle(match request {
                Request::Read => Event::Answer(id, Answer::NotFound),
                Request::Create(wanted) | Request::Update(_, wanted) => {
                    version += 1;
                    let record = Record {
                        holder: wanted.holder,
                        renewed: "now".into(),
                        duration: wanted.duration,
                        transitions: wanted.transitions,
                        version: version.to_string().into(),
                    };
                    Event::Answer(id, Answer::Lease(record))
                }
            });
        }
    }

    /// A server that reports the methods of its requests, and knows one object.
    async fn server() -> (Client, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#;
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
            let reply = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut read = [0; 4096];
                let count = stream.read(&mut read).await.unwrap();
                let text = String::from_utf8_lossy(&read[..count]).into_owned();
                let _ = sender.send(text.split(' ').next().unwrap_or_default().to_owned());
                let _ = stream.write_all(reply.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        let config = kube::Config::new(url.parse().unwrap());
        (Client::try_from(config).unwrap(), asked)
    }

    #[tokio::test]
    async fn who_slept_through_its_lease_sends_no_write_and_may_read() {
        let (client, mut asked) = server().await;
        let leadership = leading();
        let api: Api<ConfigMap> = Api::namespaced(guard(&client, &leadership), "default");
        let (post, patch) = (PostParams::default(), PatchParams::default());
        let change = Patch::Merge(serde_json::json!({"data": {"a": "b"}}));
        let object = ConfigMap::default();
        let writes = async |api: &Api<ConfigMap>| {
            [
                api.create(&post, &object).await.err(),
                api.patch("x", &patch, &change).await.err(),
                api.replace("x", &post, &object).await.err(),
                api.delete("x", &DeleteParams::default()).await.err(),
            ]
        };
        assert!(writes(&api).await.iter().all(Option::is_none));
        let mut methods = Vec::new();
        while let Ok(method) = asked.try_recv() {
            methods.push(method);
        }
        assert_eq!(methods, ["POST", "PATCH", "PUT", "DELETE"]);
        // The machine sleeps: no task of this process has run meanwhile that could have noticed.
        NOW.store(11, Ordering::SeqCst);
        for error in writes(&api).await {
            assert_eq!(error.unwrap().to_string(), format!("ServiceError: {NOT_LEADING}"));
        }
        assert!(asked.try_recv().is_err(), "a write was sent");
        api.get("x").await.unwrap();
        assert_eq!(asked.try_recv().as_deref(), Ok("GET"));
    }
}

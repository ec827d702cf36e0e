//! Asks kube-proxy at the health check ports of Services whether this node has an endpoint: EndpointSlices run ahead of
//! its rules. One task for each Service asks, each second after EndpointSlices of the Service have changed and seldom
//! otherwise, and passes on what changes.

use super::Heard;
use crate::random;
use bowline_core::ObjectKey;
use bowline_core::announce::{Event, Kind, Name, Object};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How often kube-proxy is asked while its answer may change.
const SOON: Duration = Duration::from_secs(1);
/// For how long that is, after something has changed: kube-proxy may be slow on a busy node.
const UNREST: Duration = Duration::from_secs(30);
/// How often it is asked otherwise, at least; up to half of it is added, so that not all are asked at once.
const SELDOM: Duration = Duration::from_secs(10);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this many failures in a row there is nothing that answers.
const FAILURES: u32 = 3;

/// When to ask again.
#[derive(Debug)]
struct Pace {
    soon_until: Instant,
}

impl Pace {
    /// Something has changed.
    fn hurry(&mut self, now: Instant) {
        self.soon_until = now + UNREST;
    }

    /// The pause after an answer. `dice`: any number.
    fn pause(&self, now: Instant, dice: u32) -> Duration {
        if now < self.soon_until { SOON } else { SELDOM + SELDOM * (dice % 128) / 256 }
    }
}

/// The Services that are asked about.
#[derive(Debug)]
pub(super) struct Checks {
    sender: mpsc::Sender<Heard>,
    tasks: BTreeMap<ObjectKey, (AbortHandle, Arc<Notify>)>,
}

impl Checks {
    pub(super) fn new(sender: mpsc::Sender<Heard>) -> Self {
        Self { sender, tasks: BTreeMap::new() }
    }

    /// Asks about a Service at this port from now on. None: no longer.
    pub(super) fn set(&mut self, service: ObjectKey, port: Option<u16>) {
        if let Some((task, _)) = self.tasks.remove(&service) {
            task.abort();
        }
        if let Some(port) = port {
            let changed = Arc::new(Notify::new());
            let asking = ask_on(service.clone(), port, changed.clone(), self.sender.clone());
            self.tasks.insert(service, (tokio::spawn(asking).abort_handle(), changed));
        }
    }

    /// Asks soon about the Service of an EndpointSlice that has changed.
    pub(super) fn observe(&self, event: &Event) {
        match event {
            Event::Apply(Object::Slice(slice)) => {
                let service = slice.service.as_ref();
                let key = service.map(|it| ObjectKey::new(&*slice.key.namespace, &**it));
                if let Some((_, changed)) = key.and_then(|key| self.tasks.get(&key)) {
                    changed.notify_one();
                }
            }
            // Of a slice that is deleted the name alone is known. It begins with the name of its Service.
            Event::Delete(Name::Slice(slice)) => {
                let of_it = |service: &ObjectKey| {
                    service.namespace == slice.namespace && slice.name.starts_with(&*service.name)
                };
                let concerned = self.tasks.iter().filter(|it| of_it(it.0));
                concerned.for_each(|(_, (_, changed))| changed.notify_one());
            }
            // What the list did not deliver is gone.
            Event::Done(Kind::Slice) => {
                self.tasks.values().for_each(|(_, changed)| changed.notify_one());
            }
            _ => {}
        }
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.tasks.values().for_each(|(task, _)| task.abort());
    }
}

async fn ask_on(service: ObjectKey, port: u16, changed: Arc<Notify>, sender: mpsc::Sender<Heard>) {
    let (mut failures, mut told) = (0, None);
    let mut pace = Pace { soon_until: Instant::now() + UNREST };
    loop {
        let answer = tokio::time::timeout(PATIENCE, ask(port)).await.ok().flatten();
        failures = if answer.is_some() { 0 } else { failures + 1 };
        if (answer.is_some() || failures >= FAILURES) && told != Some(answer) {
            told = Some(answer);
            pace.hurry(Instant::now());
            let event = Event::Health(service.clone(), answer);
            if sender.send(Heard::Event(event)).await.is_err() {
                return;
            }
        }
        let pause = match failures {
            1..FAILURES => SOON,
            _ => pace.pause(Instant::now(), random::number()),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changed.notified() => {
                pace.hurry(Instant::now());
                // Not more often than each second, whatever changes.
                tokio::time::sleep(pause.min(SOON)).await;
            }
        }
    }
}

/// Whether the node has an endpoint. None: no answer that says so.
async fn ask(port: u16) -> Option<bool> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let request =
        format!("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).await.ok()?;
    match answer.strip_prefix(b"HTTP/1.")?.get(1..)? {
        b" 200" => Some(true),
        b" 503" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn answering(answer: &'static str) -> Option<bool> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = connection.read(&mut request).await;
            connection.write_all(answer.as_bytes()).await.unwrap();
        });
        ask(port).await
    }

    #[tokio::test]
    async fn only_an_answer_of_kube_proxy_counts() {
        assert_eq!(answering("HTTP/1.1 200 OK\r\n\r\n").await, Some(true));
        assert_eq!(answering("HTTP/1.1 503 Service Unavailable\r\n\r\n").await, Some(false));
        assert_eq!(answering("HTTP/1.1 404 Not Found\r\n\r\n").await, None);
        assert_eq!(answering("SSH-2.0-OpenSSH_9\r\n").await, None);
        assert_eq!(answering("").await, None);
    }

    #[test]
    fn kube_proxy_is_asked_seldom_while_nothing_changes() {
        let now = Instant::now();
        let mut pace = Pace { soon_until: now + UNREST };
        assert_eq!(pace.pause(now, 0), SOON);
        let quiet = now + UNREST;
        assert_eq!([0, 64, 127].map(|dice| pace.pause(quiet, dice) >= SELDOM), [true; 3]);
        assert!(pace.pause(quiet, 127) < SELDOM * 3 / 2);
        assert_ne!(pace.pause(quiet, 1), pace.pause(quiet, 2), "not all at once");
        pace.hurry(quiet);
        assert_eq!(pace.pause(quiet + UNREST / 2, 0), SOON);
    }

    #[tokio::test]
    async fn a_port_that_nothing_listens_on_has_no_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert_eq!(ask(port).await, None);
    }
}

//! Asks kube-proxy at the health check ports of Services whether this node has an endpoint: EndpointSlices run ahead of
//! its rules. One task for each Service asks every second and passes on what changes.

use super::Heard;
use bowline_core::ObjectKey;
use bowline_core::announce::Event;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// How often kube-proxy is asked.
const PERIOD: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this many failures in a row there is nothing that answers.
const FAILURES: u32 = 3;

/// The Services that are asked about.
#[derive(Debug)]
pub(super) struct Checks {
    sender: mpsc::Sender<Heard>,
    tasks: BTreeMap<ObjectKey, AbortHandle>,
}

impl Checks {
    pub(super) fn new(sender: mpsc::Sender<Heard>) -> Self {
        Self { sender, tasks: BTreeMap::new() }
    }

    /// Asks about a Service at this port from now on. None: no longer.
    pub(super) fn set(&mut self, service: ObjectKey, port: Option<u16>) {
        if let Some(task) = self.tasks.remove(&service) {
            task.abort();
        }
        if let Some(port) = port {
            let asking = ask_on(service.clone(), port, self.sender.clone());
            self.tasks.insert(service, tokio::spawn(asking).abort_handle());
        }
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.tasks.values().for_each(AbortHandle::abort);
    }
}

async fn ask_on(service: ObjectKey, port: u16, sender: mpsc::Sender<Heard>) {
    let (mut failures, mut told) = (0, None);
    loop {
        let answer = tokio::time::timeout(PATIENCE, ask(port)).await.ok().flatten();
        failures = if answer.is_some() { 0 } else { failures + 1 };
        if (answer.is_some() || failures >= FAILURES) && told != Some(answer) {
            told = Some(answer);
            let event = Event::Health(service.clone(), answer);
            if sender.send(Heard::Event(event)).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(PERIOD).await;
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

    #[tokio::test]
    async fn a_port_that_nothing_listens_on_has_no_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert_eq!(ask(port).await, None);
    }
}

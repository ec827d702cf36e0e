//! The threads that carry connections. A connection stays on one thread from its first byte to its last,
//! and each thread keeps its own connections to members: an event that a request waits for wakes only
//! the thread of that request. With threads that steal work from each other, a request cost half as much
//! again. Listeners hand connections over; nothing is decided here.

use crate::http::Http;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The threads. When this is dropped, they end with their connections.
pub(crate) struct Workers(Vec<Worker>);

struct Worker {
    runtime: Handle,
    http: Http,
    /// The number of its connections.
    active: Arc<AtomicUsize>,
    _ends: oneshot::Sender<()>,
}

impl Workers {
    /// Starts this many threads, each with its own side of pingora.
    pub(crate) fn start(number: usize, http: impl Fn() -> Http) -> io::Result<Self> {
        (0..number.max(1))
            .map(|index| Worker::start(index, http()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Hands a connection to the thread with the fewest; returns the handle that aborts it.
    pub(crate) fn carry<F>(
        &self,
        stream: TcpStream,
        connection: impl FnOnce(TcpStream, SocketAddr, Http) -> F + Send + 'static,
    ) -> io::Result<AbortHandle>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(worker) = self.0.iter().min_by_key(|it| it.active.load(Ordering::Relaxed)) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let local = stream.local_addr()?;
        let stream = stream.into_std()?;
        let one = One::of(&worker.active);
        let http = worker.http.clone();
        let task = worker.runtime.spawn(async move {
            // Registered with the reactor of the thread that waits for it from here on.
            if let Ok(stream) = TcpStream::from_std(stream) {
                connection(stream, local, http).await;
            }
            drop(one);
        });
        Ok(task.abort_handle())
    }
}

impl Worker {
    fn start(index: usize, http: Http) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        thread::Builder::new().name(format!("proxy-{index}")).spawn(move || {
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, http, active: Arc::default(), _ends: ends })
    }
}

/// Counts one connection of a worker.
struct One(Arc<AtomicUsize>);

impl One {
    fn of(active: &Arc<AtomicUsize>) -> Self {
        active.fetch_add(1, Ordering::Relaxed);
        Self(active.clone())
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

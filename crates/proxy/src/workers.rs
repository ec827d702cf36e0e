//! The threads that carry connections. A connection stays on one thread from its first byte to its
//! last, and each thread keeps connections to members of its own: what a request waits for wakes the
//! thread that it is on, and no other. Where two threads stole work from each other, a request cost half
//! as much again as on one. Listeners hand connections over; nothing is decided here.

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

/// The threads. They end when it is dropped, with what they carry.
pub(crate) struct Workers(Vec<Worker>);

struct Worker {
    runtime: Handle,
    http: Http,
    /// Connections that it has.
    active: Arc<AtomicUsize>,
    _ends: oneshot::Sender<()>,
}

impl Workers {
    /// Starts so many, each with its own side of pingora.
    pub(crate) fn start(number: usize, http: impl Fn() -> Http) -> io::Result<Self> {
        (0..number.max(1))
            .map(|index| Worker::start(index, http()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Has a connection carried by whoever has the fewest; gives what stops it.
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
            // Known to the thread that waits for it from here on.
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

/// One connection of a worker.
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

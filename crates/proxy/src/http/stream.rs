//! A client's connection as pingora sees it: plain or TLS. Bytes read beyond the current request are
//! held back. A request never reads into the next one, which makes pipelining and the checks in
//! [`super::head`] safe, and a client that reads nothing for too long is cut. The connection loops
//! hand it to pingora and take it back.

use super::chunks::Chunks;
use crate::metrics::ListenerStats;
use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

/// How many bytes of later requests are read while one is being served.
const AHEAD: usize = 16 * 1024;
/// The largest response head that waits for its body, so that both leave in one packet.
const CORKED: usize = 8 * 1024;

/// The transport of a connection.
pub(crate) enum Io {
    /// Clear text.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// How much of the connection belongs to the current request, beyond its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    /// This many bytes.
    Exactly(u64),
    /// A chunked body.
    Chunked(Chunks),
    /// All that comes: HTTP/2, or another protocol after an upgrade.
    Anything,
}

/// How the current request acts on its connection, past pingora.
#[derive(Debug, Default)]
pub(crate) struct Link {
    broken: AtomicBool,
    tunnel: AtomicBool,
}

impl Link {
    /// Makes reading fail from now on, so that pingora gives the request up. Writing still works.
    pub(crate) fn break_off(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// The request has become a tunnel: all that comes belongs to it.
    pub(crate) fn become_tunnel(&self) {
        self.tunnel.store(true, Ordering::Relaxed);
    }
}

/// A client's connection.
pub(crate) struct Downstream {
    io: Io,
    /// Bytes that were read and not handed out yet.
    ahead: BytesMut,
    expects: Expects,
    /// Bytes that were written and not sent yet.
    held: BytesMut,
    corked: bool,
    /// Set while the client reads nothing: when it is cut.
    stalled: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    link: Arc<Link>,
    stats: Arc<ListenerStats>,
}

impl Downstream {
    /// A connection of which nothing has been read. The client must read some of what it is sent
    /// within `patience`.
    pub(crate) fn new(io: Io, patience: Duration, stats: Arc<ListenerStats>) -> Self {
        Self {
            io,
            ahead: BytesMut::new(),
            expects: Expects::Anything,
            held: BytesMut::new(),
            corked: false,
            stalled: None,
            patience,
            link: Arc::default(),
            stats,
        }
    }

    /// The link by which a request acts on this connection.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.link.clone()
    }

    /// Bytes that were read and not handed out yet.
    pub(crate) fn ahead(&mut self) -> &mut BytesMut {
        &mut self.ahead
    }

    /// Reads some more; 0 at the end of the connection.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        self.ahead.reserve(4096);
        let read = self.io.read_buf(&mut self.ahead).await?;
        ListenerStats::add(&self.stats.bytes_in, read as u64);
        Ok(read)
    }

    /// Takes the head of a request off, and lets its reader have the body that belongs to it.
    pub(crate) fn take_head(&mut self, length: usize, expects: Expects) -> BytesMut {
        self.expects = expects;
        self.corked = true;
        self.ahead.split_to(length)
    }

    /// Sends a response without pingora and closes. It reads a little of what the client still sends,
    /// since to close before that would make the client lose the response.
    pub(crate) async fn answer_and_close(mut self, answer: &[u8]) {
        let patience = Duration::from_secs(1);
        let _ = tokio::time::timeout(patience, async {
            self.io.write_all(answer).await?;
            self.io.flush().await?;
            self.io.shutdown().await?;
            let mut rest = [0; 4096];
            while self.io.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        })
        .await;
    }

    /// Reads bytes of later requests, so that the end of the connection is noticed.
    fn poll_later(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < AHEAD {
            let mut chunk = [0; 1024];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            ListenerStats::add(&self.stats.bytes_in, chunk.filled().len() as u64);
            self.ahead.extend_from_slice(chunk.filled());
        }
        Poll::Pending
    }

    /// Sends the held bytes, and as much of `more` as fits.
    fn poll_held(&mut self, cx: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        while !self.held.is_empty() {
            let both = [IoSlice::new(&self.held), IoSlice::new(more)];
            let sent = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &both))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ListenerStats::add(&self.stats.bytes_out, sent as u64);
            self.stalled = None;
            let held = self.held.len();
            self.held.advance(sent.min(held));
            if sent > held {
                return Poll::Ready(Ok(sent - held));
            }
        }
        Poll::Ready(Ok(0))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(self.poll_held(cx, bytes))?;
        if sent > 0 {
            return Poll::Ready(Ok(sent));
        }
        let sent = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        ListenerStats::add(&self.stats.bytes_out, sent as u64);
        Poll::Ready(Ok(sent))
    }

    /// Makes writing fail when the client has read nothing for too long. The timeout is here because
    /// pingora does not have one for everything that it writes.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Downstream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.link.broken.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if this.link.tunnel.load(Ordering::Relaxed) {
            this.expects = Expects::Anything;
        }
        let most = match this.expects {
            Expects::Exactly(0) => return this.poll_later(cx),
            Expects::Chunked(chunks) if chunks.is_done() => return this.poll_later(cx),
            Expects::Exactly(left) => usize::try_from(left).unwrap_or(usize::MAX),
            Expects::Chunked(_) | Expects::Anything => usize::MAX,
        }
        .min(buf.remaining());
        let before = buf.filled().len();
        if !this.ahead.is_empty() {
            let most = most.min(this.ahead.len());
            buf.put_slice(&this.ahead.split_to(most));
        } else if most == buf.remaining() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            ListenerStats::add(&this.stats.bytes_in, (buf.filled().len() - before) as u64);
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buf.advance(read);
            ListenerStats::add(&this.stats.bytes_in, read as u64);
        }
        let read = &buf.filled()[before..];
        match &mut this.expects {
            Expects::Anything => {}
            Expects::Exactly(left) => *left = left.saturating_sub(read.len() as u64),
            Expects::Chunked(chunks) => {
                let of_body = chunks.pass(read);
                let mut later = BytesMut::from(&read[of_body..]);
                if !later.is_empty() {
                    later.unsplit(std::mem::take(&mut this.ahead));
                    this.ahead = later;
                    buf.set_filled(before + of_body);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Downstream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.corked && buf.len() <= CORKED {
            this.corked = false;
            this.held.extend_from_slice(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        this.corked = false;
        let written = this.poll_send(cx, buf);
        this.in_time(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = match this.poll_held(cx, &[]) {
            Poll::Ready(Ok(_)) => Pin::new(&mut this.io).poll_flush(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        this.in_time(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = match this.poll_held(cx, &[]) {
            Poll::Ready(Ok(_)) => Pin::new(&mut this.io).poll_shutdown(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        this.in_time(cx, shut)
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io.as_mut()).poll_shutdown(cx),
        }
    }
}

impl fmt::Debug for Downstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downstream").field("expects", &self.expects).finish_non_exhaustive()
    }
}

#[async_trait]
impl Shutdown for Downstream {
    async fn shutdown(&mut self) {
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Downstream {
    fn id(&self) -> UniqueIDType {
        match &self.io {
            Io::Plain(io) => io.as_raw_fd(),
            Io::Tls(io) => io.get_ref().0.as_raw_fd(),
        }
    }
}

impl Ssl for Downstream {}

impl GetTimingDigest for Downstream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Downstream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Downstream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

impl Peek for Downstream {}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, Downstream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (client, Downstream::new(Io::Plain(server), Duration::from_secs(10), Arc::default()))
    }

    #[tokio::test]
    async fn a_request_reads_its_own_body_and_the_next_one_stays() {
        let (mut client, mut stream) = pair().await;
        client.write_all(b"HEADbodyNEXT").await.unwrap();
        while stream.ahead().len() < 6 {
            stream.read_ahead().await.unwrap();
        }
        assert_eq!(stream.take_head(4, Expects::Exactly(4)), "HEAD");
        let mut body = [0; 4];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"body");
        let later = stream.read(&mut body);
        client.shutdown().await.unwrap();
        assert_eq!(later.await.unwrap(), 0, "the end is seen past the next request");
        assert_eq!(stream.ahead(), b"NEXT".as_slice());
    }

    #[tokio::test]
    async fn a_chunked_body_ends_where_the_next_request_begins() {
        let (mut client, mut stream) = pair().await;
        client.write_all(b"HEAD5\r\nhello\r\n0\r\n\r\nNEXT").await.unwrap();
        while stream.ahead().len() < 9 {
            stream.read_ahead().await.unwrap();
        }
        assert_eq!(stream.take_head(4, Expects::Chunked(Chunks::default())), "HEAD");
        let mut body = vec![0; 15];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(body, b"5\r\nhello\r\n0\r\n\r\n");
        client.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut body).await.unwrap(), 0, "the body is over");
        assert_eq!(stream.ahead(), b"NEXT".as_slice());
    }

    #[tokio::test]
    async fn a_tunnel_has_all_that_comes_and_a_broken_connection_nothing() {
        let (mut client, mut stream) = pair().await;
        client.write_all(b"HEADtunnel").await.unwrap();
        while stream.ahead().len() < 10 {
            stream.read_ahead().await.unwrap();
        }
        stream.take_head(4, Expects::Exactly(0));
        stream.link().become_tunnel();
        let mut bytes = [0; 6];
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"tunnel");
        stream.link().break_off();
        assert!(stream.read(&mut bytes).await.is_err());
    }

    #[tokio::test]
    async fn a_head_waits_for_its_body_and_both_arrive_in_order() {
        let (mut client, mut stream) = pair().await;
        stream.take_head(0, Expects::Anything);
        for part in ["head ", "body ", "more"] {
            stream.write_all(part.as_bytes()).await.unwrap();
        }
        stream.flush().await.unwrap();
        drop(stream);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "head body more");
    }
}

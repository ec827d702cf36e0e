//! A client's connection as pingora sees it: plain or TLS, with what was read ahead of the request at
//! hand kept back. It never lets a request read into the next one, which is what makes pipelining and
//! the checks in [`super::head`] safe. The connection loops hand it to pingora and take it back.

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
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How much of later requests is taken in while one is being answered.
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

/// How much of the connection belongs to the request at hand, beyond its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    /// So many bytes.
    Exactly(u64),
    /// All that comes: a chunked body, or another protocol after an upgrade.
    Anything,
}

/// A client's connection.
pub(crate) struct Downstream {
    io: Io,
    /// Read, and not yet given out.
    ahead: BytesMut,
    expects: Expects,
    /// Written, and not yet sent.
    held: BytesMut,
    corked: bool,
    stats: Arc<ListenerStats>,
}

impl Downstream {
    /// A connection of which nothing has been read.
    pub(crate) fn new(io: Io, stats: Arc<ListenerStats>) -> Self {
        Self {
            io,
            ahead: BytesMut::new(),
            expects: Expects::Anything,
            held: BytesMut::new(),
            corked: false,
            stats,
        }
    }

    /// What was read and not given out.
    pub(crate) fn ahead(&mut self) -> &mut BytesMut {
        &mut self.ahead
    }

    /// Reads some more; nothing at the end of the connection.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        self.ahead.reserve(4096);
        let read = self.io.read_buf(&mut self.ahead).await?;
        ListenerStats::add(&self.stats.bytes_in, read as u64);
        Ok(read)
    }

    /// Takes the head of a request off, and lets its reader have what belongs to it.
    pub(crate) fn take_head(&mut self, length: usize, expects: Expects) -> BytesMut {
        self.expects = expects;
        self.corked = true;
        self.ahead.split_to(length)
    }

    /// Answers without pingora and closes: waits a little for what the client still sends, since to
    /// close before reading it would take the answer back.
    pub(crate) async fn answer_and_close(mut self, answer: &[u8]) {
        let patience = std::time::Duration::from_secs(1);
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

    /// Takes bytes of later requests in, so that the end of the connection is noticed.
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

    /// Sends what is held, and as much of `more` as goes with it.
    fn poll_held(&mut self, cx: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        while !self.held.is_empty() {
            let both = [IoSlice::new(&self.held), IoSlice::new(more)];
            let sent = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &both))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ListenerStats::add(&self.stats.bytes_out, sent as u64);
            let held = self.held.len();
            self.held.advance(sent.min(held));
            if sent > held {
                return Poll::Ready(Ok(sent - held));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl AsyncRead for Downstream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let most = match this.expects {
            Expects::Exactly(0) => return this.poll_later(cx),
            Expects::Exactly(left) => usize::try_from(left).unwrap_or(usize::MAX),
            Expects::Anything => usize::MAX,
        }
        .min(buf.remaining());
        let fresh = this.ahead.is_empty();
        let read = if fresh && most == buf.remaining() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            buf.filled().len() - before
        } else if fresh {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buf.advance(read);
            read
        } else {
            let read = most.min(this.ahead.len());
            buf.put_slice(&this.ahead.split_to(read));
            read
        };
        if fresh {
            ListenerStats::add(&this.stats.bytes_in, read as u64);
        }
        if let Expects::Exactly(left) = &mut this.expects {
            *left = left.saturating_sub(read as u64);
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
        let sent = ready!(this.poll_held(cx, buf))?;
        if sent > 0 {
            return Poll::Ready(Ok(sent));
        }
        let sent = ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        ListenerStats::add(&this.stats.bytes_out, sent as u64);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_held(cx, &[]))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_held(cx, &[]))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
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
        (client, Downstream::new(Io::Plain(server), Arc::default()))
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

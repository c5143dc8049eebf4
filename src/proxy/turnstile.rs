//! A client's HTTP/1 connection that lets one request through at a time.
//!
//! Pingora reads from a connection whatever has come, with no limit on a head below 1 MiB, and keeps what was too much for the
//! next request. Here a head is read and checked before Pingora sees a byte of it, and of what follows it gets this request's
//! body and nothing else.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{SslDigest, TlsRef};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::config::Limits;
use crate::panics::rehearse;
use crate::request::chunks::Chunks;
use crate::request::head::{self, Fault, Framing, Scanner};

/// Read at once where it is not known how much belongs together.
const PIECE: usize = 4 << 10;

/// See the [module](self).
pub struct Turnstile {
    stream: Stream,
    /// Read from the connection and not yet asked for.
    ahead: BytesMut,
    body: Body,
}

/// What is left of the body of the request that is through.
enum Body {
    Length(u64),
    Chunked(Chunks),
    /// None, unless the answer says that it is a WebSocket from now on.
    Undecided,
    /// Whatever comes: the connection serves no request after this one.
    All,
}

impl Turnstile {
    pub fn new(stream: Stream) -> Turnstile {
        Turnstile { stream, ahead: BytesMut::new(), body: Body::Length(0) }
    }

    /// Whether the request that is through has been read whole, so that another may follow.
    pub fn is_free(&self) -> bool {
        match &self.body {
            Body::Length(left) => *left == 0,
            Body::Chunked(chunks) => chunks.is_over(),
            Body::Undecided => true,
            Body::All => false,
        }
    }

    /// Whether something of the next request is here.
    pub fn has_begun(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Ends when something of the next request has come, or the client has closed.
    pub async fn begins(&mut self) {
        if !self.has_begun() {
            // A connection that is broken says so to the next who reads.
            let _ = self.read_more().await;
        }
    }

    /// The next request's head, whole and sound; `None` if the client closed before its end. The request is through then.
    ///
    /// # Errors
    /// If it is to be refused. Nothing that comes after it on this connection means anything.
    pub async fn head(&mut self, limits: &Limits) -> std::result::Result<Option<BytesMut>, Fault> {
        rehearse("head");
        let (mut scanner, mut skipped) = (Scanner::default(), false);
        let end = loop {
            // An empty line between two requests belongs to neither (RFC 9112, section 2.2).
            if !skipped && self.ahead.starts_with(b"\r\n") {
                self.ahead.advance(2);
                (scanner, skipped) = (Scanner::default(), true);
            }
            let end = scanner.end(&self.ahead)?;
            if end.unwrap_or(self.ahead.len()) as u64 > limits.header_bytes {
                return Err(Fault::TooLarge);
            }
            match end {
                Some(end) => break end,
                None if !self.read_more().await.unwrap_or(false) => return Ok(None),
                None => {}
            }
        };
        self.body = match head::check(&self.ahead[..end], limits.headers)? {
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunks::default()),
            Framing::WebSocket => Body::Undecided,
        };
        // Pingora keeps it as long as the request lasts: in a piece of its own, not with all that was read with it.
        let head = BytesMut::from(&self.ahead[..end]);
        self.ahead.advance(end);
        self.forget_if_read();
        Ok(Some(head))
    }

    /// What there is of a head that was refused.
    pub fn refused(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads on what comes from a client that was refused.
    pub async fn read_raw(&mut self, into: &mut [u8]) -> Result<usize> {
        self.stream.read(into).await
    }

    /// False where the client has closed.
    async fn read_more(&mut self) -> Result<bool> {
        if self.ahead.capacity() - self.ahead.len() < PIECE / 4 {
            self.ahead.reserve(PIECE);
        }
        Ok(self.stream.read_buf(&mut self.ahead).await? > 0)
    }

    /// Hands out what was read ahead, as far as it belongs to this request.
    fn take_ahead(&mut self, buf: &mut ReadBuf<'_>) -> Result<()> {
        let room = self.ahead.len().min(buf.remaining());
        let part = match &mut self.body {
            Body::Undecided => 0,
            Body::All => room,
            Body::Length(left) => {
                let part = room.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= part as u64;
                part
            }
            Body::Chunked(chunks) => {
                chunks.advance(&self.ahead[..room]).map_err(|error| Error::new(ErrorKind::InvalidData, error))?
            }
        };
        buf.put_slice(&self.ahead[..part]);
        self.ahead.advance(part);
        self.forget_if_read();
        Ok(())
    }

    /// Keeps no room for what has all been asked for.
    fn forget_if_read(&mut self) {
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
    }

    /// Looks at what is written for the answer to whoever asked for a WebSocket.
    fn see_written(&mut self, bytes: &[u8]) {
        if matches!(self.body, Body::Undecided) && bytes.starts_with(b"HTTP/1.1 ") && !bytes[9..].starts_with(b"100") {
            self.body = if bytes[9..].starts_with(b"101") { Body::All } else { Body::Length(0) };
        }
    }

    /// Reads into `buf` no more than `most`.
    fn read_at_most(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, most: usize) -> Poll<Result<usize>> {
        let most = most.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        Poll::Ready(Ok(read))
    }

    /// Reads ahead. Returns whether the client has closed.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool>> {
        // Not filled with zeros first: every event of a stream asks here whether the client has left.
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
        self.ahead.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().is_empty()))
    }
}

impl AsyncRead for Turnstile {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if this.is_free() {
            // The request is over. Whoever reads on waits for the client to leave, and is told of nothing else: what comes
            // is the next request, and stays where it is. Of a client that leaves behind it the socket tells.
            return match this.has_begun() || !ready!(this.read_ahead(cx))? {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            };
        }
        if this.ahead.is_empty() {
            match this.body {
                Body::Length(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let read = ready!(this.read_at_most(cx, buf, most))?;
                    this.body = Body::Length(left - read as u64);
                    return Poll::Ready(Ok(()));
                }
                Body::All => return this.read_at_most(cx, buf, usize::MAX).map_ok(|_| ()),
                Body::Chunked(_) | Body::Undecided => {
                    if ready!(this.read_ahead(cx))? {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        Poll::Ready(this.take_ahead(buf))
    }
}

// Everything else is the connection's own.

impl AsyncWrite for Turnstile {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        self.see_written(buf);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.see_written(bufs.first().map_or(&[], |buf| buf));
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Turnstile {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut *self.stream).await;
    }
}

impl UniqueID for Turnstile {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Turnstile {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for Turnstile {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.stream.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.stream.get_write_pending_time()
    }
}

impl GetProxyDigest for Turnstile {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for Turnstile {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}

impl Peek for Turnstile {}

/// Shows nothing of what came.
impl fmt::Debug for Turnstile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turnstile").field("id", &self.stream.id()).finish_non_exhaustive()
    }
}

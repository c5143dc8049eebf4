//! What Pingora gets of a client's HTTP/1 connection: one request.
//!
//! Pingora's session owns it. A body of known length is read whole past that session ([`Turnstile::body`]), which would copy it
//! twice.

use std::fmt;
use std::future::poll_fn;
use std::io::Result;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use pingora::protocols::http::ServerSession;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::gate::Gate;

/// See the [module](self).
pub struct Turnstile {
    gate: Arc<Mutex<Gate>>,
}

/// The body of a request that is through, as long as its head announced, before Pingora has read anything of it.
pub struct AnnouncedBody {
    gate: Arc<Mutex<Gate>>,
    /// In bytes.
    pub length: usize,
}

impl Turnstile {
    /// Lets the request through whose head has just been read.
    pub fn new(gate: Gate) -> Turnstile {
        Turnstile { gate: Arc::new(Mutex::new(gate)) }
    }

    /// The connection, once its request has been served. None while a body of it is still read.
    pub fn into_gate(self) -> Option<Gate> {
        Arc::into_inner(self.gate).map(Mutex::into_inner)
    }

    /// The body of the request that `session` serves. None where its length is not known, or it has none.
    pub fn body(session: &ServerSession) -> Option<AnnouncedBody> {
        let turnstile = session.stream()?.as_any().downcast_ref::<Turnstile>()?;
        let length = turnstile.gate().known_length().filter(|length| *length > 0)?;
        Some(AnnouncedBody { gate: turnstile.gate.clone(), length })
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock()
    }
}

impl AnnouncedBody {
    /// Waits until more than `known` bytes of it are here, or all. Returns how many.
    ///
    /// # Errors
    /// If the client closes before its end.
    pub async fn arrives(&self, known: usize) -> Result<usize> {
        poll_fn(|cx| self.gate.lock().poll_body(cx, known)).await
    }

    /// Takes it, once all of it is here. Pingora's session is not to read it any more.
    pub fn take(self) -> Bytes {
        self.gate.lock().take_body()
    }
}

impl AsyncRead for Turnstile {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut *self.gate()).poll_read(cx, buf)
    }
}

// Everything else is the connection's own.

impl AsyncWrite for Turnstile {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let mut gate = self.gate();
        gate.see_written(buf);
        Pin::new(&mut gate.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let mut gate = self.gate();
        gate.see_written(bufs.first().map_or(&[], |buf| buf));
        Pin::new(&mut gate.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.gate().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.gate().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.gate().stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Turnstile {
    async fn shutdown(&mut self) {
        // The client has left, or learns it from the end of the connection.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Turnstile {
    fn id(&self) -> UniqueIDType {
        self.gate().stream.id()
    }
}

impl Ssl for Turnstile {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.gate().stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.gate().stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for Turnstile {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.gate().stream.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.gate().stream.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.gate().stream.get_write_pending_time()
    }
}

impl GetProxyDigest for Turnstile {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.gate().stream.get_proxy_digest()
    }
}

impl GetSocketDigest for Turnstile {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.gate().stream.get_socket_digest()
    }
}

impl Peek for Turnstile {}

/// Shows nothing of what came.
impl fmt::Debug for Turnstile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turnstile").field("id", &self.id()).finish_non_exhaustive()
    }
}

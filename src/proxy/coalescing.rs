//! A connection to an engine over which the head of a request and its body leave together.
//!
//! Pingora writes the one, then the other: twice the work for the system here and for the engine's, and two packets.

use std::fmt;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use http::StatusCode;
use pingora::http::ResponseHeader;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, Digest, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// See the [module](self).
pub struct Coalescing {
    stream: Stream,
    /// How those who send a request reach the connection: Pingora shows them nothing else of it.
    digest: Arc<ProxyDigest>,
    /// The head of a request that waits for what follows it.
    head: Bytes,
    /// Pingora has flushed that head. It flushes once more when the request is over.
    flushed: bool,
}

/// Whether the next that is written is a head to be held back.
#[derive(Default)]
struct HoldsNext(AtomicBool);

impl Coalescing {
    /// # Errors
    /// None that can happen: the header that Pingora wants for a connection's digest has only a status.
    pub fn new(stream: Stream) -> pingora::Result<Coalescing> {
        let header = ResponseHeader::build(StatusCode::OK, Some(0))?;
        let digest = ProxyDigest::new(Box::new(header), Some(Box::new(HoldsNext::default())));
        Ok(Coalescing { stream, digest: Arc::new(digest), head: Bytes::new(), flushed: false })
    }

    /// Holds the head that is written next on the connection of this digest until its body follows, or the request is over. A
    /// connection that cannot do that writes it at once.
    pub fn hold_next_head(digest: &Digest) {
        let data = digest.proxy_digest.as_ref().and_then(|digest| digest.user_data.as_ref());
        if let Some(holds) = data.and_then(|data| data.downcast_ref::<HoldsNext>()) {
            holds.0.store(true, Ordering::Relaxed);
        }
    }

    /// False for all but the first write after [`Self::hold_next_head`].
    fn is_head(&self) -> bool {
        let data = self.digest.user_data.as_ref().and_then(|data| data.downcast_ref::<HoldsNext>());
        data.is_some_and(|holds| holds.0.swap(false, Ordering::Relaxed))
    }

    /// Writes what is left of the head, and `body` behind it. Returns how much of the body was written.
    fn poll_write_behind(&mut self, cx: &mut Context<'_>, body: &[u8]) -> Poll<Result<usize>> {
        while !self.head.is_empty() {
            let both = [IoSlice::new(&self.head), IoSlice::new(body)];
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &both))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            let of_head = written.min(self.head.len());
            self.head.advance(of_head);
            if self.head.is_empty() {
                // It would keep its memory for as long as the connection is open.
                self.head = Bytes::new();
            }
            if written > of_head {
                return Poll::Ready(Ok(written - of_head));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl AsyncWrite for Coalescing {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        if this.is_head() {
            (this.head, this.flushed) = (Bytes::copy_from_slice(buf), false);
            return Poll::Ready(Ok(buf.len()));
        }
        match ready!(this.poll_write_behind(cx, buf))? {
            0 => Pin::new(&mut this.stream).poll_write(cx, buf),
            written => Poll::Ready(Ok(written)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if !this.head.is_empty() && !std::mem::replace(&mut this.flushed, true) {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_write_behind(cx, &[]))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

// Everything else is the connection's own.

impl AsyncRead for Coalescing {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

#[async_trait]
impl Shutdown for Coalescing {
    async fn shutdown(&mut self) {
        // The engine has left, or learns it from the end of the connection.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Coalescing {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Coalescing {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for Coalescing {
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

impl GetProxyDigest for Coalescing {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(self.digest.clone())
    }
}

impl GetSocketDigest for Coalescing {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}

impl Peek for Coalescing {}

/// Shows nothing of what passes.
impl fmt::Debug for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescing").field("id", &self.id()).finish_non_exhaustive()
    }
}

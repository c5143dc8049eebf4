//! A client's HTTP/1 connection, of which one request is read at a time.
//!
//! Pingora reads from a connection whatever has come, with no limit on a head below 1 MiB, and keeps what was too much for the
//! next request. Here a head is read and checked before Pingora sees a byte of it, and of what follows nothing is handed out but
//! this request's body.

use std::io::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::config::Limits;
use crate::panics::rehearse;
use crate::request::chunks::Chunks;
use crate::request::head::{self, Fault, Framing, Scanner};

/// Read at once where it is not known how much belongs together.
const PIECE: usize = 4 << 10;

/// Room made at once for a body whose length is announced, in bytes; an honest long one grows from there.
pub const BODY_ROOM: usize = 1 << 20;

/// See the [module](self).
pub struct Gate {
    pub(super) stream: Stream,
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

impl Gate {
    pub fn new(stream: Stream) -> Gate {
        Gate { stream, ahead: BytesMut::new(), body: Body::Length(0) }
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

    /// Looks at what is written for the answer to whoever asked for a WebSocket.
    pub fn see_written(&mut self, bytes: &[u8]) {
        if matches!(self.body, Body::Undecided) && bytes.starts_with(b"HTTP/1.1 ") && !bytes[9..].starts_with(b"100") {
            self.body = if bytes[9..].starts_with(b"101") { Body::All } else { Body::Length(0) };
        }
    }

    /// Reads into `buf` no more than `most`.
    fn read_at_most(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, most: u64) -> Poll<Result<usize>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut (&mut self.stream).take(most)).poll_read(cx, buf))?;
        Poll::Ready(Ok(buf.filled().len() - before))
    }

    /// Reads ahead, and takes no memory for that until something comes. Returns whether the client has closed.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool>> {
        // Not filled with zeros first: every event of a stream asks here whether the client has left.
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
        self.ahead.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().is_empty()))
    }

    /// Reads on in a body whose length its head announced, which Pingora does not read then. Returns how much of it is here, more
    /// than `known` or all of it.
    ///
    /// # Errors
    /// If the client closes before its end.
    pub fn poll_body(&mut self, cx: &mut Context<'_>, known: usize) -> Poll<Result<usize>> {
        let length = self.known_length().unwrap_or(0);
        if self.ahead.len() <= known && known < length {
            // With room for one byte more: a read that fills its room leaves the runtime to think that there is something left.
            let room = (length - known).min(BODY_ROOM.max(known)) + 1;
            if self.ahead.capacity() - self.ahead.len() < room.min(PIECE) {
                self.ahead.reserve(room);
            }
            if ready!(pin!(self.stream.read_buf(&mut self.ahead)).poll(cx))? == 0 {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(self.ahead.len().min(length)))
    }

    /// Takes a body that [`Self::poll_body`] has read whole.
    pub fn take_body(&mut self) -> Bytes {
        let length = self.known_length().unwrap_or(0).min(self.ahead.len());
        self.body = Body::Length(0);
        let body = self.ahead.split_to(length).freeze();
        // What came behind it is in a piece of its own from now on: it would keep the body's memory as long as it stays.
        self.ahead = BytesMut::from(&self.ahead[..]);
        body
    }

    /// How long the body of the request that is through is, where its head announced that.
    pub fn known_length(&self) -> Option<usize> {
        match self.body {
            Body::Length(length) => usize::try_from(length).ok(),
            _ => None,
        }
    }

    /// Keeps no room for what has all been asked for.
    fn forget_if_read(&mut self) {
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
    }
}

impl AsyncRead for Gate {
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
                    let read = ready!(this.read_at_most(cx, buf, left))?;
                    this.body = Body::Length(left - read as u64);
                    return Poll::Ready(Ok(()));
                }
                Body::All => return this.read_at_most(cx, buf, u64::MAX).map_ok(|_| ()),
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

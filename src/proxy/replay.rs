//! A downstream session whose request body was read before the replica was chosen.
//!
//! Pingora sends a body upstream by reading it from the downstream session, or by replaying that session's retry
//! buffer, which holds 64 KiB and no more. [`wrap`] puts a session of our own in between, which hands the whole body
//! out as the retry buffer: so any body can be sent, and sent again to another replica.
//!
//! On the way back it holds the beginning of a stream ([`Hold`]), since nothing can be sent again once an answer has begun.
//!
//! The trait behind it is public in Pingora but hidden from its documentation; this file is all that leans on it, and
//! the version of Pingora is pinned for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::{Error, ErrorType, Result};
use tokio::time::sleep_until;

use super::hold::{Hold, Passed};
use super::patience::Patience;
use super::presence;
use super::watch::Watch;
use crate::fleet::Rest;

type Messages = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

/// Where the wrapped session is put when the wrapper is dropped.
type Returned = Arc<Mutex<Option<Box<ServerSession>>>>;

/// What the proxy and the session in between have in common.
#[derive(Default)]
struct Shared {
    /// The body, until it can no longer be needed.
    body: Mutex<Bytes>,
    hold: Mutex<Hold>,
    patience: Mutex<Option<Arc<Patience>>>,
    /// Whether the client's connection is to end with this answer.
    last: AtomicBool,
}

/// Takes the wrapper off again; see [`wrap`].
pub struct Wrapped {
    returned: Returned,
    shared: Arc<Shared>,
}

/// Lets `downstream` stand as a session with `body` already read. To be undone with [`Wrapped::unwrap`] before the
/// session ends, or its connection cannot serve another request.
pub fn wrap(downstream: &mut Box<ServerSession>, body: Bytes) -> Wrapped {
    let shared = Arc::new(Shared { body: Mutex::new(body), ..Shared::default() });
    let returned = Returned::default();
    let inner = std::mem::replace(downstream, placeholder());
    let replay = Replay {
        inner,
        returned: returned.clone(),
        shared: shared.clone(),
        watch: None,
        torn: false,
        flows: false,
        rests: None,
    };
    **downstream = ServerSession::new_custom(Box::new(replay));
    Wrapped { returned, shared }
}

impl Wrapped {
    /// Lets the body go: an answer has begun, so it will not be sent again.
    pub fn release(&self) {
        self.shared.body.lock().clear();
    }

    /// The beginning of the answer, which may be held back.
    pub fn hold(&self) -> MutexGuard<'_, Hold> {
        self.shared.hold.lock()
    }

    /// Lets the try that begins now wait for its engine for so long.
    pub fn wait(&self, patience: Patience) {
        *self.shared.patience.lock() = Some(Arc::new(patience));
    }

    /// Lets the connection end with this answer, which says so if its header is still to be written.
    pub fn end_connection(&self) {
        self.shared.last.store(true, Ordering::Relaxed);
    }

    /// Puts the true session back.
    pub fn unwrap(self, downstream: &mut Box<ServerSession>) {
        // Dropping the wrapper returns the true session.
        **downstream = ServerSession::new_custom(Box::new(()));
        if let Some(inner) = self.returned.lock().take() {
            *downstream = inner;
        }
    }
}

/// Stands in for a session that is being moved; nothing is ever asked of it.
fn placeholder() -> Box<ServerSession> {
    Box::new(ServerSession::new_custom(Box::new(())))
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

struct Replay {
    inner: Box<ServerSession>,
    returned: Returned,
    shared: Arc<Shared>,
    watch: Option<Watch>,
    /// A write of what was held has begun and not ended: what the client has of it is unknown.
    torn: bool,
    /// A piece of the body has gone to the client, and the hold is over. From then on no other try comes, so each event of a
    /// stream takes a short way.
    flows: bool,
    /// The client speaks another protocol: what comes next, and when, is a matter of both.
    rests: Option<Rest>,
}

impl Replay {
    /// Waits for the client to leave, for what ends the try, or for the hold to be over.
    async fn wait(&mut self) -> Result<Option<Bytes>> {
        let patience = self.shared.patience.lock().clone();
        loop {
            self.watch.take_if(|watch| !watch.is_of(patience.as_ref()));
            let held_until = self.shared.hold.lock().until();
            let Replay { inner, watch, .. } = &mut *self;
            let watch = watch.get_or_insert_with(|| Watch::new(presence::socket(inner.digest()), patience.clone()));
            tokio::select! {
                read = inner.read_body_or_idle(true) => return read,
                error = &mut watch.ends => {
                    self.watch = None;
                    return Err(error);
                }
                () = until(held_until) => {}
            }
            self.let_go().await?;
        }
    }

    /// The same, once the answer flows.
    async fn wait_beside_flow(&mut self) -> Result<Option<Bytes>> {
        let Replay { inner, watch, shared, .. } = &mut *self;
        let watch =
            watch.get_or_insert_with(|| Watch::new(presence::socket(inner.digest()), shared.patience.lock().clone()));
        tokio::select! {
            biased;
            read = inner.read_body_or_idle(true) => read,
            error = &mut watch.ends => {
                self.watch = None;
                Err(error)
            }
        }
    }

    /// Writes what of the answer is not held back.
    async fn respond(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        if self.torn {
            return Err(Error::explain(ErrorType::WriteError, "the client took too long for the header").into_down());
        }
        let (passed, over) = {
            let mut hold = self.shared.hold.lock();
            (hold.pass(tasks), hold.is_over())
        };
        match passed {
            Passed::On(tasks) => {
                let says = |task: &HttpTask| matches!(task, HttpTask::Body(Some(piece), _) if !piece.is_empty());
                let flows = over && tasks.iter().any(says);
                let ended = self.send(tasks).await?;
                self.flows |= flows;
                Ok(ended)
            }
            Passed::Held => Ok(false),
            Passed::Failed(error) => Err(error),
        }
    }

    /// Sends what was held.
    async fn let_go(&mut self) -> Result<()> {
        let held = self.shared.hold.lock().take(Vec::new());
        // Pingora drops this if the engine's next piece comes before the client takes the first.
        self.torn = true;
        self.send(held).await?;
        self.torn = false;
        Ok(())
    }

    /// The true session, to write the answer.
    fn answering(&mut self) -> &mut ServerSession {
        if self.shared.last.load(Ordering::Relaxed) {
            self.inner.set_keepalive(None);
        }
        &mut self.inner
    }

    async fn send(&mut self, pieces: Vec<HttpTask>) -> Result<bool> {
        let rest = self.rest();
        let over = self.answering().response_duplex_vec(pieces).await?;
        self.rests = rest.filter(|_| self.inner.was_upgraded());
        self.note_passed();
        Ok(over)
    }

    /// Sends one piece of the body, which is not the last. The same as sending several, by a future of a third of the size.
    async fn send_piece(&mut self, piece: Bytes) -> Result<bool> {
        let _rest = self.rest();
        self.inner.write_response_body(piece, false).await.map_err(Error::into_down)?;
        self.note_passed();
        Ok(false)
    }

    /// While the client takes what there is, the engine may have nothing to do.
    fn rest(&mut self) -> Option<Rest> {
        let patience = self.shared.patience.lock();
        self.rests.take().or_else(|| patience.as_ref().and_then(|patience| patience.rest()))
    }

    fn note_passed(&self) {
        self.shared.patience.lock().iter().for_each(|patience| patience.passed());
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        *self.returned.lock() = Some(std::mem::replace(&mut self.inner, placeholder()));
    }
}

#[async_trait]
impl CustomSession for Replay {
    // What the wrapper is for: the body is done, and all of it is in the retry buffer.

    fn get_retry_buffer(&self) -> Option<Bytes> {
        Some(self.shared.body.lock().clone()).filter(|body| !body.is_empty())
    }

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn enable_retry_buffering(&mut self) {}

    fn is_body_done(&mut self) -> bool {
        !self.inner.was_upgraded() || self.inner.is_body_done()
    }

    fn is_body_empty(&mut self) -> bool {
        self.shared.body.lock().is_empty()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        match self.inner.was_upgraded() {
            true => self.inner.read_request_body().await,
            false => Ok(None),
        }
    }

    /// Ends only when the client goes away, or the engine has been waited for long enough. Pingora waits here whenever it waits
    /// for the engine, and an error here ends the try: so what ends a wait is noticed here, a hold that is over too.
    /// Once the client speaks another protocol, what it says is read, and nothing ends but with it or its engine.
    fn read_body_or_idle<'a, 'b>(&'a mut self, no_body_expected: bool) -> BoxFuture<'b, Result<Option<Bytes>>>
    where
        'a: 'b,
    {
        match self.flows {
            true => Box::pin(self.wait_beside_flow()),
            false if self.inner.was_upgraded() => Box::pin(self.inner.read_body_or_idle(no_body_expected)),
            false => Box::pin(self.wait()),
        }
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    // Everything else is the true session's.

    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }

    async fn write_response_header(&mut self, header: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.answering().write_response_header(header).await
    }

    async fn write_response_header_ref(&mut self, header: &ResponseHeader, _end: bool) -> Result<()> {
        self.answering().write_response_header_ref(header).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.inner.write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_response_trailers(trailers).await
    }

    fn response_duplex_vec<'a, 'b>(&'a mut self, mut tasks: Vec<HttpTask>) -> BoxFuture<'b, Result<bool>>
    where
        'a: 'b,
    {
        match tasks.as_mut_slice() {
            _ if !self.flows => Box::pin(self.respond(tasks)),
            [HttpTask::Body(Some(piece), false)] => Box::pin(self.send_piece(std::mem::take(piece))),
            _ => Box::pin(self.send(tasks)),
        }
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.inner.get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.inner.request_summary()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.response_written()
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.inner.shutdown().await;
    }

    async fn finish(&mut self) -> Result<()> {
        self.inner.finish_body().await
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    fn is_upgrade_req(&self) -> bool {
        self.inner.is_upgrade_req()
    }

    fn was_upgraded(&self) -> bool {
        self.inner.was_upgraded()
    }

    // Messages beside the body exist only in custom protocols.

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<Messages> {
        None
    }

    fn restore_custom_message_reader(&mut self, _reader: Messages) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}

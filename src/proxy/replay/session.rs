use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::{Error, ErrorType, Result};
use tokio::time::sleep_until;

use super::{Returned, Shared, placeholder};
use crate::fleet::Rest;
use crate::metrics::METRICS;
use crate::proxy::hold::Passed;
use crate::proxy::presence;
use crate::proxy::watch::Watch;

/// The session in between: what happens while Pingora waits, and what goes to the client.
pub(super) struct Replay {
    pub(super) inner: Box<ServerSession>,
    returned: Returned,
    pub(super) shared: Arc<Shared>,
    watch: Option<Watch>,
    /// A write of what was held has begun and not ended: what the client has of it is unknown.
    torn: bool,
    /// A piece of the body has gone to the client, and the hold is over. From then on no other try comes, so each event of a
    /// stream takes a short way.
    pub(super) flows: bool,
    /// The client speaks another protocol: what comes next, and when, is a matter of both.
    rests: Option<Rest>,
}

impl Replay {
    pub fn new(inner: Box<ServerSession>, returned: Returned, shared: Arc<Shared>) -> Replay {
        Replay { inner, returned, shared, watch: None, torn: false, flows: false, rests: None }
    }

    /// Waits for the client to leave, for what ends the try, or for the hold to be over.
    pub async fn wait(&mut self) -> Result<Option<Bytes>> {
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
    pub async fn wait_beside_flow(&mut self) -> Result<Option<Bytes>> {
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
    pub async fn respond(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
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

    /// Sends what was held: for as long as may be, nothing was said.
    async fn let_go(&mut self) -> Result<()> {
        METRICS.limits_hit.with_label_values(&["hold"]).inc();
        let held = self.shared.hold.lock().take(Vec::new());
        // Pingora drops this if the engine's next piece comes before the client takes the first.
        self.torn = true;
        self.send(held).await?;
        self.torn = false;
        Ok(())
    }

    /// The true session, to write the answer.
    pub fn answering(&mut self) -> &mut ServerSession {
        if self.shared.last.load(Ordering::Relaxed) {
            self.inner.set_keepalive(None);
        }
        &mut self.inner
    }

    pub async fn send(&mut self, pieces: Vec<HttpTask>) -> Result<bool> {
        let rest = self.rest();
        let over = self.answering().response_duplex_vec(pieces).await?;
        self.rests = rest.filter(|_| self.inner.was_upgraded());
        self.note_passed();
        Ok(over)
    }

    /// Sends one piece of the body, which is not the last. The same as sending several, by a future of a third of the size.
    pub async fn send_piece(&mut self, piece: Bytes) -> Result<bool> {
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

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

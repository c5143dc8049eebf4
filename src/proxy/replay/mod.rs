//! A downstream session whose request body was read before the replica was chosen.
//!
//! Pingora sends a body upstream by reading it from the downstream session, or by replaying that session's retry
//! buffer, which holds 64 KiB and no more. [`wrap`] puts a session of our own in between, which hands the whole body
//! out as the retry buffer: so any body can be sent, and sent again to another replica.
//!
//! On the way back it holds the beginning of a stream ([`Hold`]), since nothing can be sent again once an answer has begun.
//!
//! Here is what the proxy holds of it; what it does stands in `session`, and how Pingora asks for that in `custom`. The trait
//! there is public in Pingora but hidden from its documentation, and the version of Pingora is pinned for it.

mod custom;
mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use pingora::protocols::http::ServerSession;

use super::hold::Hold;
use super::patience::Patience;
use session::Replay;

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
    let replay = Replay::new(inner, returned.clone(), shared.clone());
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

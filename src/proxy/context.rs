use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use pingora_proxy::Session;

use super::Activity;
use super::activity::Busy;
use super::answer::UsageTap;
use super::buffered::{Buffered, Reservation};
use super::changes::Changes;
use super::error::OwnError;
use super::patience::Patience;
use super::replay::Wrapped;
use crate::callers::{Admitted, Caller};
use crate::fleet::{InFlight, Model, now};
use crate::live::Live;
use crate::request::Dialect;
use crate::routing::Time;

/// Everything known of one request, from its header to its log line.
pub struct Context {
    /// The settings that it began with.
    pub live: Arc<Live>,
    pub began: Instant,
    pub began_at: SystemTime,
    /// Given by the balancer: in the log, in its own errors, and to the engine where the client sent none.
    pub request_id: String,
    pub dialect: Dialect,
    /// Its body's bytes under the limit over all requests.
    pub reservation: Reservation,
    /// Bytes of its body as the client sent it.
    pub body_bytes: u64,
    /// The origin that answers are to name, where a page of it may call.
    pub origin: Option<HeaderValue>,
    /// Who asks, where callers are configured.
    pub caller: Option<Arc<Caller>>,
    /// Its place among the requests of its caller.
    pub admitted: Option<Admitted>,
    /// Bytes of its body as it is sent on.
    pub sent_bytes: u64,
    /// Whether it asks to go on as a WebSocket.
    pub switches: bool,
    /// Whether its answer tells of a response that the engine may keep.
    pub stores: bool,
    /// What is changed of its answer.
    pub changes: Changes,
    /// What it is for, once that is known.
    pub model: Option<Arc<Model>>,
    /// When it was read whole, and when it was decided where it goes or that it waits.
    pub deciding: Option<(Instant, Instant)>,
    /// How long it waited for room, if it had to.
    pub parked: Option<Duration>,
    /// When it was first sent on.
    pub sent: Option<Time>,
    /// Where it was sent; none while that is open and for what the balancer answers itself.
    pub in_flight: Option<InFlight>,
    /// A reused connection was closed under it, or its engine hung, and there is no other replica: once more here, on a fresh
    /// connection.
    pub once_more_here: bool,
    /// The engine's header has come.
    pub answered: bool,
    /// The replica broke its answer off.
    pub broke_off: bool,
    /// The replica sent an error within its stream.
    pub failed_in_stream: bool,
    pub usage: Option<UsageTap>,
    pub first_byte: Option<Instant>,
    /// The error of its own that the balancer answered with.
    pub own_error: Option<OwnError>,
    wrapped: Option<Wrapped>,
    _busy: Busy,
}

impl Context {
    pub fn new(live: Arc<Live>, activity: &Arc<Activity>, buffered: &Arc<Buffered>) -> Context {
        Context {
            live,
            began: Instant::now(),
            began_at: SystemTime::now(),
            request_id: request_id(),
            dialect: Dialect::OpenAi,
            reservation: Reservation::new(buffered),
            body_bytes: 0,
            origin: None,
            caller: None,
            admitted: None,
            sent_bytes: 0,
            switches: false,
            stores: false,
            changes: Changes::default(),
            model: None,
            deciding: None,
            parked: None,
            sent: None,
            in_flight: None,
            once_more_here: false,
            answered: false,
            broke_off: false,
            failed_in_stream: false,
            usage: None,
            first_byte: None,
            own_error: None,
            wrapped: None,
            _busy: activity.begin(),
        }
    }

    /// Lets the session stand as one whose body is already read.
    pub fn wrap_body(&mut self, session: &mut Session, body: bytes::Bytes) {
        self.wrapped = Some(super::replay::wrap(&mut session.downstream_session, body));
    }

    /// Lets the body go: an answer has begun, so it will not be sent again. A stream may run for long after that.
    pub fn release_body(&mut self) {
        if let Some(wrapped) = &self.wrapped {
            wrapped.release();
        }
        self.reservation.release();
    }

    /// Holds the answer back that begins now, `until` then at most, so that another replica can still be asked.
    pub fn hold_answer(&self, until: Instant) {
        if let Some(wrapped) = &self.wrapped {
            wrapped.hold().begin(until);
        }
    }

    /// Whether nothing of the answer has gone to the client so far.
    pub fn holds_answer(&self) -> bool {
        self.wrapped.as_ref().is_some_and(|wrapped| wrapped.hold().is_on())
    }

    /// Lets the answer go to the client: from now on nothing is tried again.
    pub fn let_answer_go(&mut self) {
        if let Some(wrapped) = &self.wrapped {
            wrapped.hold().end();
        }
        self.release_body();
    }

    /// Another try begins; what the last one left is forgotten.
    pub fn begin_try(&mut self) {
        self.answered = false;
        let began = *self.sent.get_or_insert_with(now);
        if let (Some(wrapped), Some(in_flight)) = (&self.wrapped, &self.in_flight) {
            *wrapped.hold() = Default::default();
            wrapped.wait(Patience::new(in_flight, began));
        }
    }

    /// Lets the client's connection end with this answer.
    pub fn end_connection(&self, session: &mut Session) {
        match &self.wrapped {
            Some(wrapped) => wrapped.end_connection(),
            None => session.set_keepalive(None),
        }
    }

    /// Puts the true session back.
    pub fn unwrap_body(&mut self, session: &mut Session) {
        if let Some(wrapped) = self.wrapped.take() {
            wrapped.unwrap(&mut session.downstream_session);
        }
    }

    /// What may be said of it in the process's log.
    pub fn summary(&self) -> String {
        let replica = self.in_flight.as_ref().map(InFlight::replica);
        format!("request {}, replica {}", self.request_id, replica.unwrap_or("none"))
    }
}

/// 64 random bits: enough to find a line in a log.
fn request_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static SEED: once_cell::sync::Lazy<RandomState> = once_cell::sync::Lazy::new(RandomState::new);
    format!("{:016x}", SEED.hash_one(COUNT.fetch_add(1, Ordering::Relaxed)))
}

//! The one `ProxyHttp`: reads a request, has it routed, sends it, watches the answer pass.
//!
//! The path of a request through the files: [`connection`](Edge) takes the connection, [`listeners`] opens it, [`h1`] or
//! [`h2`] serves it ([`gate`] reads and checks the heads of the first, [`turnstile`] is what Pingora gets of each request),
//! [`callers`] asks who calls, [`intake`] and [`body`] read the body, [`asked`] finds model and session, [`replay`] lets the body
//! be sent more than once, [`parking`] waits for room where there is none, [`upstream`] sends it and tries again elsewhere (over
//! connections that [`dial`] makes and [`coalescing`] wraps), [`patience`] says when that is due and [`watch`] looks for it,
//! [`answer`] lets the response pass, whose beginning [`hold`] may keep back, and reads its usage, [`changes`] is what the operator
//! changes of it, [`ending`] counts and logs. [`explain`] goes the same way for a request that is only asked about. Errors of the
//! balancer's own are in [`error`], answers of its own in [`local`].

mod access_log;
mod activity;
mod answer;
mod asked;
mod body;
mod buffered;
mod callers;
mod changes;
mod coalescing;
mod connection;
mod context;
mod cors;
mod dial;
mod ending;
mod error;
mod explain;
mod gate;
mod h1;
mod h2;
mod hold;
mod intake;
mod listeners;
mod local;
mod parking;
mod patience;
mod presence;
mod record;
mod replay;
mod spans;
mod turnstile;
mod upstream;
mod watch;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use crate::decisions::Decisions;
use crate::fleet::Fetcher;
use crate::live::Current;
use crate::panics::{Panicked, contained, contained_now, rehearse};
use crate::request::KeyHasher;
use crate::traces::Traces;

pub use access_log::AccessLog;
pub use activity::Activity;
pub use buffered::Buffered;
pub use connection::{Edge, EngineProxy};
pub use context::Context;
pub use explain::Explainer;
pub use listeners::Listeners;
pub use upstream::PINGORA_TRIES;

/// The balancer as Pingora sees it.
pub struct Proxy {
    pub live: Current,
    pub keys: KeyHasher,
    pub activity: Arc<Activity>,
    pub buffered: Arc<Buffered>,
    pub fetcher: Fetcher,
    pub access_log: AccessLog,
    pub decisions: Arc<Decisions>,
    /// Where spans go, if anywhere.
    pub traces: Option<Traces>,
}

#[async_trait]
impl ProxyHttp for Proxy {
    /// Pingora moves it from future to future, and each keeps room for it.
    type CTX = Box<Context>;

    fn new_ctx(&self) -> Box<Context> {
        Box::new(Context::new(self.live.load_full(), &self.activity, &self.buffered))
    }

    /// None: Pingora's own packs answers, and would look at each event of a stream to find that it is off.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, context: &mut Box<Context>) -> Result<bool> {
        let done = contained(self.take_in(session, context)).await;
        done.unwrap_or_else(|panic| failed(panic, context))
    }

    async fn upstream_peer(&self, _session: &mut Session, context: &mut Box<Context>) -> Result<Box<HttpPeer>> {
        let peer = contained(upstream::peer(context)).await;
        peer.unwrap_or_else(|panic| failed(panic, context))
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        _connection: RawFd,
        digest: Option<&Digest>,
        context: &mut Box<Context>,
    ) -> Result<()> {
        upstream::hold_head(digest, context);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        context: &mut Box<Context>,
    ) -> Result<()> {
        let done = contained_now(|| {
            rehearse("upstream");
            upstream::write_header(request, context)
        });
        done.unwrap_or_else(|panic| failed(panic, context))
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        answer: &mut ResponseHeader,
        context: &mut Box<Context>,
    ) -> Result<()> {
        let done = contained(upstream::retry_on_status(answer, context, &self.fetcher)).await;
        done.unwrap_or_else(|panic| failed(panic, context))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        context: &mut Box<Context>,
        error: Box<Error>,
    ) -> Box<Error> {
        let done = contained_now(|| upstream::retry_on_connect(error, context));
        done.unwrap_or_else(|panic| failure(panic, context))
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        error: Box<Error>,
        context: &mut Box<Context>,
        reused: bool,
    ) -> Box<Error> {
        let done = contained_now(|| upstream::retry_on_close(error, context, reused));
        done.unwrap_or_else(|panic| failure(panic, context))
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        context: &mut Box<Context>,
    ) -> Result<()> {
        if session.is_process_shutting_down() {
            context.end_connection(session);
        }
        let done = contained_now(|| {
            rehearse("header");
            answer::header(answer, session, context)
        });
        done.unwrap_or_else(|panic| failed(panic, context))
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        context: &mut Box<Context>,
    ) -> Result<Option<Duration>> {
        let done = contained_now(|| {
            rehearse(if context.first_byte.is_none() { "first byte" } else { "later bytes" });
            answer::body(body, end, context, &self.keys)?;
            Ok(None)
        });
        done.unwrap_or_else(|panic| failed(panic, context))
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, context: &mut Box<Context>) -> FailToProxy {
        let answered = contained(ending::fail(session, error, context)).await;
        answered.unwrap_or_else(|panic| {
            log::error!("{}: {panic}", context.summary());
            FailToProxy { error_code: 0, can_reuse_downstream: false }
        })
    }

    /// Pingora's words may hold a piece of an answer; ours are logged where the failure is dealt with.
    fn suppress_error_log(&self, _session: &Session, _context: &Box<Context>, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _context: &Box<Context>,
        _error: &Error,
        _what: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn request_summary(&self, _session: &Session, context: &Box<Context>) -> String {
        context.summary()
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, context: &mut Box<Context>) {
        context.unwrap_body(session);
        let ended = contained_now(|| {
            rehearse("ending");
            self.end(session, error, context);
        });
        if let Err(panic) = ended {
            log::error!("{}: {panic}", context.summary());
        }
    }
}

/// What a request fails with that a fault of the balancer's own has ended. What it held is let go with its context.
const PANIC: ErrorType = ErrorType::new("Panic");

fn failure(panic: Panicked, context: &Context) -> Box<Error> {
    log::error!("{}: {panic}", context.summary());
    Error::new(PANIC)
}

fn failed<T>(panic: Panicked, context: &Context) -> Result<T> {
    Err(failure(panic, context))
}

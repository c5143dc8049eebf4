//! Takes a request in: which route it asks, its body, its model, its conversation.

use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Version, header};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_proxy::Session;

use super::asked::{Came, understand};
use super::error::{OwnError, Stopped};
use super::{Context, Proxy, body, callers, cors, parking};
use crate::config::Limits;
use crate::fleet::Routed;
use crate::metrics::METRICS;
use crate::panics::rehearse;
use crate::request::endpoint::{self, Endpoint, Kind, Local, Route};
use crate::routing::RefusedWhy;

/// A client that takes nothing of its answer for this long is cut off: it would hold a place at its replica for ever.
const WRITE_MAX: Duration = Duration::from_secs(60);

impl Proxy {
    /// Reads a request whole and has it routed, or answers it here. Returns whether it was answered.
    pub(super) async fn take_in(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        match self.try_take_in(session, context).await {
            Ok(answered) => Ok(answered),
            Err(Stopped::Failed(error)) => Err(error),
            Err(Stopped::Own(error)) => {
                context.release_body();
                context.unwrap_body(session);
                let lingers = !session.downstream_session.is_body_done();
                if let Err(error) = super::ending::answer_error(session, context, error).await {
                    log::debug!("{}: the client left before its answer: {error}", context.summary());
                } else if lingers {
                    body::linger(&mut session.downstream_session).await;
                }
                Ok(true)
            }
        }
    }

    async fn try_take_in(&self, session: &mut Session, context: &mut Context) -> Result<bool, Stopped> {
        session.downstream_session.set_write_timeout(Some(WRITE_MAX));
        if session.req_header().version < Version::HTTP_11 {
            // An older client would take an interim answer for the answer (RFC 9110, 15.2).
            session.downstream_session.set_ignore_info_resp(true);
        }
        let header = session.req_header();
        let (method, path) = (header.method.clone(), header.uri.path().to_owned());
        context.dialect = endpoint::dialect_of(&path);
        context.origin = cors::origin(&header.headers, &context.live.server.origins);
        if cors::asks_beforehand(header, context) {
            cors::allow(session, context).await.map_err(Stopped::Failed)?;
            return Ok(true);
        }
        let route = endpoint::route(&method, &path);
        context.caller = callers::identify(&context.live, route, &header.headers)?;
        let endpoint = match opened(route, header)? {
            Opened::Engine(endpoint) => endpoint,
            Opened::Local(local) => {
                self.answer_here(session, context, local, method == Method::HEAD).await;
                return Ok(true);
            }
        };
        self.read_and_route(session, context, &endpoint).await?;
        Ok(false)
    }

    /// Reads the body of a request that is for an engine, and waits until it is known which.
    async fn read_and_route(
        &self,
        session: &mut Session,
        context: &mut Context,
        endpoint: &Endpoint,
    ) -> Result<(), Stopped> {
        context.switches = endpoint.kind == Kind::Realtime;
        callers::admit(context)?;
        let limits: Limits = context.live.server.limits.clone();
        let body = body::read(&mut session.downstream_session, &mut context.reservation, &limits).await?;
        context.body_bytes = body.len() as u64;
        if context.switches && !body.is_empty() {
            return Err(OwnError::BadRequest.into());
        }
        context.usage = endpoint.has_usage().then(Default::default);
        context.stores = endpoint.kind == Kind::Responses;
        let deciding = Instant::now();
        let address = session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
        let came = Came { header: session.req_header(), body: &body, caller: context.caller.as_deref(), address };
        rehearse("intake");
        let mut asked = understand(&context.live, &self.keys, endpoint, &came)?;
        callers::allow(context, &asked)?;
        context.model = Some(asked.model.clone());
        let routed = asked.route()?;
        context.deciding = Some((deciding, Instant::now()));
        context.changes = std::mem::take(&mut asked.changes);
        let body = asked.edited(body);
        context.sent_bytes = body.len() as u64;
        context.wrap_body(session, body);
        context.in_flight = Some(match routed {
            Routed::Sent(in_flight) => in_flight,
            Routed::Parked(wait) => parking::end(wait, session, context).await?,
            Routed::Refused(refusal) => {
                if refusal.why == RefusedWhy::Full {
                    METRICS.limits_hit.with_label_values(&["parked"]).inc();
                }
                return Err(OwnError::NotAdmitted(refusal).into());
            }
            Routed::Gone => return Err(OwnError::ResponseGone.into()),
        });
        Ok(())
    }
}

/// Where a request goes by its head.
pub enum Opened {
    Engine(Endpoint),
    /// It is answered here.
    Local(Local),
}

/// Where a request goes by its head alone.
///
/// # Errors
/// If it goes nowhere.
pub fn opened(route: Route, header: &RequestHeader) -> Result<Opened, OwnError> {
    let endpoint = match route {
        Route::Engine(endpoint) => endpoint,
        Route::Local(local) => return Ok(Opened::Local(local)),
        Route::Closed => return Err(OwnError::ClosedRoute),
        Route::WrongMethod { allow } => return Err(OwnError::MethodNotAllowed(allow)),
        Route::Unknown => return Err(OwnError::UnknownRoute),
    };
    if endpoint.kind == Kind::Realtime && !asks_for_websocket(header) {
        return Err(OwnError::UpgradeRequired);
    }
    if is_packed(&header.headers) {
        return Err(OwnError::ContentEncoding);
    }
    Ok(Opened::Engine(endpoint))
}

/// Whether a body is compressed: what it says cannot be found out, and its size would be any multiple of what is held.
pub fn is_packed(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    encodings.iter().any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether a request asks to go on as a WebSocket. HTTP/2 has another way for that, which is not offered.
fn asks_for_websocket(header: &RequestHeader) -> bool {
    let upgrade = header.headers.get(header::UPGRADE);
    header.version == Version::HTTP_11
        && upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

//! Takes a request in: which route it asks, its body, its model, its conversation.

use std::time::Duration;

use http::{HeaderMap, Method, header};
use pingora::Result;
use pingora_proxy::Session;

use super::error::{OwnError, Stopped};
use super::{Context, Proxy, body, callers, cors, parking};
use crate::config::Limits;
use crate::fleet::Routed;
use crate::metrics::METRICS;
use crate::request::endpoint::{self, Kind, Route};
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
        let header = session.req_header();
        let (method, path) = (header.method.clone(), header.uri.path().to_owned());
        context.dialect = endpoint::dialect_of(&path);
        context.origin = cors::origin(&header.headers, &context.live.server.origins);
        if cors::asks_beforehand(header, context) {
            cors::allow(session, context).await.map_err(Stopped::Failed)?;
            return Ok(true);
        }
        let route = endpoint::route(&method, &path);
        callers::identify(route, session, context)?;
        let endpoint = match route {
            Route::Engine(endpoint) => endpoint,
            Route::Local(local) => {
                self.answer_here(session, context, local, method == Method::HEAD).await;
                return Ok(true);
            }
            Route::Closed => return Err(OwnError::ClosedRoute.into()),
            Route::WrongMethod { allow } => return Err(OwnError::MethodNotAllowed(allow).into()),
            Route::Unknown => return Err(OwnError::UnknownRoute.into()),
        };
        context.switches = endpoint.kind == Kind::Realtime;
        if context.switches && !asks_for_websocket(session) {
            return Err(OwnError::UpgradeRequired.into());
        }
        if is_packed(&session.req_header().headers) {
            return Err(OwnError::ContentEncoding.into());
        }
        callers::admit(context)?;
        let limits: Limits = context.live.server.limits.clone();
        let body = body::read(&mut session.downstream_session, &mut context.reservation, &limits).await?;
        context.body_bytes = body.len() as u64;
        if context.switches && !body.is_empty() {
            return Err(OwnError::BadRequest.into());
        }
        context.usage = endpoint.has_usage().then(Default::default);
        context.stores = endpoint.kind == Kind::Responses;
        let mut asked = self.understand(context, &endpoint, session, &body)?;
        callers::allow(context, &asked)?;
        context.model = Some(asked.model.clone());
        let routed = asked.route()?;
        context.changes = std::mem::take(&mut asked.changes);
        let body = asked.edited(body);
        context.sent_bytes = body.len() as u64;
        if !context.switches {
            context.wrap_body(session, body);
        }
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
        Ok(false)
    }
}

/// Whether the body is compressed: what it says could not be found out, and its size would be any multiple of what is held.
fn is_packed(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    encodings.iter().any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether a request asks to go on as a WebSocket. HTTP/2 has another way for that, which is not offered.
fn asks_for_websocket(session: &Session) -> bool {
    let upgrade = session.req_header().headers.get(header::UPGRADE);
    session.downstream_session.is_upgrade_req()
        && upgrade.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

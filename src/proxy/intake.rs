//! Takes a request in: which route it asks, its body, its model, its conversation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use pingora::Result;
use pingora_proxy::Session;

use super::error::{OwnError, Stopped};
use super::{Context, Proxy, body, callers, cors, parking};
use crate::config::{Agents, Limits};
use crate::fleet::{Fleet, InFlight, Model, Routed};
use crate::metrics::METRICS;
use crate::request::endpoint::{self, BodyForm, Endpoint, Route};
use crate::request::{Caller, InHeaders, Peek, Rules, multipart, peek, session};
use crate::routing::{Ask, Key, Pin, RefusedWhy};

/// A client that takes nothing of its answer for this long is cut off: it would hold a place at its replica for ever.
const WRITE_MAX: Duration = Duration::from_secs(60);

/// The request header with which a client names a data-parallel rank.
pub const RANK_HEADER: &str = "x-data-parallel-rank";

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
        if is_packed(&session.req_header().headers) {
            return Err(OwnError::ContentEncoding.into());
        }
        callers::admit(context)?;
        let limits: Limits = context.live.server.limits.clone();
        let body = body::read(&mut session.downstream_session, &mut context.reservation, &limits).await?;
        context.body_bytes = body.len() as u64;
        context.usage = endpoint.has_usage().then(Default::default);
        let routed = self.route(context, &endpoint, session, &body)?;
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
        });
        Ok(false)
    }

    fn route(
        &self,
        context: &mut Context,
        endpoint: &Endpoint,
        session: &Session,
        body: &Bytes,
    ) -> Result<Routed, OwnError> {
        let headers = &session.req_header().headers;
        let live = context.live.clone();
        let rules = Rules {
            headers: &live.session.headers,
            sources: &live.session.sources,
            agents_apart: live.session.agents == Agents::Separate,
        };
        let fleet = &live.fleet;
        let nameless = fleet.only().filter(|model| model.name.is_none());
        let in_headers = session::from_headers(rules, endpoint, headers);
        // With a nameless model and a session in the headers, there is nothing to look for in the body.
        let needs_peek = nameless.is_none() || in_headers == InHeaders::NeedsBody;
        let peeked = (needs_peek && endpoint.body_form() == BodyForm::Json).then(|| peek(body));
        let model = match nameless {
            Some(model) => model.clone(),
            None => {
                let named = match (&peeked, endpoint.body_form()) {
                    (Some(Err(_)), _) => return Err(OwnError::NotJson),
                    (Some(Ok(peek)), _) => peek.model.as_deref(),
                    (None, BodyForm::Multipart) => multipart::model(content_type(headers), body),
                    // Nothing in it says which of several models made it.
                    (None, BodyForm::Empty) if fleet.only().is_none() => return Err(OwnError::UnknownRoute),
                    (None, _) => None,
                };
                model(fleet, named)?
            }
        };
        let peeked: Option<&Peek> = peeked.as_ref().and_then(|peek| peek.as_ref().ok());
        let conversation = match in_headers {
            InHeaders::Found(session) => Some(session),
            InHeaders::NeedsBody => session::find(rules, endpoint, headers, peeked),
            InHeaders::Absent => None,
        };
        let caller = context.caller.as_ref().map_or(Caller::of(headers), |caller| Caller::named(caller.name()));
        let key: Option<Key> = conversation.map(|session| self.keys.key(&session, caller));
        let address = session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
        let ask = Ask {
            key,
            pin: pin(headers),
            caller: self.keys.caller(caller, address),
            weight: context.caller.as_ref().map_or(1, |caller| caller.weight()),
            bytes: body.len() as u64,
        };
        callers::allow(context, &model, key)?;
        context.model = Some(model.clone());
        let routed = match endpoint.counted() {
            true => model.route(ask),
            false => InFlight::follow(model, ask).map(Routed::Sent),
        };
        routed.ok_or(OwnError::NoReplica)
    }
}

/// The model of this name; the only one, where the request names none.
fn model(fleet: &Fleet, name: Option<&str>) -> Result<Arc<Model>, OwnError> {
    let model = match name {
        Some(name) => fleet.named(name).ok_or(OwnError::UnknownModel)?,
        None => fleet.only().ok_or(OwnError::ModelRequired)?,
    };
    Ok(model.clone())
}

/// Whether the body is compressed: what it says could not be found out, and its size would be any multiple of what is held.
fn is_packed(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    encodings.iter().any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn pin(headers: &HeaderMap) -> Pin {
    match headers.get(RANK_HEADER) {
        None => Pin::None,
        Some(value) => value.to_str().ok().and_then(|rank| rank.trim().parse().ok()).map_or(Pin::Invalid, Pin::Rank),
    }
}

//! What a request asks for: its model, its conversation, and what is changed of it before it is sent on.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, header};
use pingora_proxy::Session;

use super::changes::Changes;
use super::error::OwnError;
use super::{Context, Proxy};
use crate::config::Agents;
use crate::fleet::{Fleet, InFlight, Model, Routed};
use crate::request::endpoint::{self, BodyForm, Endpoint, Kind};
use crate::request::rewrite::{Edit, apply};
use crate::request::{Caller, InHeaders, Peek, Rules, Stored, multipart, peek, session};
use crate::routing::{Ask, Key, Pin};

/// The request header with which a client names a data-parallel rank.
pub const RANK_HEADER: &str = "x-data-parallel-rank";

/// A request that is understood.
pub struct Asked {
    pub model: Arc<Model>,
    ask: Ask,
    counted: bool,
    edits: Vec<Edit>,
    pub changes: Changes,
}

impl Asked {
    /// Has it routed.
    ///
    /// # Errors
    /// If the model has no engine.
    pub fn route(&self) -> Result<Routed, OwnError> {
        let routed = match self.counted {
            true => self.model.route(self.ask),
            false => InFlight::follow(self.model.clone(), self.ask),
        };
        routed.ok_or(OwnError::NoReplica)
    }

    /// The body that is sent on.
    pub fn edited(self, body: Bytes) -> Bytes {
        if self.edits.is_empty() { body } else { apply(&body, self.edits).into() }
    }
}

impl Proxy {
    /// Finds out what a request asks for.
    ///
    /// # Errors
    /// If it cannot be told which model it is for.
    pub(super) fn understand(
        &self,
        context: &Context,
        endpoint: &Endpoint,
        session: &Session,
        body: &[u8],
    ) -> Result<Asked, OwnError> {
        let (uri, headers) = (&session.req_header().uri, &session.req_header().headers);
        let live = context.live.clone();
        let rules = Rules {
            headers: &live.session.headers,
            sources: &live.session.sources,
            agents_apart: live.session.agents == Agents::Separate,
        };
        let nameless = live.fleet.only().filter(|model| model.name.is_none());
        let in_headers = session::from_headers(rules, endpoint, headers);
        // With a nameless model and a session in the headers, there may be nothing to look for in the body.
        let needs_peek = nameless.is_none_or(|model| injects_usage(model, endpoint))
            || in_headers == InHeaders::NeedsBody
            || endpoint.kind == Kind::Responses;
        let peeked = (needs_peek && endpoint.body_form() == BodyForm::Json).then(|| peek(body));
        let form = if endpoint.body_form() == BodyForm::Multipart { content_type(headers) } else { "" };
        let query = uri.query().unwrap_or_default();
        let in_path = endpoint::response_id(uri.path()).map(|id| self.keys.stored(Stored::Response(id)));
        let model = match (nameless, &peeked) {
            (Some(model), _) => model.clone(),
            (None, Some(Err(_))) => return Err(OwnError::NotJson),
            (None, Some(Ok(peek))) => named(&live.fleet, peek.model.as_deref())?,
            (None, None) => match (endpoint.kind, in_path) {
                (Kind::StoredResponse, Some(key)) => keeper(&live.fleet, &key)?,
                (Kind::Realtime, _) => named(&live.fleet, in_query(query).as_deref())?,
                _ => named(&live.fleet, multipart::model(form, body))?,
            },
        };
        let peeked: Option<&Peek> = peeked.as_ref().and_then(|peek| peek.as_ref().ok());
        let conversation = match in_headers {
            InHeaders::Found(session) => Some(session),
            InHeaders::NeedsBody => session::find(rules, endpoint, headers, peeked),
            InHeaders::Absent => None,
        };
        let caller = Caller::of(headers);
        let address = session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
        let ask = Ask {
            key: conversation.map(|session| self.keys.key(&session, caller)),
            pin: pin(headers),
            stored: in_path.or_else(|| self.stored(&model, peeked.filter(|_| endpoint.kind == Kind::Responses)?)),
            caller: self.keys.caller(caller, address),
            bytes: body.len() as u64,
        };
        let (edits, changes) = edits(&model, endpoint, body, peeked, form);
        Ok(Asked { model, ask, counted: endpoint.counted(), edits, changes })
    }

    /// What a Responses request goes on from, as far as it is known where that is.
    fn stored(&self, model: &Model, peek: &Peek) -> Option<Key> {
        let response = peek.previous_response_id.as_deref().map(Stored::Response);
        let thread = peek.conversation.as_deref().map(Stored::Thread);
        [response, thread].into_iter().flatten().map(|stored| self.keys.stored(stored)).find(|key| model.knows(key))
    }
}

/// What is changed of a request, and what of its answer then.
fn edits(model: &Model, endpoint: &Endpoint, body: &[u8], peek: Option<&Peek>, form: &str) -> (Vec<Edit>, Changes) {
    let (mut edits, mut changes) = (Vec::new(), Changes::default());
    let named = match peek {
        Some(peek) => peek.model.as_deref(),
        None => multipart::model(form, body),
    };
    if let (Some(own), Some(named)) = (model.name.as_deref().filter(|_| model.settings().rewrite), named)
        && own != named
    {
        edits.extend(match peek {
            Some(peek) => Edit::model(body, peek, own),
            None => Edit::form_model(form, body, own),
        });
        changes.client_name = Some(named.to_owned());
    }
    if injects_usage(model, endpoint)
        && let Some(edit) = peek.and_then(|peek| Edit::include_usage(body, peek))
    {
        edits.push(edit);
        changes.hides_usage = true;
    }
    (edits, changes)
}

fn injects_usage(model: &Model, endpoint: &Endpoint) -> bool {
    matches!(endpoint.kind, Kind::Chat | Kind::Completions) && model.settings().usage_injection
}

/// The model of this name; the only one, where the request names none.
fn named(fleet: &Fleet, name: Option<&str>) -> Result<Arc<Model>, OwnError> {
    let model = match name {
        Some(name) => fleet.named(name).ok_or(OwnError::UnknownModel)?,
        None => fleet.only().ok_or(OwnError::ModelRequired)?,
    };
    Ok(model.clone())
}

/// The model whose engine keeps a response: its path names none.
fn keeper(fleet: &Fleet, response: &Key) -> Result<Arc<Model>, OwnError> {
    let keeper = fleet.models().iter().find(|model| model.knows(response));
    keeper.or_else(|| fleet.only()).cloned().ok_or(OwnError::UnknownResponse)
}

fn in_query(query: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "model").map(|(_, model)| model.into_owned())
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

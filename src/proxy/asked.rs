//! What a request asks for: its model, its conversation, and what is changed of it before it is sent on.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, header};
use pingora::http::RequestHeader;

use super::changes::Changes;
use super::error::OwnError;
use crate::callers;
use crate::config::Agents;
use crate::fleet::{Fleet, InFlight, Model, Routed};
use crate::live::Live;
use crate::request::endpoint::{self, BodyForm, Endpoint, Kind};
use crate::request::peek::NotJson;
use crate::request::rewrite::{Edit, apply};
use crate::request::session::Found;
use crate::request::{Caller, InHeaders, KeyHasher, Peek, Rules, Stored, multipart, peek, session};
use crate::routing::{Ask, Foreseen, Key, Pin};

/// The request header with which a client names a data-parallel rank.
pub const RANK_HEADER: &str = "x-data-parallel-rank";

/// A request as it came, whole.
pub struct Came<'r> {
    pub header: &'r RequestHeader,
    pub body: &'r [u8],
    /// Who asks, where callers are configured.
    pub caller: Option<&'r callers::Caller>,
    /// Where it came from.
    pub address: Option<IpAddr>,
}

/// A request that is understood.
pub struct Asked {
    pub model: Arc<Model>,
    /// What told its conversation.
    pub source: Option<Found>,
    ask: Ask,
    counted: bool,
    edits: Vec<Edit>,
    pub changes: Changes,
}

impl Asked {
    /// Its conversation, where one could be told.
    pub fn conversation(&self) -> Option<Key> {
        self.ask.key
    }

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

    /// What would become of it if it came now. None: the model has no engine.
    pub fn foresee(&self) -> Option<Foreseen> {
        match self.counted {
            true => self.model.foresee(&self.ask),
            false => self.model.foresee_follower(&self.ask),
        }
    }

    /// Has the engine hear its own name where the client `called` the model otherwise, and the client read that; and has the
    /// engine tell a usage that the client does not ask for.
    fn edit(&mut self, read: &Read<'_>, called: Option<&str>) {
        let own = self.model.name.as_deref().filter(|_| self.model.settings().rewrite);
        if let (Some(own), Some(called)) = (own, called)
            && own != called
            && let Some(edit) = read.model_edit(own)
        {
            self.edits.push(edit);
            self.changes.client_name = Some(called.to_owned());
        }
        if injects_usage(&self.model, read.endpoint)
            && let Some(edit) = read.usage_edit()
        {
            self.edits.push(edit);
            self.changes.hides_usage = true;
        }
    }

    /// The body that is sent on.
    pub fn edited(self, body: Bytes) -> Bytes {
        if self.edits.is_empty() { body } else { apply(&body, self.edits).into() }
    }
}

/// A request as far as it has been read.
struct Read<'r> {
    endpoint: &'r Endpoint,
    header: &'r RequestHeader,
    body: &'r [u8],
    /// None where nothing in the body matters.
    peeked: Option<Result<Peek<'r>, NotJson>>,
}

impl Read<'_> {
    fn peek(&self) -> Option<&Peek<'_>> {
        self.peeked.as_ref().and_then(|peek| peek.as_ref().ok())
    }

    /// What the client calls the model.
    fn called(&self) -> Result<Option<Cow<'_, str>>, OwnError> {
        Ok(match &self.peeked {
            Some(Err(_)) => return Err(OwnError::NotJson),
            Some(Ok(peek)) => peek.model.as_deref().map(Cow::Borrowed),
            None if self.endpoint.kind == Kind::Realtime => in_query(self.header.uri.query().unwrap_or_default()),
            None => multipart::model(content_type(&self.header.headers), self.body).map(Cow::Borrowed),
        })
    }

    fn model_edit(&self, name: &str) -> Option<Edit> {
        match self.peek() {
            Some(peek) => Edit::model(self.body, peek, name),
            None => Edit::form_model(content_type(&self.header.headers), self.body, name),
        }
    }

    fn usage_edit(&self) -> Option<Edit> {
        self.peek().and_then(|peek| Edit::include_usage(self.body, peek))
    }
}

/// Finds out what a request asks for.
///
/// # Errors
/// If it cannot be told which model it is for.
pub fn understand(live: &Live, keys: &KeyHasher, endpoint: &Endpoint, came: &Came) -> Result<Asked, OwnError> {
    let Came { header, body, .. } = *came;
    let rules = Rules {
        headers: &live.session.headers,
        sources: &live.session.sources,
        agents_apart: live.session.agents == Agents::Separate,
    };
    let nameless = live.fleet.only().filter(|model| model.name.is_none());
    let in_headers = session::from_headers(rules, endpoint, &header.headers);
    // With a nameless model and a session in the headers, there may be nothing to look for in the body.
    let needs_peek = nameless.is_none_or(|model| injects_usage(model, endpoint))
        || in_headers == InHeaders::NeedsBody
        || endpoint.kind == Kind::Responses;
    let peeked = (needs_peek && endpoint.body_form() == BodyForm::Json).then(|| peek(body));
    let read = Read { endpoint, header, body, peeked };
    let named_caller = came.caller.map(|caller| Caller::named(caller.name()));
    let caller = named_caller.unwrap_or_else(|| Caller::of(&header.headers));
    let key = |stored| keys.stored(stored, caller);
    let in_path = endpoint::response_id(header.uri.path()).map(|id| key(Stored::Response(id)));
    let (model, called) = match (nameless, in_path) {
        (Some(model), _) => (model.clone(), None),
        (None, Some(response)) if endpoint.kind == Kind::StoredResponse => (keeper(&live.fleet, &response)?, None),
        (None, _) => {
            let called = read.called()?;
            (named(&live.fleet, called.as_deref())?, called)
        }
    };
    let conversation = match in_headers {
        InHeaders::Found(session) => Some(session),
        InHeaders::NeedsBody => session::find(rules, endpoint, &header.headers, read.peek()),
        InHeaders::Absent => None,
    };
    let goes_on_from = read.peek().filter(|_| endpoint.kind == Kind::Responses);
    let response =
        in_path.or(goes_on_from.and_then(|peek| Some(key(Stored::Response(peek.previous_response_id.as_deref()?)))));
    if named_caller.is_some() && response.is_some_and(|response| !model.knows(&response)) {
        // It may be another caller's, and any replica might be the one that keeps it.
        return Err(OwnError::UnknownResponse);
    }
    let thread = goes_on_from.and_then(|peek| Some(key(Stored::Thread(peek.conversation.as_deref()?))));
    let stored = in_path.or_else(|| [response, thread].into_iter().flatten().find(|key| model.knows(key)));
    let source = conversation.as_ref().map(|session| session.source);
    let ask = Ask {
        key: conversation.map(|session| keys.key(&session, caller)),
        pin: pin(&header.headers),
        stored,
        weight: came.caller.map_or(1, |caller| caller.weight()),
        caller: keys.caller(caller, came.address),
        bytes: body.len() as u64,
    };
    let mut asked =
        Asked { model, source, ask, counted: endpoint.counted(), edits: Vec::new(), changes: Changes::default() };
    asked.edit(&read, called.as_deref());
    Ok(asked)
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

fn in_query(query: &str) -> Option<Cow<'_, str>> {
    form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "model").map(|(_, model)| model)
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

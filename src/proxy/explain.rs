//! What would become of a saved request if it came now, without its coming: read and judged as one that comes, and counted
//! nowhere.

use std::sync::Arc;

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use serde::Serialize;

use super::asked::{Came, understand};
use super::buffered::{Buffered, Reservation};
use super::error::OwnError;
use super::intake::{Opened, opened};
use super::{body, callers};
use crate::live::{Current, Live};
use crate::request::KeyHasher;
use crate::request::endpoint;
use crate::request::saved::{self, Saved};
use crate::request::session::Found;
use crate::routing::Foreseen;

/// Explains requests under the keys of this process.
pub struct Explainer {
    pub live: Current,
    pub keys: KeyHasher,
    /// What is held for an explanation is held under the limit over all bodies.
    pub buffered: Arc<Buffered>,
}

/// What would become of a saved request. It holds nothing that a client sent but the names that are configured.
#[derive(Serialize)]
pub struct Explained {
    method: String,
    path: String,
    #[serde(flatten)]
    known: Known,
    #[serde(flatten)]
    end: End,
}

/// What became known of it on its way, as far as it got.
#[derive(Default, Serialize)]
struct Known {
    caller: Option<String>,
    model: Option<String>,
    /// As the page shows it.
    conversation: Option<String>,
    /// What told the conversation.
    source: Option<Found>,
}

/// Where the way ends.
#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum End {
    /// A turn goes to a replica.
    Goes { replica: String, decision: &'static str, reason: String },
    /// What is no turn follows its conversation.
    Follows { replica: String },
    /// It waits for room, behind so many.
    Waits { parked: u64 },
    /// The balancer answers it.
    AnsweredHere,
    /// The balancer refuses it.
    Refused { status: u16, code: &'static str, message: String },
}

impl Explainer {
    /// Reads the body of a request to the admin address: a saved request.
    ///
    /// # Errors
    /// As for any body.
    pub async fn saved(&self, session: &mut ServerSession) -> Result<(Bytes, Reservation), OwnError> {
        let mut held = Reservation::new(&self.buffered);
        let limits = self.live.load().server.limits.clone();
        Ok((body::read(session, &mut held, &limits).await?, held))
    }

    /// What would become of a saved request.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn explain(&self, text: &[u8]) -> Result<Explained, String> {
        let Saved { method, uri, version, headers, body } = saved::read(text)?;
        let mut header = RequestHeader::build(method, &[], None).map_err(|_| "its method is none".to_owned())?;
        header.set_uri(uri);
        header.set_version(version);
        for (name, value) in &headers {
            header.append_header(name, value).map_err(|_| format!("its header {name} cannot be read"))?;
        }
        let live = self.live.load_full();
        let mut known = Known::default();
        let end = self.follow(&live, &header, &body, &mut known);
        Ok(Explained {
            method: endpoint::shown_method(&header.method).to_owned(),
            path: endpoint::shown(header.uri.path()).to_owned(),
            known,
            end: end.unwrap_or_else(|error| End::of_error(&error, &header)),
        })
    }

    /// Takes it along the way of a request that comes.
    fn follow(&self, live: &Live, header: &RequestHeader, body: &[u8], known: &mut Known) -> Result<End, OwnError> {
        let route = endpoint::route(&header.method, header.uri.path());
        let caller = callers::identify(live, route, &header.headers)?;
        known.caller = caller.as_ref().map(|caller| caller.name().to_owned());
        let endpoint = match opened(route, header)? {
            Opened::Engine(endpoint) => endpoint,
            Opened::Local(_) => return Ok(End::AnsweredHere),
        };
        let would_admit = |conversation| match &caller {
            Some(caller) => caller.would_admit(conversation).map_err(OwnError::CallerLimit),
            None => Ok(()),
        };
        would_admit(None)?;
        let came = Came { header, body, caller: caller.as_deref(), address: None };
        let asked = understand(live, &self.keys, &endpoint, &came)?;
        known.model = Some(asked.model.label().to_owned());
        known.conversation = asked.conversation().map(|key| key.shown().to_string());
        known.source = asked.source;
        if let Some(caller) = &caller {
            callers::may_use(caller, &asked)?;
        }
        would_admit(asked.conversation())?;
        match asked.foresee().ok_or(OwnError::NoReplica)? {
            Foreseen::Goes { decision, reason } => {
                Ok(End::Goes { decision: decision.name(), reason: reason.sentence(), replica: reason.there })
            }
            Foreseen::Follows { replica } => Ok(End::Follows { replica }),
            Foreseen::Waits { parked } => Ok(End::Waits { parked }),
            Foreseen::Refused(refusal) => Err(OwnError::NotAdmitted(refusal)),
            Foreseen::Gone => Err(OwnError::ResponseGone),
        }
    }
}

impl End {
    fn of_error(error: &OwnError, header: &RequestHeader) -> End {
        let status = error.status(endpoint::dialect_of(header.uri.path())).as_u16();
        End::Refused { status, code: error.code(), message: error.message() }
    }
}

//! Waits, with the client of a parked request, for room at a replica.

use std::time::Instant;

use pingora::{Error, Result};
use pingora_proxy::Session;

use super::Context;
use super::error::{OwnError, Stopped};
use crate::fleet::{InFlight, Wait};
use crate::panics::rehearse;

/// Waits until the request may go on.
///
/// # Errors
/// If there was no room for too long, or the client left: then its request is forgotten at once.
pub async fn end(mut wait: Wait, session: &mut Session, context: &mut Context) -> Result<InFlight, Stopped> {
    let since = Instant::now();
    rehearse("parked");
    let ended = tokio::select! {
        waited = wait.end() => Ok(waited),
        error = left(session) => Err(error),
    };
    context.parked = Some(since.elapsed());
    match ended {
        Ok(waited) => waited.map_err(|refusal| OwnError::NotAdmitted(refusal).into()),
        Err(error) => {
            // It may have been sent on at that very moment: then it ends like any other whose client left.
            context.in_flight = wait.leave().await.and_then(Result::ok);
            Err(Stopped::Failed(error))
        }
    }
}

/// Ends when the client leaves. Its next request may come meanwhile, and waits.
async fn left(session: &mut Session) -> Box<Error> {
    loop {
        if let Err(error) = session.downstream_session.read_body_or_idle(true).await {
            return error.into_down();
        }
    }
}

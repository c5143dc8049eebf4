//! Holds a request to what its caller may do, where callers are configured.

use pingora_proxy::Session;

use super::Context;
use super::asked::Asked;
use super::error::OwnError;
use crate::callers::limits::Exceeded;
use crate::metrics::METRICS;
use crate::request::Local;
use crate::request::endpoint::Route;

/// Finds out who calls.
///
/// # Errors
/// If it is nobody that is configured and the route needs someone.
pub fn identify(route: Route, session: &Session, context: &mut Context) -> Result<(), OwnError> {
    let Some(callers) = &context.live.callers else { return Ok(()) };
    let caller = callers.identify(&session.req_header().headers).cloned();
    if caller.is_none() && !is_open(route) {
        return Err(OwnError::InvalidKey);
    }
    context.caller = caller;
    Ok(())
}

/// What probes ask, and a client before it has been told its key: it says nothing but that there is someone.
fn is_open(route: Route) -> bool {
    matches!(route, Route::Local(Local::Health | Local::Ping | Local::Hello))
}

/// Counts the request in, before its body is read.
///
/// # Errors
/// If its caller has too many at once, or in this minute.
pub fn admit(context: &mut Context) -> Result<(), OwnError> {
    let Some(caller) = &context.caller else { return Ok(()) };
    match caller.admit() {
        Ok(admitted) => context.admitted = Some(admitted),
        Err(exceeded) => return Err(refused(caller.name(), exceeded)),
    }
    Ok(())
}

/// Lets the request go on to its model, and counts its conversation in.
///
/// # Errors
/// If its caller may not use the model, or holds too many conversations.
pub fn allow(context: &mut Context, asked: &Asked) -> Result<(), OwnError> {
    let Some(caller) = &context.caller else { return Ok(()) };
    if !caller.may_use(asked.model.label()) {
        METRICS.caller_refused.with_label_values(&[caller.name(), "model"]).inc();
        return Err(OwnError::ModelNotAllowed);
    }
    match (&mut context.admitted, asked.conversation()) {
        (Some(admitted), Some(key)) => admitted.converse(key).map_err(|exceeded| refused(caller.name(), exceeded)),
        _ => Ok(()),
    }
}

fn refused(caller: &str, exceeded: Exceeded) -> OwnError {
    METRICS.caller_refused.with_label_values(&[caller, exceeded.limit()]).inc();
    OwnError::CallerLimit(exceeded)
}

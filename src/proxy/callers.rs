//! Holds a request to what its caller may do, where callers are configured.

use std::sync::Arc;

use http::HeaderMap;

use super::Context;
use super::asked::Asked;
use super::error::OwnError;
use crate::callers::Caller;
use crate::callers::limits::Exceeded;
use crate::live::Live;
use crate::metrics::METRICS;
use crate::request::Local;
use crate::request::endpoint::Route;

/// Finds out who calls.
///
/// # Errors
/// If it is nobody that is configured and the route needs someone.
pub fn identify(live: &Live, route: Route, headers: &HeaderMap) -> Result<Option<Arc<Caller>>, OwnError> {
    let Some(callers) = &live.callers else { return Ok(None) };
    let caller = callers.identify(headers).cloned();
    if caller.is_none() && !is_open(route) {
        return Err(OwnError::InvalidKey);
    }
    Ok(caller)
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
    may_use(caller, asked)
        .inspect_err(|_| METRICS.caller_refused.with_label_values(&[caller.name(), "model"]).inc())?;
    match (&mut context.admitted, asked.conversation()) {
        (Some(admitted), Some(key)) => admitted.converse(key).map_err(|exceeded| refused(caller.name(), exceeded)),
        _ => Ok(()),
    }
}

/// Whether a caller may use the model of a request.
///
/// # Errors
/// If not.
pub fn may_use(caller: &Caller, asked: &Asked) -> Result<(), OwnError> {
    if caller.may_use(asked.model.label()) { Ok(()) } else { Err(OwnError::ModelNotAllowed) }
}

fn refused(caller: &str, exceeded: Exceeded) -> OwnError {
    METRICS.caller_refused.with_label_values(&[caller, exceeded.limit()]).inc();
    OwnError::CallerLimit(exceeded)
}

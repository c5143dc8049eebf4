//! The address at which a fleet is told what should go wrong.
//!
//! `POST /_fault` with `{"replica": 0, "kind": "hang"}` puts one replica into a state of [`Fault`]; without `replica` all of
//! them. It is apart from the replicas' ports, because a replica that refuses connections could not be told to stop.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::fault::Fault;

/// The switch of each replica.
pub type Switches = Arc<[watch::Sender<Fault>]>;

/// The routes of the control address.
pub fn router(switches: Switches) -> Router {
    Router::new().route("/_fault", post(set_fault)).with_state(switches)
}

async fn set_fault(State(switches): State<Switches>, body: Bytes) -> (StatusCode, Json<Value>) {
    match parse(&body, switches.len()) {
        Ok((replica, fault)) => {
            let chosen = switches.iter().enumerate().filter(|(index, _)| replica.is_none_or(|only| only == *index));
            chosen.for_each(|(_, switch)| _ = switch.send_replace(fault.clone()));
            (StatusCode::OK, Json(json!({"ok": true})))
        }
        Err(error) => (StatusCode::BAD_REQUEST, Json(json!({"error": error}))),
    }
}

/// The replica that is meant, if it is one, and its new state.
fn parse(body: &Bytes, replicas: usize) -> Result<(Option<usize>, Fault), String> {
    let mut fields: Map<String, Value> =
        serde_json::from_slice(body).map_err(|error| format!("not a JSON object: {error}"))?;
    let replica = match fields.remove("replica") {
        None => None,
        Some(replica) => {
            let index = replica.as_u64().and_then(|index| usize::try_from(index).ok());
            let index = index.filter(|index| *index < replicas);
            Some(index.ok_or_else(|| format!("replica is {replica}: give 0 to {}", replicas - 1))?)
        }
    };
    let fault: Fault =
        serde_json::from_value(fields.clone().into()).map_err(|error| format!("no such fault: {error}"))?;
    fault.check()?;
    // A field that nobody reads is a mistake: the fault would not be what was meant.
    let known = json!(fault);
    match fields.keys().find(|field| known.get(field).is_none()) {
        Some(field) => Err(format!("this fault has no field `{field}`")),
        None => Ok((replica, fault)),
    }
}

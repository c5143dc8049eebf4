//! What the balancer answers itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{StatusCode, header};
use pingora_proxy::Session;
use serde_json::{Value, json};

use super::ending::answer_ok;
use super::{Context, Proxy};
use crate::callers::Caller;
use crate::fleet::{Engine, Fleet, Model};
use crate::metrics::METRICS;
use crate::request::Local;

/// Time for all engines together to say which models they serve.
const MODELS_TIME_MAX: Duration = Duration::from_secs(2);

/// Size of one engine's list of models.
const MODELS_BYTES_MAX: u64 = 1 << 20;

impl Proxy {
    /// Answers; a client that has gone meanwhile misses nothing.
    pub(super) async fn answer_here(&self, session: &mut Session, context: &mut Context, local: Local, head: bool) {
        let fleet = context.live.fleet.clone();
        let (status, body) = match local {
            Local::Models => {
                let passes = context.live.passes_credentials();
                let authorization = session.req_header().headers.get(header::AUTHORIZATION).filter(|_| passes).cloned();
                let authorization = authorization.as_ref().map(|value| value.as_bytes());
                (StatusCode::OK, self.models(&fleet, context.caller.as_deref(), authorization).await)
            }
            Local::Health | Local::Ping if any_serves(&fleet) => (StatusCode::OK, json!({"status": "ok"})),
            Local::Health | Local::Ping => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "no replica is up"})),
            Local::Version => (StatusCode::OK, json!({"version": env!("CARGO_PKG_VERSION")})),
            Local::Hello => (StatusCode::OK, json!({})),
        };
        METRICS.local_requests.with_label_values(&[name(local)]).inc();
        let body = Bytes::from(body.to_string());
        if let Err(error) = answer_ok(session, context, status, "application/json", body, head).await {
            log::debug!("request {}: {error}", context.request_id);
        }
    }

    /// The union of what the replicas in use serve and the names that the operator added, each once; of what the caller may
    /// use.
    async fn models(&self, fleet: &Fleet, caller: Option<&Caller>, authorization: Option<&[u8]>) -> Value {
        let may_use = |model: &&Arc<Model>| caller.is_none_or(|caller| caller.may_use(model.label()));
        let usable = fleet.models().iter().filter(may_use);
        let lists = join_all(usable.map(|model| self.models_called(model, authorization))).await;
        let by_id: BTreeMap<String, Value> = lists
            .into_iter()
            .rev()
            .flatten()
            .filter_map(|model| Some((model.get("id")?.as_str()?.to_owned(), model)))
            .collect();
        json!({"object": "list", "data": by_id.into_values().collect::<Vec<_>>()})
    }

    /// What the engines of one model serve, and then the same under its other names. Patterns are no names and not listed.
    async fn models_called(&self, model: &Model, authorization: Option<&[u8]>) -> Vec<Value> {
        let engines = model.engines_serving();
        let lists = join_all(engines.into_iter().map(|engine| self.models_of(engine, authorization))).await;
        let mut served: Vec<Value> = lists.into_iter().flatten().collect();
        let own = served.iter().find(|served| model.name.as_deref().is_some_and(|name| served["id"] == name)).cloned();
        let settings = model.settings();
        let called = |name: &str| {
            own.clone().map(|mut own| {
                own["id"] = name.into();
                own
            })
        };
        served.extend(settings.aliases.iter().filter_map(|alias| called(alias.name()?)));
        served
    }

    /// What one engine serves; nothing if it does not say so in time.
    async fn models_of(&self, engine: Arc<Engine>, authorization: Option<&[u8]>) -> Vec<Value> {
        let answer = self.fetcher.get(&engine, "/v1/models", authorization, MODELS_TIME_MAX, MODELS_BYTES_MAX).await;
        let list = match answer {
            Ok(answer) if answer.status.is_success() => serde_json::from_slice::<Value>(&answer.body).ok(),
            _ => None,
        };
        let data = list.and_then(|mut list| list.get_mut("data").map(Value::take));
        data.and_then(|data| data.as_array().cloned()).unwrap_or_default()
    }
}

fn any_serves(fleet: &Fleet) -> bool {
    fleet.models().iter().any(|model| !model.engines_serving().is_empty())
}

fn name(local: Local) -> &'static str {
    match local {
        Local::Models => "/v1/models",
        Local::Health => "/health",
        Local::Ping => "/ping",
        Local::Version => "/version",
        Local::Hello => "/api/hello",
    }
}

//! `GET /decisions` as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use crate::decisions::{DECISIONS_MAX, Decided, Decisions, Filter};
use crate::routing::CacheOutcome;

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    model: &'a str,
    replica: &'a str,
    decision: &'static str,
    reason: String,
    conversation: Option<String>,
    parked_s: Option<f64>,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    cache: Option<&'static str>,
}

/// The last decisions that are asked for, the newest first.
pub fn of(decisions: &Decisions, filter: &Filter) -> Value {
    let selected = decisions.select(filter);
    json!({ "decisions_max": DECISIONS_MAX, "decisions": selected.iter().map(|one| line(&one.decided)).collect::<Vec<_>>() })
}

fn line(decided: &Decided) -> Line<'_> {
    Line {
        time: humantime::format_rfc3339_millis(decided.at).to_string(),
        model: &decided.model,
        replica: &decided.replica,
        decision: decided.decision.name(),
        reason: decided.reason.sentence(),
        conversation: decided.conversation.map(|hash| hash.to_string()),
        parked_s: decided.parked_s,
        prompt_tokens: decided.prompt_tokens,
        cached_tokens: decided.cached_tokens,
        cache: decided.cache.map(CacheOutcome::name),
    }
}

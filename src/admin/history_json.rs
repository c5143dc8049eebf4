//! `GET /history/{model}` as JSON.

use serde_json::{Value, json};

use crate::fleet::Model;
use crate::history::Span;

/// A span of a model's history, the oldest bucket first.
pub fn of(model: &Model, span: Span) -> Value {
    let history = model.history.lock();
    json!({
        "model": model.label(),
        "span": span.name(),
        "step_s": span.step_s(),
        "buckets_max": span.buckets(),
        "buckets": history.buckets(span).collect::<Vec<_>>(),
        "filling": history.filling(span),
    })
}

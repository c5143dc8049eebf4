//! The spans of a request that has ended: what was decided, the wait for room, the replica's work, its first byte.
//!
//! They tell ids, names that are configured, and times; nothing that a client sent but the trace that it belongs to.

use std::time::{Instant, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};

use super::Context;
use crate::request::traceparent::TraceParent;

/// What is told of a request as a whole.
pub struct Whole<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub error: Option<&'a str>,
}

/// The spans of a request, the whole first; none where whoever sent it does not keep its trace, or it was for no model.
pub fn of(context: &Context, parent: Option<TraceParent>, whole: &Whole) -> Option<Vec<SpanData>> {
    let model = context.model.as_ref()?;
    if parent.is_some_and(|parent| !parent.sampled) {
        return None;
    }
    let ended = Instant::now();
    let moment = |at: Instant| context.began_at + at.saturating_duration_since(context.began);
    let trace = Trace {
        id: parent
            .map_or_else(|| RandomIdGenerator::default().new_trace_id(), |parent| TraceId::from_bytes(parent.trace_id)),
        scope: InstrumentationScope::builder("homing").with_version(env!("CARGO_PKG_VERSION")).build(),
    };
    let mut attributes = vec![
        KeyValue::new("http.request.method", whole.method.to_owned()),
        KeyValue::new("http.route", whole.path.to_owned()),
        KeyValue::new("http.response.status_code", i64::from(whole.status)),
        KeyValue::new("homing.request_id", context.request_id.clone()),
        KeyValue::new("homing.model", model.label().to_owned()),
    ];
    attributes.extend(whole.error.map(|error| KeyValue::new("error.type", error.to_owned())));
    let mut request =
        trace.span(format!("{} {}", whole.method, whole.path), context.began_at, moment(ended), attributes);
    request.span_kind = SpanKind::Server;
    request.parent_span_id = parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span_id));
    request.parent_span_is_remote = parent.is_some();
    if whole.status >= 500 || context.broke_off {
        request.status = Status::error("");
    }
    let id = request.span_context.span_id();
    let mut spans = vec![request];
    let mut add = |parent: SpanId, name: &'static str, from: SystemTime, to: SystemTime, attributes| {
        let span = SpanData { parent_span_id: parent, ..trace.span(name.into(), from, to, attributes) };
        spans.push(span);
    };
    let Some((deciding, decided)) = context.deciding else { return Some(spans) };
    let decision = context.in_flight.as_ref().and_then(|in_flight| in_flight.decision());
    let decision = decision.map(|decision| KeyValue::new("homing.decision", decision.name()));
    add(id, "decide", moment(deciding), moment(decided), decision.into_iter().collect());
    let sent = decided + context.parked.unwrap_or_default();
    if context.parked.is_some() {
        add(id, "park", moment(decided), moment(sent), Vec::new());
    }
    if let Some(in_flight) = &context.in_flight {
        let attributes = vec![
            KeyValue::new("homing.replica", in_flight.replica().to_owned()),
            KeyValue::new("homing.tries", in_flight.tries() as i64),
        ];
        add(id, "upstream", moment(sent), moment(ended), attributes);
        if let Some(first_byte) = context.first_byte {
            add(id, "first byte", moment(sent), moment(first_byte), Vec::new());
        }
    }
    Some(spans)
}

/// What the spans of a request share.
struct Trace {
    id: TraceId,
    scope: InstrumentationScope,
}

impl Trace {
    fn span(&self, name: String, start_time: SystemTime, end_time: SystemTime, attributes: Vec<KeyValue>) -> SpanData {
        let id = RandomIdGenerator::default().new_span_id();
        SpanData {
            span_context: SpanContext::new(self.id, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

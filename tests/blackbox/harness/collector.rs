//! A small collector of OpenTelemetry: it takes what it is sent, and tells the spans in it.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use prost::Message;
use serde_json::{Value, json};

use super::answer::Answer;
use super::engine::Engine;
use super::until;

pub struct Collector(pub Engine);

/// A span as it came.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty for the first of a trace.
    pub parent: String,
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: HashMap<String, String>,
}

impl Collector {
    pub async fn start() -> Collector {
        let engine = Engine::start().await;
        engine.answers(|_| Collector::takes());
        Collector(engine)
    }

    /// What it answers to what it takes.
    pub fn takes() -> Answer {
        Answer::whole("200 OK", &[("content-type", "application/x-protobuf")], b"")
    }

    /// The setting that sends spans here.
    pub fn setting(&self) -> Value {
        json!({"endpoint": format!("{}/v1/traces", self.0.url())})
    }

    /// Every span so far.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.0.requests();
        let decoded = requests.iter().map(|request| {
            assert_eq!(
                (request.path(), request.header("content-type")),
                ("/v1/traces", Some("application/x-protobuf"))
            );
            ExportTraceServiceRequest::decode(request.body.as_slice()).expect("OTLP")
        });
        let scopes = decoded.flat_map(|export| export.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(span).collect()
    }

    /// The bytes of all that came.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.requests().iter().flat_map(|request| request.body.clone()).collect()
    }

    /// Waits until so many spans have come.
    pub async fn saw(&self, count: usize) -> Vec<Span> {
        until(&format!("{count} spans"), async || Some(self.spans()).filter(|spans| spans.len() >= count)).await
    }
}

fn span(span: opentelemetry_proto::tonic::trace::v1::Span) -> Span {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let attributes = span.attributes.into_iter().map(|attribute| {
        let value = match attribute.value.and_then(|value| value.value) {
            Some(any_value::Value::StringValue(text)) => text,
            Some(any_value::Value::IntValue(number)) => number.to_string(),
            other => panic!("an attribute of another kind: {other:?}"),
        };
        (attribute.key, value)
    });
    Span {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes.collect(),
        name: span.name,
    }
}

//! Spans on their way to a collector of OpenTelemetry (OTLP over HTTP), where one is configured.
//!
//! They wait in a queue of bounded length for a thread of their own: a collector that is slow or gone holds up no request, and
//! costs spans, which are counted.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use ureq::Agent;

use crate::metrics::METRICS;

/// Requests whose spans wait at most.
const WAITING_MAX: usize = 1024;

/// Spans that are sent at once, or what came within this time.
const BATCH_MAX: usize = 512;
const BATCH_TIME: Duration = Duration::from_secs(1);

/// How long the collector may take for a batch.
const COLLECTOR_MAX: Duration = Duration::from_secs(5);

/// How long the end of the process waits for the last spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Takes spans for the collector.
#[derive(Clone)]
pub struct Traces(SyncSender<Message>);

enum Message {
    Spans(Vec<SpanData>),
    Flush(SyncSender<()>),
}

impl Traces {
    /// Starts the thread that sends to the collector at `endpoint`.
    ///
    /// # Errors
    /// If there is no exporter for that, or the system gives no thread.
    pub fn start(endpoint: &str) -> Result<Traces, String> {
        let agent =
            Agent::config_builder().timeout_global(Some(COLLECTOR_MAX)).http_status_as_error(false).proxy(None).build();
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(Collector(agent.into()))
            .with_endpoint(endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(COLLECTOR_MAX)
            .build();
        let mut exporter = exporter.map_err(|error| format!("traces.endpoint cannot be used: {error}"))?;
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        exporter.set_resource(&Resource::builder().with_service_name("homing").with_attribute(version).build());
        let (spans, waiting) = sync_channel(WAITING_MAX);
        let started = std::thread::Builder::new().name("traces".into()).spawn(move || send_all(&exporter, &waiting));
        started.map(|_| Traces(spans)).map_err(|error| format!("the traces have no thread: {error}"))
    }

    /// Sends the spans of a request, or drops them if too many wait.
    pub fn send(&self, spans: Vec<SpanData>) {
        let count = spans.len() as u64;
        if self.0.try_send(Message::Spans(spans)).is_err() {
            METRICS.limits_hit.with_label_values(&["traces"]).inc();
            METRICS.spans.with_label_values(&["dropped"]).inc_by(count);
        }
    }

    /// Waits until what came so far is sent, though not for long.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_MAX);
        }
    }
}

fn send_all(exporter: &impl SpanExporter, waiting: &Receiver<Message>) {
    while let Ok(first) = waiting.recv() {
        let (mut batch, mut flush) = (Vec::new(), None);
        let mut next = Ok(first);
        let until = Instant::now() + BATCH_TIME;
        // Gathers for a while, up to a flush.
        loop {
            match next {
                Ok(Message::Spans(spans)) => batch.extend(spans),
                Ok(Message::Flush(done)) => flush = Some(done),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            if flush.is_some() || batch.len() >= BATCH_MAX {
                break;
            }
            next = waiting.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
        let count = batch.len() as u64;
        let outcome = if count == 0 { Ok(()) } else { block_on(exporter.export(batch)) };
        METRICS.spans.with_label_values(&[if outcome.is_ok() { "sent" } else { "failed" }]).inc_by(count);
        if let Err(error) = outcome {
            log::debug!("{count} spans did not reach the collector: {error}");
        }
        if let Some(done) = flush {
            let _ = done.send(());
        }
    }
}

/// How the exporter reaches the collector: on the thread that it runs on.
#[derive(Debug)]
struct Collector(Agent);

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let mut answer = self.0.run(Request::from_parts(parts, body.as_ref()))?;
        let bytes = answer.body_mut().read_to_vec()?;
        let mut copy = Response::new(Bytes::from(bytes));
        *copy.status_mut() = answer.status();
        *copy.headers_mut() = std::mem::take(answer.headers_mut());
        Ok(copy)
    }
}

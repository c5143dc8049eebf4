use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::config;
use crate::metrics::METRICS;
use crate::request::usage::Usage;

/// Lines that wait to be written; more are dropped and counted, so that a log nobody reads stops no request.
const WAITING_MAX: usize = 8192;

/// How long the end of the process waits for the last lines to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Writes a line a request to standard output, from a thread of its own.
#[derive(Clone)]
pub struct AccessLog {
    lines: SyncSender<Message>,
}

enum Message {
    Line(String),
    Flush(SyncSender<()>),
}

impl AccessLog {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start() -> std::io::Result<AccessLog> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        std::thread::Builder::new().name("access log".into()).spawn(move || write_all(&waiting))?;
        Ok(AccessLog { lines })
    }

    /// Writes the line in the configured form.
    pub fn write<'a>(&self, form: config::AccessLog, line: impl FnOnce() -> Line<'a>) {
        let text = match form {
            config::AccessLog::Off => return,
            config::AccessLog::Text => line().text(),
            config::AccessLog::Json => line().json(),
        };
        if self.lines.try_send(Message::Line(text)).is_err() {
            METRICS.limits_hit.with_label_values(&["access_log"]).inc();
        }
    }

    /// Waits until everything written so far is out, though not for long: nobody may be reading it.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_MAX);
        }
    }
}

fn write_all(waiting: &Receiver<Message>) {
    let mut out = std::io::stdout().lock();
    for message in waiting {
        // Standard output that is closed is nothing that a balancer should end for.
        let _ = match message {
            Message::Line(line) => writeln!(out, "{line}"),
            Message::Flush(done) => {
                let flushed = out.flush();
                let _ = done.send(());
                flushed
            }
        };
    }
}

/// What the log says of a request: nothing of its conversation, its key or its body.
pub struct Line<'a> {
    pub at: SystemTime,
    pub request_id: &'a str,
    /// The trace that it belongs to, as its client says.
    pub traceparent: Option<&'a str>,
    pub method: &'a str,
    pub path: &'a str,
    /// Its name, where callers are configured.
    pub caller: Option<&'a str>,
    pub model: Option<&'a str>,
    pub replica: Option<&'a str>,
    pub decision: Option<&'a str>,
    pub status: u16,
    /// The code of the balancer's own error.
    pub error: Option<&'a str>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub first_byte_s: Option<f64>,
    pub total_s: f64,
    /// How long it waited for room, if it had to.
    pub parked_s: Option<f64>,
    pub usage: Option<Usage>,
    /// What became of its conversation's cache.
    pub cache: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    request_id: &'a str,
    method: &'a str,
    path: &'a str,
    caller: Option<&'a str>,
    model: Option<&'a str>,
    replica: Option<&'a str>,
    decision: Option<&'a str>,
    status: u16,
    error: Option<&'a str>,
    bytes_in: u64,
    bytes_out: u64,
    first_byte_s: Option<f64>,
    total_s: f64,
    parked_s: Option<f64>,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    cache: Option<&'a str>,
    traceparent: Option<&'a str>,
}

impl Line<'_> {
    fn json(&self) -> String {
        let line = JsonLine {
            time: rfc3339(self.at),
            request_id: self.request_id,
            method: self.method,
            path: self.path,
            caller: self.caller,
            model: self.model,
            replica: self.replica,
            decision: self.decision,
            status: self.status,
            error: self.error,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            first_byte_s: self.first_byte_s,
            total_s: self.total_s,
            parked_s: self.parked_s,
            prompt_tokens: self.usage.map(|usage| usage.prompt),
            cached_tokens: self.usage.and_then(|usage| usage.cached),
            completion_tokens: self.usage.map(|usage| usage.completion),
            cache: self.cache,
            traceparent: self.traceparent,
        };
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn text(&self) -> String {
        let or_dash = |value: Option<&str>| value.unwrap_or("-").to_owned();
        let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |seconds| format!("{seconds:.3}"));
        let number = |value: Option<u64>| value.map_or("-".to_owned(), |number| number.to_string());
        format!(
            "{} {} {} {} caller={} model={} replica={} decision={} status={} error={} in={} out={} first_byte={} total={:.3} \
             parked={} prompt={} cached={} completion={} cache={} traceparent={}",
            rfc3339(self.at),
            self.request_id,
            self.method,
            self.path,
            or_dash(self.caller),
            or_dash(self.model),
            or_dash(self.replica),
            or_dash(self.decision),
            self.status,
            or_dash(self.error),
            self.bytes_in,
            self.bytes_out,
            seconds(self.first_byte_s),
            self.total_s,
            seconds(self.parked_s),
            number(self.usage.map(|usage| usage.prompt)),
            number(self.usage.and_then(|usage| usage.cached)),
            number(self.usage.map(|usage| usage.completion)),
            or_dash(self.cache),
            or_dash(self.traceparent),
        )
    }
}

fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

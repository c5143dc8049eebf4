//! What an engine does with a request, step by step.

use std::sync::Arc;

use tokio::sync::watch;

/// One thing an engine does with a connection.
#[derive(Clone)]
pub enum Step {
    Send(Vec<u8>),
    Wait(Gate),
    /// Waits until these bytes have come, beyond the request.
    Receive(Vec<u8>),
    /// Ends the connection in good order; bytes sent before still arrive.
    Close,
    /// Ends it with a reset.
    Reset,
}

/// The steps of one answer. After the last the connection is kept for the next request.
#[derive(Clone, Default)]
pub struct Answer {
    pub steps: Vec<Step>,
}

/// Holds what waits for it until the test opens it, once and for all.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Answer {
    pub fn new() -> Answer {
        Answer::default()
    }

    /// A whole answer with a length.
    pub fn whole(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let length = body.len().to_string();
        let mut bytes = head(status, headers, ("content-length", &length));
        bytes.extend_from_slice(body);
        Answer::new().send(bytes)
    }

    pub fn json(status: &str, body: &serde_json::Value) -> Answer {
        Answer::whole(status, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// A stream of events, each a chunk of its own; `gate`, if any, holds it after the first.
    pub fn stream(events: &[String], gate: Option<&Gate>) -> Answer {
        let mut answer = Answer::new().send(stream_head());
        for (index, event) in events.iter().enumerate() {
            answer = answer.send(chunk(event.as_bytes()));
            if let (0, Some(gate)) = (index, gate) {
                answer = answer.wait(gate);
            }
        }
        answer.send(b"0\r\n\r\n".to_vec())
    }

    pub fn send(mut self, bytes: impl Into<Vec<u8>>) -> Answer {
        self.steps.push(Step::Send(bytes.into()));
        self
    }

    pub fn wait(mut self, gate: &Gate) -> Answer {
        self.steps.push(Step::Wait(gate.clone()));
        self
    }

    pub fn receive(mut self, bytes: impl Into<Vec<u8>>) -> Answer {
        self.steps.push(Step::Receive(bytes.into()));
        self
    }

    pub fn close(mut self) -> Answer {
        self.steps.push(Step::Close);
        self
    }

    pub fn reset(mut self) -> Answer {
        self.steps.push(Step::Reset);
        self
    }

    /// The same answer, given only when `gate` is open.
    pub fn after(mut self, gate: &Gate) -> Answer {
        self.steps.insert(0, Step::Wait(gate.clone()));
        self
    }
}

impl Gate {
    pub fn shut() -> Gate {
        Gate(Arc::new(watch::channel(false).0))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn opened(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

pub fn stream_head() -> Vec<u8> {
    head("200 OK", &[("content-type", "text/event-stream; charset=utf-8")], ("transfer-encoding", "chunked"))
}

pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

fn head(status: &str, headers: &[(&str, &str)], framing: (&str, &str)) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\nserver: uvicorn\r\n");
    for (name, value) in headers.iter().chain([&framing]) {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    head.into_bytes()
}

//! A request as a test wants it on the wire.

use serde_json::{Value, json};

use super::answer::chunk;
use super::vllm::merge;

#[derive(Clone)]
pub struct Ask {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The size of its chunks; `None` is sent with a length.
    pub chunks_of: Option<usize>,
}

/// Both ways to ask for a turn. What holds for one must hold for the other.
pub const DIALECTS: [&str; 2] = ["/v1/chat/completions", "/v1/messages"];

impl Ask {
    pub fn new(method: &str, target: &str) -> Ask {
        let (method, target) = (method.to_string(), target.to_string());
        Ask { method, target, headers: Vec::new(), body: Vec::new(), chunks_of: None }
    }

    pub fn get(target: &str) -> Ask {
        Ask::new("GET", target)
    }

    /// A POST of JSON.
    pub fn post(target: &str, body: &Value) -> Ask {
        Ask::new("POST", target).header("content-type", "application/json").body(body.to_string())
    }

    /// A turn with one user message, on a path of either dialect.
    pub fn turn(path: &str, model: &str, text: &str) -> Ask {
        let body = json!({"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": text}]});
        Ask::post(path, &body)
    }

    pub fn chat(model: &str, text: &str) -> Ask {
        Ask::turn("/v1/chat/completions", model, text)
    }

    pub fn messages(model: &str, text: &str) -> Ask {
        Ask::turn("/v1/messages", model, text)
    }

    pub fn header(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Names its conversation the plainest way.
    pub fn session(self, id: &str) -> Ask {
        self.header("x-session-id", id)
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Ask {
        self.body = body.into();
        self
    }

    /// Sets fields of its JSON body.
    pub fn with(mut self, fields: Value) -> Ask {
        let mut body: Value = serde_json::from_slice(&self.body).expect("the body is JSON");
        merge(&mut body, &fields);
        self.body = body.to_string().into_bytes();
        self
    }

    pub fn streamed(self) -> Ask {
        self.with(json!({"stream": true, "stream_options": {"include_usage": true}}))
    }

    pub fn chunked(mut self, size: usize) -> Ask {
        self.chunks_of = Some(size);
        self
    }

    /// The head, its framing included.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: balancer.test\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        match self.chunks_of {
            Some(_) => head += "transfer-encoding: chunked\r\n",
            None if self.method == "GET" || self.method == "HEAD" => {}
            None => head += &format!("content-length: {}\r\n", self.body.len()),
        }
        head += "\r\n";
        head.into_bytes()
    }

    /// The body as it is framed.
    pub fn body_bytes(&self) -> Vec<u8> {
        match self.chunks_of {
            None => self.body.clone(),
            Some(size) => {
                let mut bytes: Vec<u8> = self.body.chunks(size).flat_map(chunk).collect();
                bytes.extend_from_slice(b"0\r\n\r\n");
                bytes
            }
        }
    }
}

//! What a vLLM 0.32 says: answers in both dialects, and its metrics.

use serde_json::{Value, json};

use super::answer::{Answer, Gate};
use super::engine::Request;

/// The tokens an answer reports. `cached: None` is an engine that does not report them.
#[derive(Clone, Copy)]
pub struct Usage {
    /// All prompt tokens, cached ones included.
    pub prompt: u64,
    pub cached: Option<u64>,
    pub completion: u64,
}

pub const USAGE: Usage = Usage { prompt: 100, cached: Some(64), completion: 7 };

/// What /metrics says of an engine.
#[derive(Clone)]
pub struct Vitals {
    pub model: String,
    pub start_time_s: f64,
    /// Tokens that each rank's KV cache holds; `None` is an engine that does not say.
    pub kv_cache_tokens: Option<u64>,
    pub asleep: bool,
    pub ranks: Vec<Rank>,
}

/// One data-parallel rank's share of it. `None` leaves the gauge out.
#[derive(Clone)]
pub struct Rank {
    pub running: f64,
    pub waiting: f64,
    pub kv_cache_usage: Option<f64>,
    pub prefix_queries: f64,
    pub prefix_hits: f64,
    pub prompt_tokens: f64,
    pub generation_tokens: f64,
}

impl Vitals {
    pub fn of_ranks(ranks: usize) -> Vitals {
        let rank = Rank {
            running: 0.0,
            waiting: 0.0,
            kv_cache_usage: Some(0.0),
            prefix_queries: 1000.0,
            prefix_hits: 600.0,
            prompt_tokens: 1000.0,
            generation_tokens: 500.0,
        };
        Vitals {
            model: "m".into(),
            start_time_s: 1_795_964_014.3,
            kv_cache_tokens: None,
            asleep: false,
            ranks: vec![rank; ranks],
        }
    }

    /// The text of /metrics.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n\
             # TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {}\n",
            self.start_time_s
        );
        let mut series = |name: &str, kind: &str, value: fn(&Rank) -> Option<f64>| {
            text += &format!("# HELP vllm:{name} As vLLM says it.\n# TYPE vllm:{name} {kind}\n");
            for (rank, readings) in self.ranks.iter().enumerate() {
                if let Some(value) = value(readings) {
                    text += &format!("vllm:{name}{{engine=\"{rank}\",model_name=\"{}\"}} {value:?}\n", self.model);
                }
            }
        };
        series("num_requests_running", "gauge", |r| Some(r.running));
        series("num_requests_waiting", "gauge", |r| Some(r.waiting));
        series("kv_cache_usage_perc", "gauge", |r| r.kv_cache_usage);
        series("prefix_cache_queries_total", "counter", |r| Some(r.prefix_queries));
        series("prefix_cache_hits_total", "counter", |r| Some(r.prefix_hits));
        series("prompt_tokens_total", "counter", |r| Some(r.prompt_tokens));
        series("generation_tokens_total", "counter", |r| Some(r.generation_tokens));
        text += "# HELP vllm:engine_sleep_state As vLLM says it.\n# TYPE vllm:engine_sleep_state gauge\n";
        for rank in 0..self.ranks.len() {
            for (state, holds) in [("awake", !self.asleep), ("weights_offloaded", self.asleep)] {
                let labels = format!("engine=\"{rank}\",model_name=\"{}\",sleep_state=\"{state}\"", self.model);
                text += &format!("vllm:engine_sleep_state{{{labels}}} {:?}\n", f64::from(u8::from(holds)));
            }
        }
        if let Some(tokens) = self.kv_cache_tokens {
            text += "# HELP vllm:cache_config_info As vLLM says it.\n# TYPE vllm:cache_config_info gauge\n";
            for rank in 0..self.ranks.len() {
                text += &format!(
                    "vllm:cache_config_info{{block_size=\"16\",engine=\"{rank}\",kv_cache_size_tokens=\"{tokens}\"}} 1.0\n"
                );
            }
        }
        text
    }
}

/// The answer to a turn: in the dialect of its path, streamed if it asks so.
pub fn turn(request: &Request, usage: Usage) -> Answer {
    respond(request, usage, None)
}

/// The same, held after the first event of a stream or before the first byte of a whole answer.
pub fn turn_held(request: &Request, usage: Usage, gate: &Gate) -> Answer {
    respond(request, usage, Some(gate))
}

/// An error as vLLM words it.
pub fn error(status: &str) -> Answer {
    let code: u16 = status[..3].parse().unwrap();
    let message = format!("the engine says {code}");
    Answer::json(status, &json!({"error": {"message": message, "type": "ServerError", "param": null, "code": code}}))
}

/// The answer to a Responses request, of this id and in this thread.
pub fn response(request: &Request, id: &str, thread: Option<&str>) -> Answer {
    let response = |status: &str, usage: Value| {
        json!({"id": id, "object": "response", "model": "m", "status": status, "conversation": thread.map(|id| json!({"id": id})),
            "output": [], "usage": usage})
    };
    let done = response("completed", responses_usage(USAGE));
    if !is_streamed(request) {
        return Answer::json("200 OK", &done);
    }
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let events = [
        event(
            json!({"response": response("in_progress", Value::Null), "sequence_number": 0, "type": "response.created"}),
        ),
        event(
            json!({"delta": "Done.", "item_id": "msg_1", "sequence_number": 1, "type": "response.output_text.delta"}),
        ),
        event(json!({"response": done, "sequence_number": 2, "type": "response.completed"})),
    ];
    Answer::stream(&events, None)
}

fn is_streamed(request: &Request) -> bool {
    request.json().is_some_and(|body| body["stream"] == true)
}

fn responses_usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt, "output_tokens": usage.completion, "total_tokens": usage.prompt + usage.completion,
        "input_tokens_details": {"cached_tokens": usage.cached},
    })
}

fn respond(request: &Request, usage: Usage, gate: Option<&Gate>) -> Answer {
    let stream = is_streamed(request);
    let anthropic = request.path().starts_with("/v1/messages");
    if request.path().ends_with("/count_tokens") {
        return Answer::json("200 OK", &json!({"input_tokens": usage.prompt}));
    }
    match (stream, anthropic) {
        (true, true) => Answer::stream(&messages_events(usage), gate),
        (true, false) => Answer::stream(&chat_events(usage), gate),
        (false, anthropic) => {
            let answer = Answer::json("200 OK", &if anthropic { messages(usage) } else { chat(usage) });
            gate.map_or(answer.clone(), |gate| answer.after(gate))
        }
    }
}

fn chat(usage: Usage) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1795961819, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
        "usage": openai_usage(usage),
    })
}

fn chat_events(usage: Usage) -> Vec<String> {
    let event = |more: Value| {
        let mut event = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"});
        merge(&mut event, &more);
        format!("data: {event}\n\n")
    };
    let delta = |text: &str| event(json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    let last = event(json!({"choices": [], "usage": openai_usage(usage)}));
    vec![delta("Do"), delta("ne."), last, "data: [DONE]\n\n".into()]
}

fn messages(usage: Usage) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Done."}], "usage": anthropic_usage(usage),
    })
}

fn messages_events(usage: Usage) -> Vec<String> {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let start = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m",
        "usage": {"input_tokens": usage.prompt, "output_tokens": 0}});
    let opening = event(json!({"type": "message_start", "message": start}));
    let content = json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Done."}, "index": 0});
    vec![
        // An engine sends both with its first token.
        opening + &event(content),
        event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": anthropic_usage(usage)})),
        event(json!({"type": "message_stop"})),
    ]
}

fn openai_usage(usage: Usage) -> Value {
    let mut fields = json!({
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
    });
    if let Some(cached) = usage.cached {
        fields["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    fields
}

fn anthropic_usage(usage: Usage) -> Value {
    match usage.cached {
        None => json!({"input_tokens": usage.prompt, "output_tokens": usage.completion}),
        Some(cached) => json!({
            "input_tokens": usage.prompt - cached, "output_tokens": usage.completion,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached,
        }),
    }
}

/// Puts the fields of `more` into `into`, over those already there.
pub fn merge(into: &mut Value, more: &Value) {
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        into.extend(more.clone());
    }
}

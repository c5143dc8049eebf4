//! The prefix cache against a real vLLM: the same requests, the same counters, to the digit.
//!
//! `vllm_cache_script.json` holds the requests and what a vLLM counted for each of them.

use homing_bench::engine::{Engine, Event, Profile, Request, Snapshot, Usage};
use serde::Deserialize;

#[derive(Deserialize)]
struct Script {
    engine: ScriptEngine,
    requests: Vec<ScriptRequest>,
}

#[derive(Deserialize)]
struct ScriptEngine {
    block_size: u32,
    num_gpu_blocks: u32,
    max_model_len: u32,
}

#[derive(Deserialize)]
struct ScriptRequest {
    id: String,
    prompt: Vec<Part>,
    output: Part,
    queries: u64,
    hits: u64,
    cached_tokens: u32,
}

/// The first `len` tokens of a named segment, or one token `len` times.
#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Segment { seg: String, len: u32 },
    Repeated { token: u32, len: u32 },
}

impl Part {
    fn tokens(&self) -> Vec<u32> {
        match self {
            Self::Segment { seg, len } => {
                (0..*len).map(|index| 256 + fnv1a(&format!("{seg}:{index}")) % 3840).collect()
            }
            Self::Repeated { token, len } => vec![*token; *len as usize],
        }
    }
}

/// The 32-bit hash that the script's tokens are made with.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn engine(script: &ScriptEngine) -> Engine {
    let mut profile = Profile::load("a4000-qwen3-4b").unwrap();
    profile.engine.block_size = script.block_size;
    profile.engine.kv_cache_tokens = script.num_gpu_blocks * script.block_size;
    profile.engine.max_model_len = script.max_model_len;
    Engine::new(profile)
}

/// Sends one request and lets the engine finish it.
fn serve(engine: &mut Engine, now_s: &mut f64, id: u64, request: &ScriptRequest) -> Usage {
    let mut prompt = engine.prompt();
    request.prompt.iter().for_each(|part| prompt.extend(part.tokens()));
    let output = request.output.tokens();
    let max_tokens = output.len() as u32;
    engine.submit(*now_s, Request { id, prompt, output, max_tokens }).unwrap();
    let mut finished = None;
    while let Some(step) = engine.next_step(*now_s) {
        *now_s = step.end_s;
        finished = step.events.into_iter().find_map(|event| match event {
            Event::Finished { usage, .. } => Some(usage),
            Event::Token { .. } => None,
        });
    }
    finished.expect("the request finishes")
}

fn counted(before: &Snapshot, after: &Snapshot) -> (u64, u64) {
    let (before, after) = (before.prefix_cache, after.prefix_cache);
    (after.queries - before.queries, after.hits - before.hits)
}

#[test]
fn every_request_counts_what_it_counted_in_vllm() {
    let script: Script = serde_json::from_str(include_str!("vllm_cache_script.json")).unwrap();
    assert!(!script.requests.is_empty());
    let mut engine = engine(&script.engine);
    let mut now_s = 0.0;
    for (id, request) in (0..).zip(&script.requests) {
        let before = engine.snapshot();
        let usage = serve(&mut engine, &mut now_s, id, request);
        let (queries, hits) = counted(&before, &engine.snapshot());
        let figures = (queries, hits, usage.cached_tokens);
        assert_eq!(figures, (request.queries, request.hits, request.cached_tokens), "request {}", request.id);
    }
}

//! Configurations for the tests. They are written as JSON, which is YAML too.

use serde_json::{Value, json};

use super::engine::Engine;
use super::vllm::merge;

/// Several engines of one rank.
pub async fn engines<const N: usize>() -> [Engine; N] {
    let mut engines = Vec::new();
    for _ in 0..N {
        engines.push(Engine::start().await);
    }
    engines.try_into().unwrap_or_else(|_| unreachable!("N engines were started"))
}

/// A model served by these engines, with `more` settings.
pub fn model<'a>(name: &str, engines: impl IntoIterator<Item = &'a Engine>, more: Value) -> Value {
    let replicas: Vec<Value> = engines.into_iter().map(|engine| json!({"url": engine.url()})).collect();
    let mut model = json!({"name": name, "replicas": replicas});
    merge(&mut model, &more);
    model
}

/// A configuration of one model, `m`.
pub fn one_model<'a>(engines: impl IntoIterator<Item = &'a Engine>, more: Value) -> Value {
    json!({"models": [model("m", engines, more)]})
}

/// Adds what every test needs: free ports, and readings that are fresh soon.
pub fn complete(config: &Value) -> Value {
    let mut whole = json!({
        "listen": [{"address": "127.0.0.1:0"}],
        "admin": {"address": "127.0.0.1:0"},
        "scrape": {"interval": "100 ms"},
    });
    merge(&mut whole, config);
    whole
}

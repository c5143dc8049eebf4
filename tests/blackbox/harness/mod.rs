//! What the tests stand on: the balancer as a process, engines that do as they are told, and a client that
//! says every byte itself.

pub mod answer;
pub mod ask;
pub mod balancer;
pub mod callers;
pub mod client;
pub mod collector;
pub mod config;
pub mod engine;
pub mod full;
pub mod goaway_engine;
pub mod h2_client;
mod h2_engine;
pub mod names;
pub mod output;
pub mod pki;
pub mod prometheus;
pub mod raw_h2;
pub mod routing;
pub mod terminal;
pub mod vllm;
pub mod wire;

pub use answer::{Answer, Gate};
pub use ask::Ask;
pub use balancer::Balancer;
pub use callers::Callers;
pub use client::{Client, Response, ask_all};
pub use config::{engines, model, one_model};
pub use engine::Engine;
pub use h2_client::H2Client;
pub use names::Names;
pub use pki::Pki;

use std::future::Future;
use std::time::Duration;

/// How long an event may take before a test gives up on it. No test is faster or slower for it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for `event`; a test that waits in vain says for what.
pub async fn within<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(value) => value,
        Err(_) => panic!("waited {} s in vain for {what}", PATIENCE.as_secs()),
    }
}

/// Asks again until `state` has something to give: for what the balancer only shows when asked.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut state: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(value) = state().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

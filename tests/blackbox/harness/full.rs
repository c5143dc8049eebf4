//! A replica whose cache has room for two conversations, and whose turns end when the test says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::engine::Request;
use super::vllm::{self, Usage, turn_held};
use super::{Ask, Balancer, Client, Engine, Gate, Response, ask_all, one_model};

/// Tokens of a turn here. A conversation also counts what it may grow by, 500 tokens before anything is known.
const TOKENS: Usage = Usage { prompt: 100, cached: Some(0), completion: 7 };

/// Room for two such conversations, and not for three.
pub const ROOM_FOR_TWO: u64 = 1500;

/// A model's settings: room for two, idle conversations keep no place, and `more` about admission.
pub fn room_for_two(more: Value) -> Value {
    let mut admission = json!({"linger": "0 s"});
    vllm::merge(&mut admission, &more);
    json!({"kv_cache_tokens": ROOM_FOR_TWO, "spill_threshold": 1000, "admission": admission})
}

/// A turn of a conversation.
pub fn turn(id: &str) -> Ask {
    turn_on("/v1/chat/completions", id)
}

/// The same, in the dialect of that path.
pub fn turn_on(path: &str, id: &str) -> Ask {
    Ask::turn(path, "m", "Hello.").session(&format!("{CONVERSATION}{id}"))
}

/// Before each id, which alone would be too short for one.
const CONVERSATION: &str = "conversation-";

/// The conversation of a request that came to an engine.
fn id_of(request: &Request) -> String {
    request.header("x-session-id").and_then(|id| id.strip_prefix(CONVERSATION)).unwrap_or("none").to_string()
}

/// The replica, full: `held-1` and `held-2` have turns in flight there.
pub struct Full {
    pub engine: Engine,
    pub balancer: Balancer,
    gates: Gates,
    held: Vec<JoinHandle<Response>>,
}

/// By conversation.
type Gates = Arc<Mutex<HashMap<String, Gate>>>;

impl Full {
    /// With these settings of admission.
    pub async fn start(admission: Value) -> Full {
        Full::start_with(json!({}), admission).await
    }

    /// With these settings at the top of the configuration too.
    pub async fn start_with(top: Value, admission: Value) -> Full {
        Full::start_by(&[], top, admission).await
    }

    /// The same, where whoever holds the two places has to say who it is.
    pub async fn start_by(headers: &[(&str, &str)], top: Value, admission: Value) -> Full {
        let engine = Engine::start().await;
        let gates = Gates::default();
        let by_conversation = gates.clone();
        engine.answers(move |request| {
            let gate = by_conversation.lock().unwrap().entry(id_of(request)).or_insert_with(Gate::shut).clone();
            turn_held(request, TOKENS, &gate)
        });
        let mut config = one_model([&engine], room_for_two(admission));
        vllm::merge(&mut config, &top);
        let balancer = Balancer::start(config).await;
        let mut held = Vec::new();
        for id in ["held-1", "held-2"] {
            // Streamed, so that their bodies are let go.
            let ask = headers.iter().fold(turn(id).streamed(), |ask, (name, value)| ask.header(name, value));
            held.extend(ask_all(balancer.listen, [ask]));
            engine.saw_turns(held.len()).await;
        }
        Full { engine, balancer, gates, held }
    }

    /// The same engine with other settings of admission.
    pub async fn reload(&self, admission: Value) {
        let config = one_model([&self.engine], room_for_two(admission));
        assert_eq!(self.balancer.reload(&config).await.status, 200);
    }

    /// Asks, and waits until it is the `nth` that is parked.
    pub async fn park(&self, ask: &Ask, nth: u64) -> Client {
        let mut client = self.balancer.client().await;
        client.send(ask).await;
        self.parked(nth).await;
        client
    }

    /// Waits until so many are parked.
    pub async fn parked(&self, count: u64) {
        self.balancer.routing_when(&format!("{count} parked"), |routing| routing.parked() == count).await;
    }

    /// Lets the turns of a conversation end, now and from now on.
    pub fn end(&self, id: &str) {
        self.gates.lock().unwrap().entry(id.into()).or_insert_with(Gate::shut).open();
    }

    /// The conversations whose turns came to the engine, in that order.
    pub fn order(&self) -> Vec<String> {
        self.engine.requests().iter().map(|request| id_of(request)).collect()
    }

    /// Waits until the engine saw as many turns, and insists on whose the last one was.
    pub async fn came(&self, count: usize, id: &str) {
        self.engine.saw_turns(count).await;
        assert_eq!(self.order().last().map(String::as_str), Some(id), "{:?}", self.order());
    }

    /// Lets everything end, and insists that nothing is left and that the counts add up.
    pub async fn empties(&mut self) {
        for id in ["held-1", "held-2"] {
            self.end(id);
        }
        for answer in self.held.drain(..) {
            assert_eq!(answer.await.unwrap().status, 200);
        }
        adds_up(&self.balancer).await;
    }
}

/// Waits until nothing is in flight or parked, and insists that every wait had one end.
pub async fn adds_up(balancer: &Balancer) {
    let done = |routing: &super::routing::Routing| routing.total("in_flight") == 0 && routing.parked() == 0;
    let routing = balancer.routing_when("nothing in flight or parked", done).await;
    let [parked, admitted, left, overdue] =
        ["parked", "admitted", "left", "overdue"].map(|name| routing.admission(name));
    assert_eq!(parked, admitted + left + overdue, "{}", routing.0["admission"]);
    balancer.metric_becomes("homing_requests_total", &[], routing.decided() as f64).await;
    balancer.metric_becomes("homing_parked_seconds_count", &[], parked as f64).await;
    let metrics = balancer.metrics().await;
    assert_eq!(metrics.sum("homing_parked_total", &[]), parked as f64);
    let outcomes = metrics.sum("homing_parked_outcomes_total", &[]) - routing.admission("full") as f64;
    assert_eq!(outcomes, parked as f64);
    for gauge in ["homing_parked", "homing_model_in_flight", "homing_replica_in_flight", "homing_buffered_bytes"] {
        assert_eq!(metrics.sum(gauge, &[]), 0.0, "{gauge}");
    }
}

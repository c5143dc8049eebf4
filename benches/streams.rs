//! What many idle streams cost: memory of the balancer for each, and what they do to the overhead of a new turn.

#[allow(dead_code, unused_imports, reason = "the harness serves the tests; this uses a part of it")]
#[path = "../tests/blackbox/harness/mod.rs"]
mod harness;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use harness::answer::{chunk, stream_head};
use harness::{Answer, Ask, Balancer, Client, Engine, Gate, model};
use serde_json::json;

const STREAMS: usize = 5000;
/// Events that each has brought when it falls silent.
const EVENTS: usize = 5;
/// Bytes of the prompts: a first word, and an agent that resends its history.
const PROMPTS: [usize; 2] = [6, 100_000];
const TURNS: usize = 1000;
/// A token as vLLM sends it.
const EVENT: &[u8] = br#"data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"held","choices":[{"index":0,"delta":{"content":" fox"},"logprobs":null,"finish_reason":null}]}

"#;

/// Streams opened at once.
const AT_ONCE: usize = 50;

/// Two sockets for each stream here, and some for everything else; the balancer raises its own.
const FILES: u64 = 3 * STREAMS as u64 + 1000;

fn main() {
    let files = rlimit::increase_nofile_limit(FILES).expect("the limit of open files");
    assert!(files >= FILES, "{files} open files are allowed, and {FILES} needed: raise the limit (ulimit -Hn)");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for prompt in PROMPTS {
        runtime.block_on(measure(prompt));
    }
}

async fn measure(prompt: usize) {
    let (held, free) = (Engine::start().await, Engine::start().await);
    // Two threads serve clients, as on two cores; admission would look at what the streams hold.
    let models = [
        model("held", [&held], json!({"admission": "off", "spill_threshold": 65_536})),
        model("free", [&free], json!({"admission": "off"})),
    ];
    let config = json!({"models": models, "server": {"threads": 2, "access_log": "off"}});
    let balancer = Balancer::start(config).await;
    let shut = Gate::shut();
    held.answers(move |_| {
        let events = (0..EVENTS).fold(Answer::new().send(stream_head()), |answer, _| answer.send(chunk(EVENT)));
        events.wait(&shut)
    });

    let alone = overhead(&balancer, &free).await;
    let before = balancer.resident_bytes();
    let mut streams = Vec::new();
    while streams.len() < STREAMS {
        let opening = (0..AT_ONCE).map(|_| open(balancer.listen, prompt));
        streams.extend(futures::future::join_all(opening).await);
    }
    let held_bytes = balancer.resident_bytes() - before;
    let among = overhead(&balancer, &free).await;
    println!(
        "{STREAMS} idle streams after {EVENTS} events each, asked for in {prompt} bytes; each has two connections:"
    );
    println!("  memory of the balancer: {:.1} KB each", held_bytes as f64 / STREAMS as f64 / 1000.0);
    println!("  overhead of a turn, median and 99 %: {} without them, {} beside them", shown(&alone), shown(&among));
    assert_eq!(balancer.routing_of("held").await.total("in_flight"), STREAMS as u64, "every one is still held");
    drop(streams);
}

/// Begins a stream, and reads it up to where the engine holds it.
async fn open(balancer: SocketAddr, prompt: usize) -> Client {
    let mut client = Client::connect(balancer).await;
    client.send(&Ask::chat("held", &"Hello ".repeat(prompt / 6)).streamed()).await;
    client.head().await;
    let mut events = 0;
    while events < EVENTS {
        // A piece may bring several.
        events += client.piece().await.expect("the stream goes on").matches("\n\n").count();
    }
    client
}

/// By how much a turn through the balancer takes longer than one without it, at the median and at 99 %.
async fn overhead(balancer: &Balancer, engine: &Engine) -> [Duration; 2] {
    let (through, straight) = (turns(balancer.listen).await, turns(engine.address).await);
    [0.5, 0.99].map(|share| at(&through, share).saturating_sub(at(&straight, 0.5)))
}

async fn turns(address: SocketAddr) -> Vec<Duration> {
    let mut client = Client::connect(address).await;
    let mut took = Vec::new();
    for _ in 0..TURNS {
        let asked = Instant::now();
        assert_eq!(client.ask(&Ask::chat("free", "Hello.")).await.status, 200);
        took.push(asked.elapsed());
    }
    took.sort();
    took
}

fn at(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn shown([median, most]: &[Duration; 2]) -> String {
    format!("{median:.2?} and {most:.2?}")
}

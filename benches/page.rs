//! What the page costs the balancer with many replicas: the time to serve a part, and the share of a core that an open page
//! takes; how long a turn takes meanwhile; and what its charts cost with a full hour of history, which no benchmark can wait for.

#[allow(dead_code, unused_imports, reason = "the harness serves the tests; this uses a part of it")]
#[path = "../tests/blackbox/harness/mod.rs"]
mod harness;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::{Ask, Balancer, Client, Engine, model};
use homing::admin::charts;
use homing::config::Config;
use homing::fleet::Fleet;
use homing::history::{Ended, History, Span};
use serde_json::{Value, json};

const MODELS: usize = 20;
const ENGINES: usize = 64;
const POLLS: usize = 100;
const TURNS: usize = 2000;
/// Pages that are open at once while turns are timed.
const PAGES_OPEN: f64 = 20.0;

/// A part of the page, and how often its script asks for it, in seconds.
const PARTS: [(&str, f64); 3] =
    [("/panel/models", 2.0), ("/panel/decisions", 2.0), ("/panel/history?width=1200", 10.0)];

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut engines = Vec::new();
        for _ in 0..ENGINES {
            engines.push(Engine::start().await);
        }
        let spread = |index: usize| engines.iter().skip(index).step_by(MODELS).collect();
        measure(&format!("{MODELS} models, {ENGINES} replicas in all"), spread).await;
        measure(&format!("{MODELS} models of {ENGINES} replicas each"), |_| engines.iter().collect()).await;
    });
    full_hour();
}

/// The charts as the balancer makes them, of histories that are full.
fn full_hour() {
    let models: Vec<Value> = (0..MODELS)
        .map(|index| json!({"name": format!("model-{index}"), "replicas": [{"url": "http://127.0.0.1:8101"}]}))
        .collect();
    let config = Config::parse(Path::new("homing.yaml"), &json!({"models": models}).to_string()).expect("it checks");
    for span in [Span::Hour, Span::Day] {
        let fleet = Fleet::new(&config);
        fleet.models().iter().for_each(|model| fill(&mut model.history.lock(), span));
        let mut took = Vec::new();
        let mut bytes = 0;
        for _ in 0..POLLS {
            let asked = Instant::now();
            bytes = charts(&fleet, &format!("span={}&width=1200", span.name())).len();
            took.push(asked.elapsed());
        }
        took.sort();
        let (median, longest) = (took[POLLS / 2], took[POLLS - 1]);
        println!(
            "the charts of a full {}: median {median:?}, longest {longest:?}, {} KiB; an open page takes {:.2} % of a core for them",
            span.name(),
            bytes >> 10,
            100.0 * median.as_secs_f64() / PARTS[2].1
        );
    }
}

/// Fills every bucket of a span, with requests that differ.
fn fill(history: &mut History, span: Span) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("the present is after 1970").as_secs();
    let buckets = span.buckets() as u64;
    for bucket in 1..=buckets {
        for request in 0..20 {
            history.note(&Ended {
                routed: true,
                prompt: Some(10_000 + 500 * ((bucket + request) % 7)),
                cached: Some(900 * ((bucket * request) % 11)),
                completion: 200 + bucket % 13,
                first_byte_s: Some(0.1 * (1 + (bucket + request) % 17) as f64),
                parked_s: (request % 5 == 0).then_some((bucket % 9) as f64),
            });
        }
        history.tick((now_s / span.step_s() - buckets + bucket) * span.step_s(), bucket % 4);
    }
}

async fn measure<'a>(what: &str, engines_of: impl Fn(usize) -> Vec<&'a Engine>) {
    let models: Vec<Value> =
        (0..MODELS).map(|index| model(&format!("model-{index}"), engines_of(index), json!({}))).collect();
    // Readings would be counted too.
    let balancer = Balancer::start(json!({"models": models, "scrape": {"interval": "5 min"}})).await;
    let mut client = balancer.client().await;
    for turn in 0..400 {
        let ask = Ask::chat(&format!("model-{}", turn % MODELS), "Hello.").session(&format!("conversation-{turn}"));
        assert_eq!(client.ask(&ask).await.status, 200);
    }
    println!("{what}:");
    let mut share = 0.0;
    let mut admin = Client::connect(balancer.admin).await;
    for (path, every_s) in PARTS {
        let (mut took, before) = (Vec::new(), cpu(&balancer));
        let mut bytes = 0;
        for _ in 0..POLLS {
            let asked = Instant::now();
            bytes = admin.ask(&Ask::get(path)).await.body.len();
            took.push(asked.elapsed());
        }
        let each = (cpu(&balancer) - before) / POLLS as u32;
        share += each.as_secs_f64() / every_s;
        took.sort();
        println!(
            "  {path}: median {:?}, longest {:?}, {each:?} of a core, {} KiB",
            took[POLLS / 2],
            took[POLLS - 1],
            bytes >> 10
        );
    }
    println!("  an open page takes {:.2} % of a core", 100.0 * share);
    println!("  a turn: {}", turns(&mut client).await);
    let open = tokio::spawn(async move {
        loop {
            admin.ask(&Ask::get(PARTS[0].0)).await;
            admin.ask(&Ask::get(PARTS[1].0)).await;
            tokio::time::sleep(Duration::from_secs_f64(PARTS[0].1 / PAGES_OPEN)).await;
        }
    });
    println!("  with {PAGES_OPEN} pages open: {}", turns(&mut client).await);
    open.abort();
}

/// How long turns of conversations that stay take, one after the other.
async fn turns(client: &mut Client) -> String {
    let mut took = Vec::new();
    for turn in 0..TURNS {
        let ask =
            Ask::chat(&format!("model-{}", turn % MODELS), "Hello.").session(&format!("conversation-{}", turn % 400));
        let asked = Instant::now();
        assert_eq!(client.ask(&ask).await.status, 200);
        took.push(asked.elapsed());
    }
    took.sort();
    format!("median {:?}, 95 % {:?}, 99 % {:?}", took[TURNS / 2], took[TURNS * 95 / 100], took[TURNS * 99 / 100])
}

/// The processor time that the balancer has taken; Linux counts it in hundredths of a second.
fn cpu(balancer: &Balancer) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", balancer.pid())).expect("the process's figures");
    let fields: Vec<i64> =
        stat.rsplit(") ").next().unwrap_or_default().split(' ').filter_map(|field| field.parse().ok()).collect();
    // utime and stime are fields 14 and 15 of all; the first after the name (the state) is no number.
    Duration::from_millis(10 * (fields[10] + fields[11]).unsigned_abs())
}

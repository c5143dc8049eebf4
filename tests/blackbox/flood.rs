//! Ten thousand requests of every kind, a third of them cut off: what enters leaves, once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::ask::DIALECTS;
use crate::harness::routing::DECISIONS;
use crate::harness::vllm::{USAGE, error, turn};
use crate::harness::*;

const REQUESTS: usize = 10_000;
const CALLERS: usize = 32;

/// What one request does. A third of them do not wait for their answer.
#[derive(Clone, Copy)]
enum Way {
    /// Waits for the whole answer.
    Whole,
    /// Leaves within its body, so that there is nothing to route.
    LeavesInBody,
    /// Leaves as soon as it has asked.
    LeavesAtOnce,
    /// Leaves at the first byte of the answer, and by a reset.
    LeavesInAnswer,
}

#[derive(Default)]
struct Tally {
    whole: AtomicUsize,
    in_body: AtomicUsize,
    at_once: AtomicUsize,
    in_answer: AtomicUsize,
}

fn way(n: usize) -> Way {
    match n % 9 {
        0 => Way::LeavesInBody,
        3 => Way::LeavesAtOnce,
        6 => Way::LeavesInAnswer,
        _ => Way::Whole,
    }
}

/// The nth request: its dialect, size, framing, conversation and streaming all vary, with periods that do not align.
fn ask(n: usize) -> Ask {
    let text = "word ".repeat(match n % 50 {
        0 => 20_000,
        n => 20 * n,
    });
    let mut ask = Ask::turn(DIALECTS[n % 2], "m", &text).session(&format!("session-{}", n % 700));
    if n % 4 < 2 {
        ask = ask.streamed();
    }
    if n.is_multiple_of(10) {
        ask = ask.header("x-data-parallel-rank", if n.is_multiple_of(20) { "0" } else { "9" });
    }
    if n.is_multiple_of(5) { ask.chunked(4096) } else { ask }
}

async fn call(address: SocketAddr, next: Arc<AtomicUsize>, tally: Arc<Tally>) {
    let mut kept = Client::connect(address).await;
    loop {
        let n = next.fetch_add(1, Ordering::SeqCst);
        if n >= REQUESTS {
            return;
        }
        let ask = ask(n);
        let count = match way(n) {
            Way::Whole => {
                let answer = kept.ask(&ask).await;
                assert!([200, 400, 503].contains(&answer.status), "{}: {}", answer.status, answer.text());
                &tally.whole
            }
            Way::LeavesInBody => {
                let mut client = Client::connect(address).await;
                client.send_bytes(&ask.head_bytes()).await;
                client.send_bytes(&ask.body_bytes()[..30]).await;
                &tally.in_body
            }
            Way::LeavesAtOnce => {
                Client::connect(address).await.send(&ask).await;
                &tally.at_once
            }
            Way::LeavesInAnswer => {
                let mut client = Client::connect(address).await;
                client.send(&ask).await;
                client.head().await;
                client.wire.reset_on_drop();
                &tally.in_answer
            }
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn what_enters_leaves_once() {
    let engines = engines::<4>().await;
    engines[3].answers(|request| match request.body.len() % 7 {
        0 => error("503 Service Unavailable"),
        1 => Answer::new().close(),
        2 => error("400 Bad Request"),
        _ => turn(request, USAGE),
    });
    let mut config = one_model(&engines, json!({"spill_threshold": 4}));
    config["server"] = json!({"access_log": "json"});
    let balancer = Balancer::start(config).await;
    let (next, tally) = (Arc::new(AtomicUsize::new(0)), Arc::new(Tally::default()));
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(call(balancer.listen, next.clone(), tally.clone()))).collect();
    for caller in callers {
        caller.await.expect("a caller that was answered");
    }

    let done = balancer.idle().await;
    assert!(done.column("in_flight").iter().all(|count| *count == 0), "{:?}", done.column("in_flight"));
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst) as u64;
    let (whole, in_answer, at_once) = (count(&tally.whole), count(&tally.in_answer), count(&tally.at_once));
    assert_eq!(whole + in_answer + at_once + count(&tally.in_body), REQUESTS as u64);
    assert!(REQUESTS as u64 - whole >= REQUESTS as u64 / 3, "a third is cut off");

    // Those that left at once may or may not have been routed; all the others are certain.
    let lines = balancer.output.count("the access log", REQUESTS - at_once as usize, request_line).await;
    assert!(lines.len() <= REQUESTS);
    let routing = balancer.idle().await;
    let decided = routing.decided();
    assert!(
        (whole + in_answer..=whole + in_answer + at_once).contains(&decided),
        "{decided}: {:?}",
        routing.0["totals"]
    );
    assert!(DECISIONS[..3].iter().all(|decision| routing.total(decision) > 0), "{}", routing.0["totals"]);
    assert!(routing.total("failed_over") > 0);
    balancer.metric_becomes("homing_requests_total", &[], decided as f64).await;
    let metrics = balancer.metrics().await;
    for decision in DECISIONS {
        let logged = async || {
            let lines = balancer.output.lines();
            let of = lines.iter().filter_map(|line| request_line(line)).filter(|line| line["decision"] == decision);
            (of.count() as u64 == routing.total(decision)).then_some(())
        };
        until(&format!("as many lines of {decision} as were counted"), logged).await;
        assert_eq!(metrics.sum("homing_requests_total", &[("decision", decision)]), routing.total(decision) as f64);
    }
    for gauge in ["homing_model_in_flight", "homing_replica_in_flight", "homing_buffered_bytes"] {
        assert_eq!(metrics.sum(gauge, &[]), 0.0, "{gauge}");
    }
    // An engine sees each request routed, once for each try, but for those whose client was gone before it was sent.
    let seen = engines.iter().map(Engine::turns).sum::<usize>() as u64;
    let tries = decided + routing.total("failed_over");
    assert!((tries - at_once..=tries).contains(&seen), "{seen} arrived, {tries} were tried");
    assert_eq!(balancer.ask(&ask(1)).await.status, 200);
}

fn request_line(line: &str) -> Option<Value> {
    line.starts_with('{').then(|| serde_json::from_str(line).ok())?
}

//! What a routing decision takes, with 100,000 conversations in the table; what a million of them take in memory; and what
//! finding the model and the session in a body of 2 MB takes.

#[allow(dead_code, reason = "another benchmark compares too")]
mod report;

use std::hint::black_box;
use std::time::{Duration, Instant};

use homing::request::peek;
use homing::routing::{Admission, Ask, EngineSpec, Key, Reading, Recovery, Router, Settings, Time, Tokens, Verdict};
use report::Row;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONVERSATIONS: u128 = 100_000;
const TOKENS: Tokens = Tokens { prompt: 10_000, cached: Some(0), completion: 250 };

/// How long each figure is measured for, and in how many parts, of which the median counts.
const MEASURED: Duration = Duration::from_millis(500);
const PARTS: u32 = 50;

/// Measures something of a router.
type Measure = fn(&str, Router) -> Row;

fn main() {
    let mut rows = vec![memory_of(1_000_000)];
    let kinds: [(&str, Measure); 2] = [("a turn of a conversation", sticky), ("a new conversation", new)];
    for (replicas, reach_us) in [(8, 1.0), (1000, 10.0)] {
        for (admission, mode) in [(Admission::off(), "off"), (Admission::default(), "auto")] {
            for (kind, measure) in kinds {
                let what = format!("{kind}, {replicas} replicas, admission {mode}");
                rows.push(
                    measure(&what, full_router(replicas, admission.clone(), 0.5, CONVERSATIONS)).at_most(reach_us),
                );
            }
        }
    }
    let mut with_one_back = full_router(1000, Admission::default(), 0.5, CONVERSATIONS);
    with_one_back.set_up(0, false);
    with_one_back.set_up(0, true);
    let what = "a new conversation, 1000 replicas of which one has come back, admission auto";
    rows.push(new(what, with_one_back).at_most(10.0));
    let parked = full_router(64, Admission::default(), 1.0, CONVERSATIONS);
    rows.push(waiting("a new conversation that has to wait, 64 replicas", parked));
    let mut kept = full_router(8, Admission::default(), 0.5, CONVERSATIONS);
    rows.push(time("saving 100,000 conversations, for which the router is locked", || {
        _ = black_box(kept.save(Time(0)))
    }));
    let saved = kept.save(Time(0));
    rows.push(time("restoring them at the start", || kept.restore(&saved, Duration::ZERO, Time(0))));
    for (name, words) in [("prose", "the quick brown fox "), ("code", r#"let a = b;\n\tcall(\"c\");"#)] {
        let body = body(words);
        rows.push(time(&format!("finding model and session in 2 MB of {name}"), || {
            _ = black_box(peek(black_box(body.as_bytes())).is_ok());
        }));
    }
    report::print("Routing", &rows);
}

/// Microseconds that `work` takes, the median of all parts.
fn time(what: &str, mut work: impl FnMut()) -> Row {
    let mut times = |times: u32| {
        let began = Instant::now();
        (0..times).for_each(|_| work());
        began.elapsed()
    };
    let once = times(3) / 3;
    let count = (MEASURED.as_nanos() / u128::from(PARTS) / once.as_nanos().max(1)).clamp(1, 100_000) as u32;
    let mut parts: Vec<Duration> = (0..PARTS).map(|_| times(count)).collect();
    parts.sort();
    Row::new(what, (parts[PARTS as usize / 2] / count).as_secs_f64() * 1e6, "µs".into())
}

/// A router with every conversation at home and nothing in flight, and every cache filled to `filled`.
fn full_router(replicas: usize, admission: Admission, filled: f64, conversations: u128) -> Router {
    let engines: Vec<EngineSpec> =
        (0..replicas).map(|index| EngineSpec { name: format!("engine-{index}:8000"), data_parallel_size: 1 }).collect();
    let settings = Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: Duration::from_secs(1800),
        conversations_max: conversations as usize,
        admission,
        recovery: Recovery::default(),
    };
    let mut router = Router::new(settings, &engines);
    let tokens = conversations as f64 / replicas as f64 * (TOKENS.prompt + 2 * TOKENS.completion) as f64;
    let reading =
        Reading { kv_cache_usage: Some(0.5), capacity_tokens: Some((tokens / filled) as u64), ..Reading::default() };
    for engine in 0..replicas {
        router.read(engine, &[reading], Time(0));
    }
    for conversation in 0..conversations {
        serve(&mut router, conversation, Time(0));
    }
    router
}

/// What the whole process grows by, in megabytes, while a router learns of so many conversations.
fn memory_of(conversations: u128) -> Row {
    let before = resident_bytes();
    let mut router = full_router(8, Admission::default(), 0.5, conversations);
    let grown = resident_bytes() - before;
    assert_eq!(router.snapshot(Time(0)).conversations as u128, conversations);
    Row::new("memory of 1,000,000 conversations, 8 replicas, admission auto", grown / 1e6, "MB".into()).at_most(200.0)
}

fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the figures of the process");
    let resident: f64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the resident pages");
    resident * 4096.0
}

fn ask(conversation: u128) -> Ask {
    // Spread over all bits, as the true keys are.
    let key = Key::new(conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    Ask { bytes: 4 * TOKENS.prompt, ..Ask::of(Some(key)) }
}

/// A turn comes and ends. If it is parked, its client leaves. Returns whether it was.
fn serve(router: &mut Router, conversation: u128, now: Time) -> bool {
    let verdict = router.route(black_box(&ask(conversation)), now);
    match &verdict {
        Some(Verdict::Go(turn)) => _ = router.finish(turn, Some(TOKENS), now),
        Some(Verdict::Parked(ticket)) => router.leave(*ticket, now),
        _ => {}
    }
    matches!(verdict, Some(Verdict::Parked(_)))
}

/// Turns of known conversations, all over the table.
fn sticky(what: &str, mut router: Router) -> Row {
    let mut turn = 0;
    time(what, || {
        turn = (turn + 7919) % CONVERSATIONS;
        assert!(!serve(&mut router, turn, Time(0)), "it has its place");
    })
}

/// One each millisecond: by the time that a place is needed, those before have left it.
fn new(what: &str, mut router: Router) -> Row {
    let mut come = 0;
    time(what, || {
        come += 1;
        assert!(!serve(&mut router, CONVERSATIONS + u128::from(come), Time(come)), "there is a place");
    })
}

/// All at the same time, in which no place becomes free.
fn waiting(what: &str, mut router: Router) -> Row {
    let mut conversation = CONVERSATIONS;
    time(what, || {
        conversation += 1;
        assert!(serve(&mut router, conversation, Time(0)), "there is no place");
    })
}

/// A body in the key order of Claude Code, with messages of `words` until it is 2 MB long.
fn body(words: &str) -> String {
    let message = format!(r#"{{"role":"user","content":"{}"}}"#, words.repeat(8000 / words.len()));
    let messages = vec![message; 2_000_000 / 8000].join(",");
    let session = r#"{\"session_id\":\"11111111-2222-3333-4444-555555555555\"}"#;
    format!(r#"{{"model":"m","messages":[{messages}],"metadata":{{"user_id":"{session}"}},"stream":true}}"#)
}

//! What a routing decision takes, with 100,000 conversations in the table.

use divan::{Bencher, black_box};
use homing::routing::{Admission, Ask, EngineSpec, Key, Reading, Recovery, Router, Settings, Time, Tokens, Verdict};

const CONVERSATIONS: u128 = 100_000;
const REPLICAS: [usize; 2] = [8, 1000];
const REPLICAS_ADMITTED: [usize; 2] = [8, 64];

fn main() {
    divan::main();
}

/// A router with every conversation at home and nothing in flight. With admission, every cache is filled to `filled`.
fn full_router(replicas: usize, admission: Admission, filled: f64) -> Router {
    let engines: Vec<EngineSpec> =
        (0..replicas).map(|index| EngineSpec { name: format!("engine-{index}:8000"), data_parallel_size: 1 }).collect();
    let settings = Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: std::time::Duration::from_secs(1800),
        conversations_max: CONVERSATIONS as usize,
        admission,
        recovery: Recovery::default(),
    };
    let mut router = Router::new(settings, &engines);
    let tokens = CONVERSATIONS as f64 / replicas as f64 * (TOKENS.prompt + 2 * TOKENS.completion) as f64;
    let reading =
        Reading { kv_cache_usage: Some(0.5), capacity_tokens: Some((tokens / filled) as u64), ..Reading::default() };
    for engine in 0..replicas {
        router.read(engine, &[reading], Time(0));
    }
    for conversation in 0..CONVERSATIONS {
        serve(&mut router, conversation);
    }
    router
}

const TOKENS: Tokens = Tokens { prompt: 10_000, cached: Some(0), completion: 250 };

fn ask(conversation: u128) -> Ask {
    // Spread over all bits, as the true keys are.
    let key = Key::new(conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    Ask { bytes: 4 * TOKENS.prompt, ..Ask::of(Some(key)) }
}

/// A turn comes and ends. If it is parked, its client leaves.
fn serve(router: &mut Router, conversation: u128) {
    match router.route(black_box(&ask(conversation)), Time(0)) {
        Some(Verdict::Go(turn)) => _ = router.finish(&turn, Some(TOKENS), Time(0)),
        Some(Verdict::Parked(ticket)) => router.leave(ticket, Time(0)),
        _ => {}
    }
}

fn sticky(bencher: Bencher, mut router: Router) {
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 7919) % CONVERSATIONS;
        serve(&mut router, turn);
    });
}

fn new(bencher: Bencher, mut router: Router) {
    let mut conversation = CONVERSATIONS;
    bencher.bench_local(|| {
        conversation += 1;
        serve(&mut router, conversation);
    });
}

#[divan::bench(args = REPLICAS)]
fn rule_sticky_turn(bencher: Bencher, replicas: usize) {
    sticky(bencher, full_router(replicas, Admission::off(), 0.5));
}

#[divan::bench(args = REPLICAS)]
fn rule_new_conversation(bencher: Bencher, replicas: usize) {
    new(bencher, full_router(replicas, Admission::off(), 0.5));
}

#[divan::bench(args = REPLICAS_ADMITTED)]
fn admission_sticky_turn(bencher: Bencher, replicas: usize) {
    sticky(bencher, full_router(replicas, Admission::default(), 0.5));
}

#[divan::bench(args = REPLICAS_ADMITTED)]
fn admission_new_conversation(bencher: Bencher, replicas: usize) {
    new(bencher, full_router(replicas, Admission::default(), 0.5));
}

#[divan::bench(args = REPLICAS_ADMITTED)]
fn admission_parked(bencher: Bencher, replicas: usize) {
    new(bencher, full_router(replicas, Admission::default(), 1.0));
}

/// What the router is locked for while its conversations are saved.
#[divan::bench(sample_count = 20)]
fn save(bencher: Bencher) {
    let router = full_router(8, Admission::default(), 0.5);
    bencher.bench_local(|| black_box(router.save(Time(0))));
}

/// What the process waits for at its start.
#[divan::bench(sample_count = 20)]
fn restore(bencher: Bencher) {
    let saved = full_router(8, Admission::default(), 0.5).save(Time(0));
    bencher.with_inputs(|| full_router(8, Admission::default(), 0.5)).bench_local_values(|mut router| {
        router.restore(&saved, std::time::Duration::ZERO, Time(0));
        router
    });
}

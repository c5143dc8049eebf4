//! What a routing decision takes, with 100,000 conversations in the table.

use divan::{Bencher, black_box};
use homing::routing::{Ask, EngineSpec, Key, Pin, Reading, Router, Settings, Time};

const CONVERSATIONS: u128 = 100_000;
const REPLICAS: [usize; 2] = [8, 1000];

fn main() {
    divan::main();
}

/// A router with every conversation at home and nothing in flight.
fn full_router(replicas: usize) -> Router {
    let engines: Vec<EngineSpec> =
        (0..replicas).map(|index| EngineSpec { name: format!("engine-{index}:8000"), data_parallel_size: 1 }).collect();
    let settings = Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: std::time::Duration::from_secs(1800),
        conversations_max: CONVERSATIONS as usize,
    };
    let mut router = Router::new(settings, &engines);
    let reading = Reading { kv_cache_usage: Some(0.5), ..Reading::default() };
    for engine in 0..replicas {
        router.read(engine, &[reading], Time(0));
    }
    for conversation in 0..CONVERSATIONS {
        serve(&mut router, conversation);
    }
    router
}

fn key(conversation: u128) -> Key {
    // Spread over all bits, as the true keys are.
    Key::new(conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn serve(router: &mut Router, conversation: u128) {
    let ask = Ask { key: Some(key(conversation)), pin: Pin::None };
    if let Some(route) = router.route(black_box(&ask), Time(0)) {
        router.finish(&route.target);
    }
}

#[divan::bench(args = REPLICAS)]
fn sticky_turn(bencher: Bencher, replicas: usize) {
    let mut router = full_router(replicas);
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 7919) % CONVERSATIONS;
        serve(&mut router, turn);
    });
}

#[divan::bench(args = REPLICAS)]
fn new_conversation(bencher: Bencher, replicas: usize) {
    let mut router = full_router(replicas);
    let mut conversation = CONVERSATIONS;
    bencher.bench_local(|| {
        conversation += 1;
        serve(&mut router, conversation);
    });
}

//! What must hold of the pure core whatever happens to it.

use std::collections::HashMap;
use std::time::Duration;

use homing::routing::{
    Admission, Ask, Decision, EngineSpec, Key, Pin, Reading, Retry, Router, Settings, Time, Turn, Verdict,
};
use proptest::prelude::*;

const CONVERSATIONS_MAX: usize = 20;

/// Anything that can happen to a router.
#[derive(Clone, Debug)]
enum Event {
    Turn { key: Option<u128>, pin: Pin, stored: Option<u128> },
    Keep { which: usize, stored: u128 },
    Finish { which: usize },
    FailOver { which: usize, reached: bool },
    Read { engine: usize, prompt_tokens: u64, kv: f64 },
    Health { engine: usize, up: bool },
    Configure { first: usize, engines: usize, affinity: bool },
    Wait { seconds: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let pin = prop_oneof![
        8 => Just(Pin::None),
        1 => (0..6u32).prop_map(Pin::Rank),
        1 => Just(Pin::Invalid),
    ];
    prop_oneof![
        10 => (prop::option::weighted(0.9, 0..40u128), pin, prop::option::weighted(0.3, 0..40u128))
            .prop_map(|(key, pin, stored)| Event::Turn { key, pin, stored }),
        3 => (any::<usize>(), 0..40u128).prop_map(|(which, stored)| Event::Keep { which, stored }),
        8 => any::<usize>().prop_map(|which| Event::Finish { which }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, reached)| Event::FailOver { which, reached }),
        2 => (0..8usize, 0..1000u64, 0.0..1.0).prop_map(|(engine, prompt_tokens, kv)| Event::Read {
            engine,
            prompt_tokens,
            kv
        }),
        1 => (0..8usize, any::<bool>()).prop_map(|(engine, up)| Event::Health { engine, up }),
        1 => (0..4usize, 1..5usize, any::<bool>())
            .prop_map(|(first, engines, affinity)| Event::Configure { first, engines, affinity }),
        2 => (0..400u64).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

fn settings(affinity: bool) -> Settings {
    Settings {
        affinity,
        spill_threshold: 2,
        idle_forget: Duration::from_secs(600),
        conversations_max: CONVERSATIONS_MAX,
        admission: Admission::off(),
    }
}

/// Every second engine has ranks.
fn engines(first: usize, count: usize) -> Vec<EngineSpec> {
    let ranks = |index| if index % 2 == 1 { 3 } else { 1 };
    (first..first + count)
        .map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: ranks(index) })
        .collect()
}

fn go(verdict: Option<Verdict>) -> Turn {
    match verdict {
        Some(Verdict::Go(turn)) => turn,
        other => panic!("there is always an engine, and nothing waits: {other:?}"),
    }
}

/// A router, and what a client of it knows.
struct World {
    router: Router,
    now: Time,
    in_flight: Vec<(Ask, Vec<usize>, Turn)>,
    routed: u64,
}

impl World {
    fn new() -> World {
        World { router: Router::new(settings(true), &engines(0, 4)), now: Time(0), in_flight: Vec::new(), routed: 0 }
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Turn { key, pin, stored } => {
                let ask = Ask { pin, stored: stored.map(Key::new), ..Ask::of(key.map(Key::new)) };
                if self.router.is_gone(&ask) {
                    assert!(matches!(self.router.route(&ask, self.now), Some(Verdict::Gone)));
                    return;
                }
                let route = go(self.router.route(&ask, self.now));
                let engine_chose = matches!(route.decision, Decision::Unrouted | Decision::ClientPinned);
                assert!(engine_chose || route.target.replica.is_some(), "what is routed has a replica");
                self.in_flight.push((ask, vec![route.target.engine], route));
                self.routed += 1;
            }
            Event::Keep { which, stored } if !self.in_flight.is_empty() => {
                let (_, _, turn) = &self.in_flight[which % self.in_flight.len()];
                self.router.keeps(&turn.target, Key::new(stored));
            }
            Event::Finish { which } if !self.in_flight.is_empty() => {
                let (_, _, turn) = self.in_flight.swap_remove(which % self.in_flight.len());
                self.router.finish(&turn, None, self.now);
            }
            Event::FailOver { which, reached } if !self.in_flight.is_empty() => {
                let index = which % self.in_flight.len();
                let (ask, tried, turn) = &mut self.in_flight[index];
                let why = if reached { Retry::Refused } else { Retry::Unreachable };
                if let Some(next) = self.router.retry(ask, turn, tried, why, self.now) {
                    assert!(!tried.contains(&next.target.engine), "no engine is tried twice");
                    tried.push(next.target.engine);
                    *turn = next;
                }
            }
            Event::Read { engine, prompt_tokens, kv } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                let reading =
                    Reading { prompt_tokens: Some(prompt_tokens), kv_cache_usage: Some(kv), ..Reading::default() };
                self.router.read(engine, &[reading; 3], self.now);
            }
            Event::Health { engine, up } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                self.router.set_up(engine, up);
            }
            Event::Configure { first, engines: count, affinity } => {
                self.router.configure(settings(affinity), &engines(first, count))
            }
            Event::Wait { seconds } => self.now = self.now + Duration::from_secs(seconds),
            Event::Keep { .. } | Event::Finish { .. } | Event::FailOver { .. } => {}
        }
    }

    fn check(&mut self) {
        let snapshot = self.router.snapshot(self.now);
        assert_eq!(snapshot.in_flight, self.in_flight.len() as u64, "what entered and has not left is in flight");
        assert_eq!(snapshot.decisions.sum(), self.routed, "every request has one decision");
        assert!(snapshot.conversations as usize <= CONVERSATIONS_MAX, "the table keeps its limit");
        assert!(snapshot.stored as usize <= CONVERSATIONS_MAX, "and so does that of stored responses");
        let held: u64 = snapshot.replicas.iter().map(|replica| u64::from(replica.conversations)).sum();
        assert_eq!(held, snapshot.conversations, "every conversation has one home");
        assert!(snapshot.replicas.iter().all(|replica| replica.live <= replica.conversations));
        let mut expected: HashMap<String, u32> = HashMap::new();
        for (_, _, turn) in self.in_flight.iter().filter(|(_, _, turn)| turn.target.replica.is_some()) {
            *expected.entry(self.router.replica_name(&turn.target)).or_default() += 1;
        }
        for replica in &snapshot.replicas {
            assert_eq!(replica.in_flight, expected.remove(&replica.name).unwrap_or(0), "{}", replica.name);
        }
        assert!(expected.is_empty(), "a replica with requests in flight is always shown");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_add_up_whatever_happens(events in prop::collection::vec(event(), 1..200)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.check();
        }
        while !world.in_flight.is_empty() {
            world.happen(&Event::Finish { which: 0 });
        }
        world.check();
    }

    #[test]
    fn new_conversations_spread_evenly_over_equal_replicas(count in 1..300u128, replicas in 1..20usize) {
        let specs: Vec<EngineSpec> =
            (0..replicas).map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: 1 }).collect();
        let mut router = Router::new(Settings { conversations_max: 1000, ..settings(true) }, &specs);
        for key in 0..count {
            router.route(&Ask::of(Some(Key::new(key))), Time(0));
        }
        let in_flight: Vec<u32> = router.snapshot(Time(0)).replicas.iter().map(|r| r.in_flight).collect();
        let (most, fewest) = (in_flight.iter().max(), in_flight.iter().min());
        prop_assert!(most.zip(fewest).is_some_and(|(most, fewest)| most - fewest <= 1), "{in_flight:?}");
    }

    #[test]
    fn a_conversation_below_the_threshold_never_moves(turns in prop::collection::vec(0..30u128, 1..300)) {
        let mut router = Router::new(Settings { spill_threshold: 1, conversations_max: 30, ..settings(true) }, &engines(0, 3));
        let mut homes: HashMap<u128, String> = HashMap::new();
        for (second, key) in turns.into_iter().enumerate() {
            let ask = Ask::of(Some(Key::new(key)));
            let route = go(router.route(&ask, Time(second as u64 * 1000)));
            let replica = router.replica_name(&route.target);
            let first = homes.entry(key).or_insert_with(|| replica.clone());
            prop_assert_eq!(first, &replica);
            router.finish(&route, None, Time(0));
        }
    }
}

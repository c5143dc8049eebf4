use std::time::Duration;

use homing::routing::{Admission, AdmissionMode, Overdue, Pin, Recovery, Settings, Tokens};
use proptest::prelude::*;

/// How long an idle conversation keeps its place.
pub const LINGER: Duration = Duration::from_secs(30);

/// Requests that wait at most.
pub const PARKED_MAX: usize = 10;

/// Anything that can happen to a router.
#[derive(Clone, Debug)]
pub enum Event {
    Turn { key: Option<u128>, pin: Pin, stored: Option<u128>, caller: u64, bytes: u64 },
    Keep { which: usize, stored: u128 },
    Began { which: usize },
    Finish { which: usize, tokens: Option<Tokens> },
    FailOver { which: usize, reached: bool },
    Leave { which: usize },
    Woken,
    Read { engine: usize, prompt_tokens: u64, kv: f64, capacity_tokens: Option<u64> },
    Health { engine: usize, up: bool },
    Sleep { engine: usize, asleep: bool },
    Drain { engine: usize, draining: bool },
    Suspect { engine: usize, suspect: bool },
    Fails { which: usize },
    Answers { which: usize },
    Configure { first: usize, engines: usize, rules: Rules },
    Wait { seconds: u64 },
}

/// What differs between settings.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub affinity: bool,
    pub mode: AdmissionMode,
    pub overdue: Overdue,
    pub rotate: Option<u32>,
    pub kv_cache_tokens: Option<u64>,
}

impl Rules {
    pub fn with(mode: AdmissionMode) -> Rules {
        Rules { affinity: true, mode, overdue: Overdue::Refuse, rotate: None, kv_cache_tokens: Some(10_000) }
    }

    /// Whether conversations may have to wait.
    pub fn admits(&self) -> bool {
        self.affinity && self.mode == AdmissionMode::Auto
    }

    /// `forgets`: more conversations come, and over a longer time, than are kept.
    pub fn settings(self, forgets: bool) -> Settings {
        let Rules { affinity, mode, overdue, rotate, kv_cache_tokens } = self;
        let linger = Some(LINGER);
        Settings {
            affinity,
            spill_threshold: 2,
            idle_forget: Duration::from_secs(if forgets { 600 } else { u32::MAX.into() }),
            conversations_max: if forgets { 20 } else { 1000 },
            admission: Admission {
                mode,
                kv_cache_tokens,
                overdue,
                parked_max: PARKED_MAX,
                rotate,
                linger,
                ..Admission::default()
            },
            recovery: Recovery { failures: 2, ..Recovery::default() },
        }
    }
}

fn turn() -> impl Strategy<Value = Event> {
    let pin = prop_oneof![
        16 => Just(Pin::None),
        1 => (0..6u32).prop_map(Pin::Rank),
        1 => Just(Pin::Invalid),
    ];
    // Spread over all bits, as true keys are.
    let key = prop::option::weighted(0.9, (0..40u128).prop_map(|key| key << 64));
    let stored = prop::option::weighted(0.2, 0..30u128);
    (key, pin, stored, 0..3u64, 0..20_000u64).prop_map(|(key, pin, stored, caller, bytes)| Event::Turn {
        key,
        pin,
        stored,
        caller,
        bytes,
    })
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..10_000u64,
        1 => Just(0),
        1 => Just(u64::MAX),
    ]
}

fn tokens() -> impl Strategy<Value = Tokens> {
    (count(), prop::option::weighted(0.9, count()), count()).prop_map(|(prompt, cached, completion)| Tokens {
        prompt,
        cached,
        completion,
    })
}

fn rules() -> impl Strategy<Value = Rules> {
    let mode =
        prop_oneof![4 => Just(AdmissionMode::Auto), 1 => Just(AdmissionMode::Observe), 1 => Just(AdmissionMode::Off)];
    let overdue = prop_oneof![Just(Overdue::Refuse), Just(Overdue::Admit)];
    let capacity = prop::option::of(0..20_000u64);
    (prop::bool::weighted(0.8), mode, overdue, prop::option::of(1..4u32), capacity).prop_map(
        |(affinity, mode, overdue, rotate, kv_cache_tokens)| Rules { affinity, mode, overdue, rotate, kv_cache_tokens },
    )
}

pub fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => turn(),
        4 => (any::<usize>(), 0..30u128).prop_map(|(which, stored)| Event::Keep { which, stored }),
        4 => any::<usize>().prop_map(|which| Event::Began { which }),
        12 => (any::<usize>(), prop::option::weighted(0.8, tokens()))
            .prop_map(|(which, tokens)| Event::Finish { which, tokens }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, reached)| Event::FailOver { which, reached }),
        2 => any::<usize>().prop_map(|which| Event::Leave { which }),
        8 => Just(Event::Woken),
        2 => (0..8usize, 0..1000u64, 0.0..1.0, prop::option::of(0..20_000u64)).prop_map(
            |(engine, prompt_tokens, kv, capacity_tokens)| Event::Read { engine, prompt_tokens, kv, capacity_tokens }
        ),
        1 => (0..8usize, any::<bool>()).prop_map(|(engine, up)| Event::Health { engine, up }),
        1 => (0..8usize, any::<bool>()).prop_map(|(engine, asleep)| Event::Sleep { engine, asleep }),
        1 => (0..8usize, any::<bool>()).prop_map(|(engine, draining)| Event::Drain { engine, draining }),
        1 => (0..8usize, any::<bool>()).prop_map(|(engine, suspect)| Event::Suspect { engine, suspect }),
        1 => (0..4usize, 1..5usize, rules())
            .prop_map(|(first, engines, rules)| Event::Configure { first, engines, rules }),
        4 => any::<usize>().prop_map(|which| Event::Fails { which }),
        2 => any::<usize>().prop_map(|which| Event::Answers { which }),
        3 => (0..20u64).prop_map(|seconds| Event::Wait { seconds }),
        1 => (0..400u64).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

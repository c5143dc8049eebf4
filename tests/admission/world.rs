//! A router with a cache of known size and conversations that all take the same room in it.

use std::time::Duration;

use homing::routing::{
    Admission, AdmissionCounts, Ask, CacheOutcome, Decision, EngineSpec, Key, Recovery, Refusal, Router, Settings,
    Snapshot, Ticket, Time, Tokens, Turn, Verdict, Woken,
};

/// Tokens that a cache keeps: of two conversations.
pub const CAPACITY: u64 = 10_000;

/// Bytes of a request; at the rate assumed, its prompt has [`SIZE`] tokens.
pub const BYTES: u64 = 10_000;

/// Tokens of a conversation.
pub const SIZE: u64 = 3_000;

/// What a conversation takes: its tokens, and 500 more that it is assumed to grow by.
pub const OWN: u64 = SIZE + 500;

/// How long an idle conversation keeps its place.
pub const LINGER_S: f64 = 10.0;

pub fn admission() -> Admission {
    Admission {
        kv_cache_tokens: Some(CAPACITY),
        linger: Some(Duration::from_secs_f64(LINGER_S)),
        ..Admission::default()
    }
}

pub fn settings(admission: Admission) -> Settings {
    Settings {
        affinity: true,
        spill_threshold: 64,
        idle_forget: Duration::from_secs(1800),
        conversations_max: 20_000,
        admission,
        recovery: Recovery::default(),
    }
}

pub fn engines(count: usize) -> Vec<EngineSpec> {
    (0..count).map(|index| EngineSpec { name: format!("engine-{index}:8000"), data_parallel_size: 1 }).collect()
}

pub fn ask(conversation: u128) -> Ask {
    Ask { bytes: BYTES, ..Ask::of(Some(Key::new(conversation << 64))) }
}

/// What an engine says of a turn of [`SIZE`] tokens.
pub fn tokens(cached: u64) -> Tokens {
    Tokens { prompt: SIZE, cached: Some(cached), completion: 0 }
}

pub struct World {
    pub router: Router,
    pub now: Time,
}

impl World {
    pub fn new(replicas: usize, admission: Admission) -> World {
        World { router: Router::new(settings(admission), &engines(replicas)), now: Time(0) }
    }

    pub fn passes(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
    }

    pub fn comes(&mut self, ask: &Ask) -> Verdict {
        self.router.route(ask, self.now).expect("an engine is configured")
    }

    /// A turn comes, and goes on at once.
    pub fn goes(&mut self, conversation: u128) -> Turn {
        self.asks(&ask(conversation))
    }

    pub fn asks(&mut self, ask: &Ask) -> Turn {
        match self.comes(ask) {
            Verdict::Go(turn) => turn,
            other => panic!("{other:?}"),
        }
    }

    /// A turn comes, and has to wait.
    pub fn parks(&mut self, conversation: u128) -> Ticket {
        self.parks_of(0, conversation)
    }

    pub fn parks_of(&mut self, caller: u64, conversation: u128) -> Ticket {
        match self.comes(&Ask { caller, ..ask(conversation) }) {
            Verdict::Parked(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    pub fn refused(&mut self, conversation: u128) -> Refusal {
        match self.comes(&ask(conversation)) {
            Verdict::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    /// A turn ends that had [`SIZE`] tokens, all of them cached if it went home.
    pub fn ends(&mut self, turn: &Turn) -> Option<CacheOutcome> {
        let cached = if turn.decision == Decision::Sticky { SIZE } else { 0 };
        self.router.finish(turn, Some(tokens(cached)), self.now)
    }

    /// A turn comes, goes on at once and ends. `cached` tokens of it were.
    pub fn serves(&mut self, conversation: u128, cached: u64) -> Option<CacheOutcome> {
        let turn = self.goes(conversation);
        self.router.finish(&turn, Some(tokens(cached)), self.now)
    }

    pub fn woken(&mut self) -> Vec<Woken> {
        self.router.woken(self.now)
    }

    /// Whose wait is over; none of them is refused.
    pub fn wakes(&mut self) -> Vec<(Ticket, Turn)> {
        let goes = |woken: Woken| match woken.verdict {
            Verdict::Go(turn) => (woken.ticket, turn),
            other => panic!("{other:?}"),
        };
        self.woken().into_iter().map(goes).collect()
    }

    /// The only one whose wait is over.
    pub fn wakes_one(&mut self) -> (Ticket, Turn) {
        let mut woken = self.wakes();
        assert_eq!(woken.len(), 1, "{woken:?}");
        woken.remove(0)
    }

    pub fn snapshot(&mut self) -> Snapshot {
        self.router.snapshot(self.now)
    }

    pub fn counts(&mut self) -> AdmissionCounts {
        self.snapshot().admission
    }

    /// Tokens held on each replica.
    pub fn held(&mut self) -> Vec<u64> {
        self.snapshot().replicas.iter().map(|replica| replica.held_tokens).collect()
    }

    /// Nothing is in flight, waits or has a place.
    pub fn is_at_rest(&mut self) -> bool {
        let snapshot = self.snapshot();
        let held: u64 = snapshot.replicas.iter().map(|replica| replica.held_tokens).sum();
        (snapshot.in_flight, snapshot.parked, held) == (0, 0, 0)
    }
}

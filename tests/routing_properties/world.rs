use std::collections::{HashMap, HashSet};
use std::time::Duration;

use homing::routing::{
    AdmissionCounts, AdmissionMode, Ask, Attempt, Decision, EngineSpec, Foreseen, Key, Pin, Reading, RefusedWhy,
    ReplicaSnapshot, Retry, Router, Snapshot, State, Suspicion, Ticket, Time, Trouble, Turn, Verdict, Woken,
};

use crate::event::{Event, LINGER, PARKED_MAX, Rules};

/// A router, and what its clients know of it.
pub struct World {
    pub router: Router,
    pub now: Time,
    forgets: bool,
    rules: Rules,
    in_flight: Vec<(Ask, Vec<Attempt>, Turn)>,
    parked: Vec<Parked>,
    /// Conversations of which a request has come.
    came: HashSet<Key>,
    /// When a turn last ended or went elsewhere, by replica.
    ended: HashMap<String, Time>,
    routed: u64,
    counts: AdmissionCounts,
}

struct Parked {
    ask: Ask,
    ticket: Ticket,
    /// It is the first request of its conversation.
    first: bool,
}

/// Every second engine has ranks.
pub fn engines(first: usize, count: usize) -> Vec<EngineSpec> {
    let ranks = |index| if index % 2 == 1 { 3 } else { 1 };
    (first..first + count)
        .map(|index| EngineSpec { name: format!("e{index}"), data_parallel_size: ranks(index) })
        .collect()
}

impl World {
    pub fn new(mode: AdmissionMode, forgets: bool) -> World {
        let rules = Rules::with(mode);
        World {
            router: Router::new(rules.settings(forgets), &engines(0, 4)),
            now: Time(0),
            forgets,
            rules,
            in_flight: Vec::new(),
            parked: Vec::new(),
            came: HashSet::new(),
            ended: HashMap::new(),
            routed: 0,
            counts: AdmissionCounts::default(),
        }
    }

    pub fn happen(&mut self, event: &Event) {
        match *event {
            Event::Turn { key, pin, stored, caller, bytes } => {
                self.come(Ask { pin, stored: stored.map(Key::new), caller, bytes, ..Ask::of(key.map(Key::new)) })
            }
            Event::Keep { which, stored } if !self.in_flight.is_empty() => {
                let (_, _, turn) = &self.in_flight[which % self.in_flight.len()];
                self.router.keeps(&turn.target, Key::new(stored));
            }
            Event::Began { which } if !self.in_flight.is_empty() => {
                let index = which % self.in_flight.len();
                self.router.began(&mut self.in_flight[index].2, self.now);
            }
            Event::Finish { which, tokens } if !self.in_flight.is_empty() => {
                let (_, _, turn) = self.in_flight.swap_remove(which % self.in_flight.len());
                self.ended.insert(self.router.replica_name(&turn.target), self.now);
                self.router.finish(&turn, tokens, self.now);
            }
            Event::FailOver { which, reached } if !self.in_flight.is_empty() => {
                self.fail_over(which % self.in_flight.len(), reached)
            }
            Event::Fails { which } if !self.in_flight.is_empty() => {
                let (_, tries, _) = &self.in_flight[which % self.in_flight.len()];
                self.router.failed(tries.last().expect("it was sent"), self.now);
            }
            Event::Answers { which } if !self.in_flight.is_empty() => {
                let (_, tries, _) = &self.in_flight[which % self.in_flight.len()];
                self.router.answered(tries.last().expect("it was sent"));
            }
            Event::Leave { which } if !self.parked.is_empty() => {
                let parked = self.parked.remove(which % self.parked.len());
                self.router.leave(parked.ticket, self.now);
                self.counts.left += 1;
            }
            Event::Woken => self.wake(),
            Event::Read { engine, prompt_tokens, kv, capacity_tokens } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                let prompt_tokens = Some(prompt_tokens);
                let reading =
                    Reading { prompt_tokens, kv_cache_usage: Some(kv), capacity_tokens, ..Reading::default() };
                self.router.read(engine, &[reading; 3], self.now);
            }
            Event::Health { engine, up } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                self.router.set_up(engine, up);
            }
            Event::Sleep { engine, asleep } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                self.router.set_asleep(engine, asleep);
            }
            Event::Drain { engine, draining } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                self.router.set_draining(engine, draining);
            }
            Event::Suspect { engine, suspect } => {
                let Some(engine) = self.router.engine(&format!("e{engine}")) else { return };
                let suspicion = suspect.then_some(Suspicion::Silent { lasting: Duration::from_secs(30) });
                self.router.set_suspect(engine, suspicion);
            }
            Event::Configure { first, engines: count, rules } => {
                self.rules = rules;
                self.router.configure(rules.settings(self.forgets), &engines(first, count), self.now)
            }
            Event::Wait { seconds } => self.now = self.now + Duration::from_secs(seconds),
            Event::Keep { .. } | Event::Began { .. } | Event::Finish { .. } => {}
            Event::FailOver { .. } | Event::Leave { .. } | Event::Fails { .. } | Event::Answers { .. } => {}
        }
    }

    fn come(&mut self, ask: Ask) {
        let known = ask.stored.is_some_and(|key| self.router.knows(&key));
        let foreseen = self.router.foresee(&ask, self.now).expect("there is always an engine");
        if self.router.is_gone(&ask) {
            assert!(known && matches!(self.router.route(&ask, self.now), Some(Verdict::Gone)), "{ask:?}");
            assert_eq!(foreseen, Foreseen::Gone);
            return;
        }
        let first = ask.key.is_some_and(|key| self.came.insert(key));
        let verdict = self.router.route(&ask, self.now).expect("there is always an engine");
        self.check_foreseen(&foreseen, &verdict);
        match verdict {
            Verdict::Go(turn) => {
                assert!(!known || turn.decision == Decision::ClientPinned, "what is kept there is asked for there");
                self.go(ask, turn)
            }
            Verdict::Parked(ticket) => {
                assert!(self.rules.admits() && ask.key.is_some() && ask.pin == Pin::None && !known, "{ask:?}");
                self.parked.push(Parked { ask, ticket, first });
                self.counts.parked += 1;
            }
            Verdict::Refused(refusal) => {
                assert!(refusal.why == RefusedWhy::Full && self.parked.len() >= PARKED_MAX, "{refusal:?}");
                self.counts.full += 1;
            }
            Verdict::Gone => panic!("it was there: {ask:?}"),
        }
    }

    fn check_foreseen(&self, foreseen: &Foreseen, verdict: &Verdict) {
        let became = match verdict {
            Verdict::Go(turn) => Foreseen::Goes { decision: turn.decision, reason: self.router.reason(turn) },
            Verdict::Parked(_) => Foreseen::Waits { parked: self.parked.len() as u64 },
            Verdict::Refused(refusal) => Foreseen::Refused(*refusal),
            Verdict::Gone => Foreseen::Gone,
        };
        assert_eq!(*foreseen, became, "what was foreseen is what happens");
    }

    fn go(&mut self, ask: Ask, turn: Turn) {
        let engine_chose = turn.decision == Decision::Unrouted || ask.stored.is_some();
        assert!(engine_chose || turn.target.replica.is_some(), "what is routed has a replica");
        self.in_flight.push((ask, vec![self.router.attempt(turn.target.engine)], turn));
        self.routed += 1;
    }

    fn fail_over(&mut self, index: usize, reached: bool) {
        let (ask, tried, turn) = &mut self.in_flight[index];
        let why = if reached { Retry::Refused } else { Retry::Unreachable };
        if let Some(next) = self.router.retry(ask, turn, tried, why, self.now) {
            let attempt = self.router.attempt(next.target.engine);
            let repeats = tried.iter().any(|earlier| attempt.repeats(earlier));
            assert!(
                !repeats && turn.target.engine != next.target.engine,
                "no engine is tried twice, unless it came back"
            );
            self.ended.insert(self.router.replica_name(&turn.target), self.now);
            tried.push(attempt);
            *turn = next;
        }
    }

    fn wake(&mut self) {
        for Woken { ticket, verdict, .. } in self.router.woken(self.now) {
            let index = self.parked.iter().position(|parked| parked.ticket == ticket).expect("a wait ends once");
            let Parked { ask, first, .. } = self.parked.remove(index);
            match verdict {
                Verdict::Go(turn) => {
                    let earlier =
                        |other: &Parked| other.first && other.ask.caller == ask.caller && other.ticket < ticket;
                    assert!(!first || !self.parked.iter().any(earlier), "of a caller, who came first goes first");
                    self.go(ask, turn);
                    self.counts.admitted += 1;
                }
                Verdict::Refused(refusal) => {
                    assert_eq!(refusal.why, RefusedWhy::Overdue);
                    self.counts.overdue += 1;
                }
                Verdict::Parked(_) | Verdict::Gone => panic!("whose wait is over does not wait"),
            }
        }
        let snapshot = self.router.snapshot(self.now);
        let configured = |replica: &&ReplicaSnapshot| replica.trouble != Some(Trouble::NotConfigured);
        let best = snapshot.replicas.iter().filter(configured).map(|replica| replica.state).min();
        let free = |snapshot: &Snapshot| {
            let mut usable = snapshot.replicas.iter().filter(configured).filter(|replica| Some(replica.state) == best);
            usable.any(|replica| replica.held_tokens == 0)
        };
        assert!(self.parked.is_empty() || self.rules.admits() && !free(&snapshot), "nobody waits where there is room");
    }

    pub fn check(&mut self) {
        let snapshot = self.router.snapshot(self.now);
        assert_eq!(snapshot.in_flight, self.in_flight.len() as u64, "what entered and has not left is in flight");
        assert_eq!(snapshot.decisions.sum(), self.routed, "every request that goes on has one decision");
        assert_eq!(snapshot.parked, self.parked.len() as u64, "who has not been told yet waits");
        let AdmissionCounts { forced, would_park, .. } = snapshot.admission;
        assert_eq!(snapshot.admission, AdmissionCounts { forced, would_park, ..self.counts });
        assert!(
            snapshot.stored as usize <= snapshot.settings.conversations_max,
            "the table of stored responses keeps its limit"
        );
        self.check_conversations(&snapshot);
        self.check_replicas(&snapshot);
    }

    fn check_conversations(&self, snapshot: &Snapshot) {
        assert!(snapshot.conversations as usize <= snapshot.settings.conversations_max, "the table keeps its limit");
        let held: u64 = snapshot.replicas.iter().map(|replica| u64::from(replica.conversations)).sum();
        assert_eq!(held, snapshot.conversations, "every conversation has one home");
        assert!(snapshot.replicas.iter().all(|replica| replica.live <= replica.conversations));
    }

    fn check_replicas(&self, snapshot: &Snapshot) {
        let mut expected: HashMap<String, u32> = HashMap::new();
        for (_, _, turn) in self.in_flight.iter().filter(|(_, _, turn)| turn.target.replica.is_some()) {
            *expected.entry(self.router.replica_name(&turn.target)).or_default() += 1;
        }
        for replica in &snapshot.replicas {
            let name = &replica.name;
            assert_eq!(replica.in_flight, expected.remove(name).unwrap_or(0), "{name}");
            let lingers = self.ended.get(name).is_some_and(|ended| self.now.since(*ended) <= LINGER);
            let may_hold = replica.in_flight > 0 || lingers && self.is_home(name, replica.state);
            assert!(replica.held_tokens == 0 || may_hold, "{name} holds {} tokens for nobody", replica.held_tokens);
        }
        assert!(expected.is_empty(), "a replica with requests in flight is always shown");
    }

    /// Whether any conversation may live there, as far as that can be seen: where it is in use and none has been forgotten.
    fn is_home(&self, name: &str, state: State) -> bool {
        let lives = |key: &Key| {
            let target = self.router.follow(&Ask::of(Some(*key)), &[], self.now);
            target.is_some_and(|target| self.router.replica_name(&target) == name)
        };
        let visible = state == State::Up && self.rules.affinity && !self.forgets;
        !visible || self.came.iter().any(lives)
    }

    /// Lets everything end. Each round at least the first in line goes on.
    pub fn come_to_rest(&mut self) {
        for _ in 0..=self.parked.len() {
            while !self.in_flight.is_empty() {
                self.happen(&Event::Finish { which: 0, tokens: None });
            }
            self.now = self.now + LINGER + Duration::from_millis(1);
            self.check();
            self.wake();
        }
        assert!(self.in_flight.is_empty() && self.parked.is_empty(), "nobody waits for ever");
        let held: Vec<u64> =
            self.router.snapshot(self.now).replicas.iter().map(|replica| replica.held_tokens).collect();
        assert!(held.iter().all(|tokens| *tokens == 0), "{held:?}");
    }
}

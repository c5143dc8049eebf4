//! One run in virtual time: sessions, a balancer's arm, and engines.

use super::arms::{Arm, Asked, Choice};
use super::replica::Replica;
use super::trace::{SessionEnd, Trace, TurnRecord};
use super::transcript::Transcripts;
use crate::engine::{CacheCounters, Event, Profile, Request, Step};
use crate::load::{Call, Queue, Sessions};

/// From the client to the balancer, and back.
pub const TO_BALANCER_S: f64 = 0.005;

/// From the balancer to the engine: the network, the API server and the tokenizer. With [`TO_BALANCER_S`] both ways that
/// makes the 0.15 s that fit the published times to first byte.
///
/// It lies behind the balancer because that is where the published results put it: vLLM's own balancer places blindly
/// only if a turn comes back sooner than its counts are published. Before the balancer, it would have kept sessions home.
pub const TO_ENGINE_S: f64 = 0.14;

/// How long to run, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Before anything is measured.
    pub warmup_s: f64,
    /// Measured.
    pub measured_s: f64,
}

enum Happens {
    /// A turn reaches the balancer.
    Asks(Call),
    /// A request reaches its replica.
    Arrives(usize, Request),
    StepEnds(usize),
    /// The last byte of an answer reaches the client: the index of its turn.
    Answered(usize),
    /// The arm reads what the engines say.
    Reading,
    /// Busy replicas are counted.
    Sample,
}

/// A run in progress.
pub struct Simulation {
    now_s: f64,
    sessions: Sessions,
    arm: Box<dyn Arm>,
    replicas: Vec<Replica>,
    transcripts: Transcripts,
    queue: Queue<Happens>,
    trace: Trace,
}

impl Simulation {
    /// Nothing has happened yet. There is one replica for each of `speeds`, shares of the profile's speed.
    pub fn new(profile: &Profile, speeds: &[f64], sessions: Sessions, arm: Box<dyn Arm>) -> Self {
        Self {
            now_s: 0.0,
            sessions,
            arm,
            replicas: speeds.iter().map(|speed| Replica::new(profile.clone(), *speed)).collect(),
            transcripts: Transcripts::new(profile.engine.block_size),
            queue: Queue::default(),
            trace: Trace::default(),
        }
    }

    /// Runs to the end of `span`, whatever is still in flight then.
    pub fn run(mut self, span: Span) -> Trace {
        self.trace.from_s = span.warmup_s;
        self.trace.until_s = span.warmup_s + span.measured_s;
        if self.arm.reading_every_s().is_some() {
            self.queue.push(0.0, Happens::Reading);
        }
        self.queue.push(span.warmup_s, Happens::Sample);
        self.go_on(span.warmup_s);
        let before = self.cache_counters();
        self.go_on(self.trace.until_s);
        let after = self.cache_counters();
        self.trace.vllm_cache =
            CacheCounters { queries: after.queries - before.queries, hits: after.hits - before.hits };
        self.trace
    }

    fn go_on(&mut self, until_s: f64) {
        loop {
            let due_s = self.sessions.next_s().unwrap_or(f64::INFINITY);
            let next_s = self.queue.next_s().unwrap_or(f64::INFINITY);
            if due_s.min(next_s) > until_s {
                return;
            }
            self.now_s = due_s.min(next_s);
            if due_s <= next_s {
                while let Some(call) = self.sessions.take(self.now_s) {
                    self.queue.push(self.now_s + TO_BALANCER_S, Happens::Asks(call));
                }
            } else if let Some((_, happens)) = self.queue.pop() {
                self.happen(happens);
            }
        }
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::Asks(call) => self.route(&call),
            Happens::Arrives(replica, request) => {
                if let Some(end_s) = self.replicas[replica].submit(self.now_s, request) {
                    self.queue.push(end_s, Happens::StepEnds(replica));
                }
            }
            Happens::StepEnds(replica) => self.end_step(replica),
            Happens::Answered(turn) => self.answered(turn),
            Happens::Reading => {
                let said: Vec<_> = self.replicas.iter().map(Replica::said).collect();
                self.arm.read(self.now_s, &said);
                let every_s = self.arm.reading_every_s().unwrap_or(f64::INFINITY);
                self.queue.push(self.now_s + every_s, Happens::Reading);
            }
            Happens::Sample => {
                let busy = self.replicas.iter().filter(|replica| replica.in_flight > 0).count();
                self.trace.busy.push(busy as u32);
                self.queue.push(self.now_s + 1.0, Happens::Sample);
            }
        }
    }

    fn route(&mut self, call: &Call) {
        let index = self.trace.turns.len();
        let request = self.transcripts.ask(index as u64, call);
        let asked = Asked { now_s: self.now_s, session_key: call.session_key, turn: call.id, prompt: &request.prompt };
        let Choice { replica, decision } = self.arm.route(&asked);
        let sent_s = self.now_s - TO_BALANCER_S;
        self.trace.turns.push(TurnRecord { id: call.id, replica, decision, sent_s, first_byte_s: None, ended: None });
        self.replicas[replica].in_flight += 1;
        self.queue.push(self.now_s + TO_ENGINE_S, Happens::Arrives(replica, request));
    }

    fn end_step(&mut self, replica: usize) {
        let (step, next_end_s) = self.replicas[replica].end_step(self.now_s);
        if let Some(end_s) = next_end_s {
            self.queue.push(end_s, Happens::StepEnds(replica));
        }
        self.note(replica, &step);
    }

    fn note(&mut self, replica: usize, step: &Step) {
        let at_client_s = step.end_s + TO_BALANCER_S;
        for event in &step.events {
            match *event {
                Event::Token { id, index: 0, .. } => {
                    self.trace.turns[id as usize].first_byte_s = Some(at_client_s);
                }
                Event::Token { .. } => {}
                Event::Finished { id, usage, .. } => {
                    self.trace.turns[id as usize].ended = Some((at_client_s, usage));
                    self.replicas[replica].in_flight -= 1;
                    self.arm.finish(replica);
                    self.queue.push(at_client_s, Happens::Answered(id as usize));
                }
            }
        }
    }

    fn answered(&mut self, turn: usize) {
        let TurnRecord { id, ended, .. } = self.trace.turns[turn];
        if let Some((_, usage)) = ended {
            self.transcripts.answer(id, usage.output_tokens);
        }
        if self.sessions.ended(self.now_s, id) {
            self.transcripts.forget(id.session);
            self.trace.sessions_ended.push(SessionEnd { session: id.session, at_s: self.now_s });
        }
    }

    /// Prefix cache lookups of all replicas, as vLLM counted up to 0.26.
    fn cache_counters(&self) -> CacheCounters {
        self.replicas.iter().fold(CacheCounters::default(), |sum, replica| {
            let counters = replica.engine.snapshot().prefix_cache_attempts;
            CacheCounters { queries: sum.queries + counters.queries, hits: sum.hits + counters.hits }
        })
    }
}

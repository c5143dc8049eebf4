//! One run in virtual time: sessions, a balancer's arm, and engines.

use std::collections::HashMap;

use super::arms::{Answer, Arm, Asked, Choice, Finished};
use super::replica::Replica;
use super::trace::{SessionEnd, Trace, TurnRecord};
use super::transcript::Transcripts;
use crate::engine::{CacheCounters, Event, Profile, Request, RequestId, Step};
use crate::load::{Call, Queue, Sessions, TurnId};

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
    /// A turn that was refused reaches it again.
    AsksAgain(RequestId),
    /// A request reaches its replica.
    Arrives(usize, Request),
    StepEnds(usize),
    /// The last byte of an answer reaches the client: the index of its turn.
    Answered(usize),
    /// The arm reads what the engines say.
    Reading,
    /// The arm looks at those who wait.
    Waking,
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
    /// Turns that the balancer has not sent on.
    waiting: HashMap<RequestId, Waiting>,
    trace: Trace,
}

struct Waiting {
    session_key: u64,
    turn: TurnId,
    request: Request,
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
            waiting: HashMap::new(),
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
        if self.arm.wakes_every_s().is_some() {
            self.queue.push(0.0, Happens::Waking);
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
            Happens::Asks(call) => self.take(&call),
            Happens::AsksAgain(request) => self.route(request),
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
            Happens::Waking => {
                self.wake();
                let every_s = self.arm.wakes_every_s().unwrap_or(f64::INFINITY);
                self.queue.push(self.now_s + every_s, Happens::Waking);
            }
            Happens::Sample => {
                let busy = self.replicas.iter().filter(|replica| replica.in_flight > 0).count();
                self.trace.busy.push(busy as u32);
                self.queue.push(self.now_s + 1.0, Happens::Sample);
            }
        }
    }

    fn take(&mut self, call: &Call) {
        let id = self.trace.turns.len() as RequestId;
        let request = self.transcripts.ask(id, call);
        let sent_s = self.now_s - TO_BALANCER_S;
        self.trace.turns.push(TurnRecord {
            id: call.id,
            replica: 0,
            decision: None,
            sent_s,
            first_byte_s: None,
            ended: None,
        });
        self.waiting.insert(id, Waiting { session_key: call.session_key, turn: call.id, request });
        self.route(id);
    }

    fn route(&mut self, id: RequestId) {
        let Some(Waiting { session_key, turn, request }) = self.waiting.get(&id) else { return };
        let (now_s, session_key, turn, prompt) = (self.now_s, *session_key, *turn, &request.prompt);
        let answer = self.arm.route(&Asked { now_s, request: id, session_key, turn, prompt });
        self.answer(id, answer);
    }

    fn wake(&mut self) {
        for (id, answer) in self.arm.woken(self.now_s) {
            self.answer(id, answer);
        }
    }

    fn answer(&mut self, id: RequestId, answer: Answer) {
        match answer {
            Answer::Goes(choice) => self.send(id, choice),
            Answer::Waits => {}
            // As Claude Code and the SDKs do: after the time they were told.
            Answer::Refused { retry_after_s } => {
                self.queue.push(self.now_s + 2.0 * TO_BALANCER_S + retry_after_s, Happens::AsksAgain(id));
            }
        }
    }

    fn send(&mut self, id: RequestId, Choice { replica, decision }: Choice) {
        let Some(Waiting { request, .. }) = self.waiting.remove(&id) else { return };
        let turn = &mut self.trace.turns[id as usize];
        (turn.replica, turn.decision) = (replica, decision);
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
                    self.arm.began(step.end_s, id);
                }
                Event::Token { .. } => {}
                Event::Finished { id, usage, .. } => {
                    self.trace.turns[id as usize].ended = Some((at_client_s, usage));
                    self.replicas[replica].in_flight -= 1;
                    self.arm.finish(&Finished { now_s: step.end_s, request: id, replica, usage: Some(usage) });
                    self.queue.push(at_client_s, Happens::Answered(id as usize));
                    self.wake();
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

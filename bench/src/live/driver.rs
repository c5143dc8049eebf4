//! Sends the turns of a load as they are due.

use std::collections::HashMap;

use homing::routing::Decision;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::answer::Answer;
use super::conversation::Conversation;
use super::errand::{Ended, Errand, Seen};
use super::pace::{Clock, Pace};
use super::progress::Progress;
use super::readings;
use super::request::Message;
use super::via::Via;
use crate::engine::Usage;
use crate::experiment::{SessionEnd, Span, Trace, TurnRecord};
use crate::load::{Call, Sessions};

/// A load in progress.
pub struct Driver {
    via: Via,
    pace: Pace,
    client: reqwest::Client,
    clock: Clock,
    sessions: Sessions,
    conversations: HashMap<(u64, usize), Conversation>,
    in_flight: JoinSet<Ended>,
    /// For errands to say what they see, and where that comes out.
    see: UnboundedSender<(usize, Seen)>,
    seen: UnboundedReceiver<(usize, Seen)>,
    /// Replicas that a balancer named, in the order in which it did.
    named: HashMap<String, usize>,
    trace: Trace,
    failed: u64,
}

impl Driver {
    /// Nothing has been sent yet.
    pub fn new(via: impl Into<Via>, pace: Pace, sessions: Sessions) -> Self {
        let (see, seen) = unbounded_channel();
        Self {
            via: via.into(),
            pace,
            client: reqwest::Client::new(),
            clock: Clock::start(pace.speed),
            sessions,
            conversations: HashMap::new(),
            in_flight: JoinSet::new(),
            see,
            seen,
            named: HashMap::new(),
            trace: Trace::default(),
            failed: 0,
        }
    }

    /// Runs to the end of `span`; what is in flight then is cut off.
    ///
    /// # Errors
    /// When the first turn is not answered: then nothing else will be.
    pub async fn run(mut self, span: Span) -> Result<Trace, String> {
        self.clock = Clock::start(self.pace.speed);
        self.trace.from_s = span.warmup_s;
        self.trace.until_s = span.warmup_s + span.measured_s;
        let mut progress = Progress::new(self.trace.until_s);
        let mut reading = JoinSet::new();
        reading.spawn(readings::read_on(self.via.clone(), self.client.clone(), self.clock));
        self.go_on(self.trace.until_s, &mut progress).await?;
        progress.end();
        self.in_flight.abort_all();
        while let Ok((turn, seen)) = self.seen.try_recv() {
            self.record(turn, seen);
        }
        self.trace.busy = busy(&self.trace);
        Ok(self.trace)
    }

    async fn go_on(&mut self, until_s: f64, progress: &mut Progress) -> Result<(), String> {
        while self.clock.now_s() < until_s {
            while let Some(call) = self.sessions.take(self.clock.now_s()) {
                self.send(call);
            }
            let next_s = self.sessions.next_s().unwrap_or(f64::INFINITY);
            let wake_s = next_s.min(until_s).min(self.clock.now_s() + self.pace.speed);
            tokio::select! {
                Some(ended) = self.in_flight.join_next() => {
                    self.answered(ended.map_err(|error| error.to_string())?)?;
                }
                Some((turn, seen)) = self.seen.recv() => self.record(turn, seen),
                () = self.clock.sleep_until(wake_s) => {}
            }
            progress.show(self.clock.now_s(), self.in_flight.len(), self.trace.sessions_ended.len(), self.failed);
        }
        Ok(())
    }

    fn send(&mut self, call: Call) {
        let place = (call.id.session, call.id.conversation);
        let mut conversation = self.conversations.remove(&place).unwrap_or_else(|| Conversation::begin(&call));
        conversation.messages.push(Message::of(&call));
        let turn = self.trace.turns.len();
        self.trace.turns.push(TurnRecord {
            id: call.id,
            replica: 0,
            decision: None,
            sent_s: self.clock.now_s(),
            first_byte_s: None,
            ended: None,
        });
        let errand = Errand {
            turn,
            call,
            conversation,
            via: self.via.clone(),
            way: self.pace.way,
            clock: self.clock,
            client: self.client.clone(),
            see: self.see.clone(),
        };
        self.in_flight.spawn(errand.run());
    }

    fn record(&mut self, turn: usize, seen: Seen) {
        let record = &mut self.trace.turns[turn];
        match seen {
            Seen::Chosen(choice) => (record.replica, record.decision) = (choice.replica, choice.decision),
            Seen::FirstByte(moment) => record.first_byte_s = Some(self.clock.at_s(moment) + self.pace.way.back_s),
        }
    }

    fn answered(&mut self, ended: Ended) -> Result<(), String> {
        let Ended { turn, mut conversation, answer } = ended;
        let id = self.trace.turns[turn].id;
        match answer {
            Ok(answer) => {
                self.note(turn, &answer);
                conversation.messages.push(Message::answer(answer.text));
            }
            Err(error) if self.trace.turns.iter().all(|turn| turn.ended.is_none()) => {
                return Err(format!("the first answer failed: {error}"));
            }
            Err(_) => self.failed += 1,
        }
        self.conversations.insert((id.session, id.conversation), conversation);
        let now_s = self.clock.now_s();
        if self.sessions.ended(now_s, id) {
            self.conversations.retain(|(session, _), _| *session != id.session);
            self.trace.sessions_ended.push(SessionEnd { session: id.session, at_s: now_s });
        }
        Ok(())
    }

    fn note(&mut self, turn: usize, answer: &Answer) {
        let usage = Usage {
            prompt_tokens: answer.usage.prompt as u32,
            cached_tokens: answer.usage.cached.unwrap_or(0) as u32,
            output_tokens: answer.usage.completion as u32,
            created_cache_tokens: 0,
            preemptions: 0,
        };
        let record = &mut self.trace.turns[turn];
        record.ended = Some((self.clock.at_s(answer.ended) + self.pace.way.back_s, usage));
        if let Some(name) = &answer.replica {
            let known = self.named.len();
            record.replica = *self.named.entry(name.clone()).or_insert(known);
        }
        if let Some(name) = &answer.decision {
            record.decision = Decision::ALL.into_iter().find(|decision| decision.name() == name);
        }
    }
}

/// Replicas with requests in flight, every second of the time measured.
fn busy(trace: &Trace) -> Vec<u32> {
    let seconds = (trace.until_s - trace.from_s) as u32;
    let busy_at = |second: u32| {
        let at_s = trace.from_s + f64::from(second);
        let runs = |turn: &&TurnRecord| turn.sent_s <= at_s && turn.ended.is_none_or(|(ended_s, _)| ended_s > at_s);
        let mut replicas: Vec<usize> = trace.turns.iter().filter(runs).map(|turn| turn.replica).collect();
        replicas.sort_unstable();
        replicas.dedup();
        replicas.len() as u32
    };
    (0..seconds).map(busy_at).collect()
}

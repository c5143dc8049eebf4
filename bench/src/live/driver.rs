//! Sends the turns of a load as they are due.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use homing::routing::Decision;
use tokio::task::JoinSet;

use super::answer::{self, Answer};
use super::progress::Progress;
use super::request::{self, Message, Target};
use crate::engine::Usage;
use crate::experiment::{SessionEnd, Span, Trace, TurnRecord};
use crate::load::{Call, Sessions};

/// A client that has waited this long for an answer, by the load's clock, is given up.
const ANSWER_MAX_S: f64 = 600.0;

/// How the load's clock runs against the real one.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds of the load in a real second.
    pub speed: f64,
    /// Seconds, by the load's clock, that a request and the way back of its answer take together, on top of what the real
    /// network takes.
    pub network_s: f64,
}

/// A load in progress.
pub struct Driver {
    target: Target,
    pace: Pace,
    client: reqwest::Client,
    began: Instant,
    sessions: Sessions,
    conversations: HashMap<(u64, usize), Conversation>,
    in_flight: JoinSet<(usize, Conversation, Result<Answer, String>)>,
    replicas: HashMap<String, usize>,
    trace: Trace,
    failed: u64,
}

/// What was said so far.
#[derive(Clone, Default)]
struct Conversation {
    system: String,
    messages: Vec<Message>,
}

impl Driver {
    /// Nothing has been sent yet.
    pub fn new(target: Target, pace: Pace, sessions: Sessions) -> Self {
        Self {
            target,
            pace,
            client: reqwest::Client::new(),
            began: Instant::now(),
            sessions,
            conversations: HashMap::new(),
            in_flight: JoinSet::new(),
            replicas: HashMap::new(),
            trace: Trace::default(),
            failed: 0,
        }
    }

    /// Runs to the end of `span`; what is in flight then is cut off.
    ///
    /// # Errors
    /// When the first turn is not answered: then nothing else will be.
    pub async fn run(mut self, span: Span) -> Result<Trace, String> {
        self.began = Instant::now();
        self.trace.from_s = span.warmup_s;
        self.trace.until_s = span.warmup_s + span.measured_s;
        let mut progress = Progress::new(self.trace.until_s);
        self.go_on(self.trace.until_s, &mut progress).await?;
        progress.end();
        self.in_flight.abort_all();
        self.trace.busy = busy(&self.trace);
        Ok(self.trace)
    }

    async fn go_on(&mut self, until_s: f64, progress: &mut Progress) -> Result<(), String> {
        while self.now_s() < until_s {
            while let Some(call) = self.sessions.take(self.now_s()) {
                self.send(&call);
            }
            let wake_s =
                self.sessions.next_s().unwrap_or(f64::INFINITY).min(until_s).min(self.now_s() + self.pace.speed);
            let wake = self.began + Duration::from_secs_f64(wake_s / self.pace.speed);
            tokio::select! {
                Some(ended) = self.in_flight.join_next() => {
                    let (turn, conversation, answer) = ended.map_err(|error| error.to_string())?;
                    self.answered(turn, conversation, answer)?;
                }
                () = tokio::time::sleep_until(wake.into()) => {}
            }
            progress.show(self.now_s(), self.in_flight.len(), self.trace.sessions_ended.len(), self.failed);
        }
        Ok(())
    }

    /// The load's clock.
    fn now_s(&self) -> f64 {
        self.at_s(Instant::now())
    }

    fn at_s(&self, moment: Instant) -> f64 {
        (moment - self.began).as_secs_f64() * self.pace.speed
    }

    fn send(&mut self, call: &Call) {
        let place = (call.id.session, call.id.conversation);
        let mut conversation = self
            .conversations
            .remove(&place)
            .unwrap_or_else(|| Conversation { system: request::system(call), messages: Vec::new() });
        conversation.messages.push(Message::of(call));
        let request = self.target.request(&self.client, call, &conversation.system, &conversation.messages);
        let turn = self.trace.turns.len();
        let sent_s = self.now_s();
        self.trace.turns.push(TurnRecord {
            id: call.id,
            replica: 0,
            decision: None,
            sent_s,
            first_byte_s: None,
            ended: None,
        });
        let way = Duration::from_secs_f64(self.pace.network_s / 2.0 / self.pace.speed);
        let patience = Duration::from_secs_f64(ANSWER_MAX_S / self.pace.speed);
        self.in_flight.spawn(async move {
            tokio::time::sleep(way).await;
            let exchange = async {
                let response = request.send().await.map_err(|error| error.to_string())?;
                answer::read(response).await
            };
            let answer = tokio::time::timeout(patience, exchange).await;
            tokio::time::sleep(way).await;
            (turn, conversation, answer.unwrap_or_else(|_| Err("no whole answer in time".to_owned())))
        });
    }

    fn answered(
        &mut self,
        turn: usize,
        mut conversation: Conversation,
        answer: Result<Answer, String>,
    ) -> Result<(), String> {
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
        if self.sessions.ended(self.now_s(), id) {
            self.conversations.retain(|(session, _), _| *session != id.session);
            self.trace.sessions_ended.push(SessionEnd { session: id.session, at_s: self.now_s() });
        }
        Ok(())
    }

    fn note(&mut self, turn: usize, answer: &Answer) {
        let way_s = self.pace.network_s / 2.0;
        let (first_byte_s, ended_s) = (self.at_s(answer.first_byte) + way_s, self.at_s(answer.ended) + way_s);
        let usage = Usage {
            prompt_tokens: answer.usage.prompt as u32,
            cached_tokens: answer.usage.cached.unwrap_or(0) as u32,
            output_tokens: answer.usage.completion as u32,
            created_cache_tokens: 0,
            preemptions: 0,
        };
        let known = self.replicas.len();
        let replica = answer.replica.as_ref().map_or(0, |name| *self.replicas.entry(name.clone()).or_insert(known));
        let record = &mut self.trace.turns[turn];
        record.replica = replica;
        record.first_byte_s = Some(first_byte_s);
        record.ended = Some((ended_s, usage));
        record.decision =
            Decision::ALL.into_iter().find(|decision| answer.decision.as_deref() == Some(decision.name()));
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

//! An engine in real time: the task that drives it and the handle to give it work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::fault::Fault;
use super::stats::Stats;
use crate::engine::{Engine, Event, FinishReason, Request, RequestId, Usage, load_since_0_27};

/// How an output ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub reason: FinishReason,
    pub usage: Usage,
}

/// One generated token; the last one says how the request ended.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub index: u32,
    pub token: u32,
    pub end: Option<End>,
}

enum Command {
    Submit { request: Request, at: Instant, outputs: mpsc::UnboundedSender<Output> },
    Abort(RequestId),
}

/// A running engine. It stops when this and all its generations are dropped.
pub struct Rank {
    commands: mpsc::UnboundedSender<Command>,
    stats: Arc<Mutex<Stats>>,
    faults: watch::Receiver<Fault>,
    /// Every generation holds one.
    in_flight: Arc<()>,
}

impl Rank {
    /// Starts to drive `engine`, `speed` times as fast as it would be.
    pub fn start(engine: Engine, speed: f64, faults: watch::Receiver<Fault>) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let stats = Arc::new(Mutex::new(Stats::new()));
        let driver = Driver {
            engine,
            started: Instant::now(),
            speed,
            commands: received,
            faults: faults.clone(),
            stats: stats.clone(),
            clients: HashMap::new(),
            now_s: 0.0,
        };
        tokio::spawn(driver.run());
        Self { commands, stats, faults, in_flight: Arc::new(()) }
    }

    /// Gives the engine a request. Its outputs come from what is returned; dropping that aborts the request.
    pub fn submit(&self, request: Request) -> Generation {
        let (sender, outputs) = mpsc::unbounded_channel();
        let id = request.id;
        // If the driver is gone, so is `sender`, and the generation ends at once.
        _ = self.commands.send(Command::Submit { request, at: Instant::now(), outputs: sender });
        let _in_flight = self.in_flight.clone();
        Generation {
            id,
            outputs,
            commands: self.commands.clone(),
            faults: self.faults.clone(),
            received: 0,
            _in_flight,
        }
    }

    /// Whether the engine has died. It does not come back.
    pub fn is_dead(&self) -> bool {
        self.commands.is_closed()
    }

    /// The figures after the last step.
    pub fn stats(&self) -> Stats {
        self.stats.lock().clone()
    }

    /// Generations that are not over.
    pub fn in_flight(&self) -> u32 {
        Arc::strong_count(&self.in_flight) as u32 - 1
    }

    /// The load by which vLLM's own balancer chooses.
    pub fn load(&self) -> f64 {
        load_since_0_27(&self.stats.lock().engine, self.in_flight())
    }
}

/// The outputs of a request on their way to its client.
pub struct Generation {
    id: RequestId,
    outputs: mpsc::UnboundedReceiver<Output>,
    commands: mpsc::UnboundedSender<Command>,
    faults: watch::Receiver<Fault>,
    received: u32,
    _in_flight: Arc<()>,
}

impl Generation {
    /// The next token, or `None` when the engine failed or died. After the last token it must not be called again.
    pub async fn next(&mut self) -> Option<Output> {
        let output = self.outputs.recv().await;
        let received = self.received;
        let stalled = |fault: &Fault| matches!(fault, Fault::Stall { after_tokens } if received >= *after_tokens);
        // An error means that the replica ends, and its connections with it.
        _ = self.faults.wait_for(|fault| !stalled(fault)).await;
        if matches!(*self.faults.borrow(), Fault::Fail { after_tokens } if received >= after_tokens) {
            return None;
        }
        self.received += 1;
        output
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // Aborting what has finished does nothing, nor does telling an engine that is gone.
        _ = self.commands.send(Command::Abort(self.id));
    }
}

/// Who waits for the outputs of a request.
struct Client {
    outputs: mpsc::UnboundedSender<Output>,
    max_tokens: u32,
    submitted_s: f64,
    last_token_s: f64,
}

impl Client {
    fn observe_token(&mut self, index: u32, now_s: f64, stats: &mut Stats) {
        match index {
            0 => stats.first_token_s.observe(now_s - self.submitted_s),
            _ => stats.inter_token_s.observe(now_s - self.last_token_s),
        }
        self.last_token_s = now_s;
    }
}

struct Driver {
    engine: Engine,
    started: Instant,
    speed: f64,
    commands: mpsc::UnboundedReceiver<Command>,
    faults: watch::Receiver<Fault>,
    stats: Arc<Mutex<Stats>>,
    clients: HashMap<RequestId, Client>,
    /// The engine's time. It runs from step to step without a gap while there is work, so that a sleep that is a little
    /// long does not slow the engine down.
    now_s: f64,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let fault = self.faults.borrow_and_update().clone();
            if fault == Fault::EngineDead {
                return;
            }
            if self.engine.is_idle() || fault == Fault::Hang {
                let command = tokio::select! {
                    command = self.commands.recv() => match command {
                        Some(command) => Some(command),
                        None => return,
                    },
                    changed = self.faults.changed() => match changed {
                        Ok(()) => None,
                        Err(_) => return,
                    },
                };
                self.now_s = self.engine_time(Instant::now());
                command.into_iter().for_each(|command| self.obey(command));
                continue;
            }
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            self.engine.set_slowdown(fault.slowdown());
            self.step().await;
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { request, at, outputs } => {
                let submitted_s = self.engine_time(at).min(self.now_s);
                let (id, max_tokens) = (request.id, request.max_tokens);
                // The caller has checked what the engine refuses; a refused request ends like a dead one.
                if self.engine.submit(submitted_s, request).is_ok() {
                    let client = Client { outputs, max_tokens, submitted_s, last_token_s: 0.0 };
                    self.clients.insert(id, client);
                }
            }
            Command::Abort(id) => {
                if self.clients.remove(&id).is_some() && self.engine.abort(id) {
                    self.stats.lock().aborted += 1;
                }
            }
        }
        self.stats.lock().engine = self.engine.snapshot();
    }

    async fn step(&mut self) {
        let Some(step) = self.engine.next_step(self.now_s) else {
            return;
        };
        self.now_s = step.end_s;
        tokio::time::sleep_until(self.started + Duration::from_secs_f64(step.end_s / self.speed)).await;
        let mut stats = self.stats.lock();
        stats.engine = self.engine.snapshot();
        stats.step_tokens.observe(step.tokens.into());
        let mut events = step.events.into_iter().peekable();
        while let Some(event) = events.next() {
            let Event::Token { id, index, token } = event else {
                continue;
            };
            let finished = events.next_if(|next| matches!(next, Event::Finished { .. }));
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            client.observe_token(index, step.end_s, &mut stats);
            let mut end = None;
            if let Some(Event::Finished { reason, usage, timeline, .. }) = finished {
                stats.finished(reason, &usage, &timeline, client.max_tokens);
                end = Some(End { reason, usage });
            }
            // A client that has gone away says so with an abort.
            _ = client.outputs.send(Output { index, token, end });
            if end.is_some() {
                self.clients.remove(&id);
            }
        }
    }

    fn engine_time(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started).as_secs_f64() * self.speed
    }
}

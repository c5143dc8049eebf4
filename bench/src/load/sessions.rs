//! The sessions as they live: which turn is due, and what the end of one brings.

use std::collections::HashMap;

use rand_distr::{Distribution as _, Exp};
use rand_pcg::Pcg64;

use super::session::rng;
use super::{Arrivals, Load, Queue, Session, Turn};

/// One turn of one conversation of one session, each counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TurnId {
    pub session: u64,
    pub conversation: usize,
    pub turn: usize,
}

/// A turn to be sent now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    pub id: TurnId,
    /// What a client would send to tell its sessions apart.
    pub session_key: u64,
    pub turn: Turn,
    pub max_tokens: u32,
}

/// All sessions of a load under one seed.
pub struct Sessions {
    load: Load,
    seed: u64,
    /// Sessions begun so far, and so the number of the next.
    begun: u64,
    /// For open loads: draws the time to the next arrival.
    arrivals: Option<(Exp<f64>, Pcg64)>,
    active: HashMap<u64, Active>,
    due: Queue<Due>,
}

struct Active {
    session: Session,
    /// Agents that the main conversation waits for.
    agents: usize,
}

enum Due {
    Arrival,
    Turn(TurnId),
}

impl Sessions {
    /// The load with `tier` sessions, from time 0 on.
    pub fn new(load: Load, tier: u32, seed: u64) -> Self {
        let arrivals = match load.arrivals {
            Arrivals::ClosedLoop => None,
            Arrivals::Poisson { session_s } => {
                let law = Exp::new(f64::from(tier) / session_s).expect("a checked load has a rate above 0");
                Some((law, rng(seed, u64::MAX - 1)))
            }
        };
        let mut sessions = Self { load, seed, begun: 0, arrivals, active: HashMap::new(), due: Queue::default() };
        if sessions.arrivals.is_some() {
            sessions.due_arrival(0.0);
        } else {
            (0..tier).for_each(|_| sessions.begin(0.0));
        }
        sessions
    }

    /// When something is due next. None: not before a turn ends.
    pub fn next_s(&self) -> Option<f64> {
        self.due.next_s()
    }

    /// Takes out the next turn that is due by `now_s`.
    pub fn take(&mut self, now_s: f64) -> Option<Call> {
        while self.next_s().is_some_and(|due_s| due_s <= now_s) {
            let (due_s, due) = self.due.pop()?;
            match due {
                Due::Arrival => {
                    self.begin(due_s);
                    self.due_arrival(due_s);
                }
                Due::Turn(id) => return Some(self.call(id)),
            }
        }
        None
    }

    /// Notes the end of a turn that was taken out. Returns whether its session is over with it.
    pub fn ended(&mut self, now_s: f64, id: TurnId) -> bool {
        let active = self.active.get_mut(&id.session).expect("a turn ends while its session lives");
        let conversations = &active.session.conversations;
        let more = id.turn + 1 < conversations[id.conversation].turns.len();
        if id.conversation > 0 {
            if more {
                self.due_turn(now_s, TurnId { turn: id.turn + 1, ..id });
                return false;
            }
            active.agents -= 1;
            let main_turn = conversations[id.conversation].after_turn.expect("an agent has a turn that started it");
            if active.agents == 0 {
                self.due_turn(now_s, TurnId { conversation: 0, turn: main_turn + 1, ..id });
            }
            return false;
        }
        if !more {
            self.active.remove(&id.session);
            if self.arrivals.is_none() {
                self.begin(now_s);
            }
            return true;
        }
        let agents: Vec<usize> =
            (1..conversations.len()).filter(|index| conversations[*index].after_turn == Some(id.turn)).collect();
        active.agents = agents.len();
        if agents.is_empty() {
            self.due_turn(now_s, TurnId { turn: id.turn + 1, ..id });
        }
        agents.into_iter().for_each(|conversation| self.due_turn(now_s, TurnId { conversation, turn: 0, ..id }));
        false
    }

    fn call(&self, id: TurnId) -> Call {
        let session = &self.active[&id.session].session;
        Call {
            id,
            session_key: session.key,
            turn: session.conversations[id.conversation].turns[id.turn],
            max_tokens: self.load.max_tokens,
        }
    }

    fn begin(&mut self, now_s: f64) {
        let number = self.begun;
        self.begun += 1;
        let session = Session::plan(&self.load, self.seed, number);
        self.active.insert(number, Active { session, agents: 0 });
        self.due_turn(now_s, TurnId { session: number, conversation: 0, turn: 0 });
    }

    fn due_turn(&mut self, now_s: f64, id: TurnId) {
        let think_s = self.active[&id.session].session.conversations[id.conversation].turns[id.turn].think_s;
        self.due.push(now_s + think_s, Due::Turn(id));
    }

    fn due_arrival(&mut self, now_s: f64) {
        if let Some((law, rng)) = &mut self.arrivals {
            self.due.push(now_s + law.sample(rng), Due::Arrival);
        }
    }
}

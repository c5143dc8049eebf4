use super::cache::CacheOutcome;
use super::router::Chosen;
use super::stored::Kept;
use super::{Ask, Key, Pin, Retry, Router, Time, Turn};

/// A try of a request at an engine, by which its outcome is told from those of requests sent before and since.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The engine's place in the router's list.
    pub engine: usize,
    /// How often the engine's circuit had opened when the request was sent.
    pub(super) openings: u64,
    /// How often the engine had come back.
    pub(super) returns: u64,
}

impl Attempt {
    /// Whether it is at the engine of `earlier`, which has not come back between the two.
    pub fn repeats(&self, earlier: &Attempt) -> bool {
        (self.engine, self.returns) == (earlier.engine, earlier.returns)
    }
}

impl Router {
    /// The try of a request that is sent to an engine now.
    pub fn attempt(&self, engine: usize) -> Attempt {
        let at = &self.engines[engine];
        Attempt { engine, openings: at.health.circuit.opened(), returns: at.returns }
    }

    /// Whether an engine is the last one tried, or has been tried before and not come back since.
    pub(super) fn has_tried(&self, tried: &[Attempt], engine: usize) -> bool {
        let next = self.attempt(engine);
        tried.last().is_some_and(|last| last.engine == engine) || tried.iter().any(|earlier| next.repeats(earlier))
    }

    /// Chooses where a request goes next that failed on every engine in `tried` (the last one just now), counts it in there
    /// and out where it was. One that has come back since it was tried may be tried again. The decision stays. None: no other
    /// engine is left, and it stays where it is.
    pub fn retry(&mut self, ask: &Ask, turn: &Turn, tried: &[Attempt], why: Retry, now: Time) -> Option<Turn> {
        // One that was sent to its home, which cannot be reached, moves; any other request goes elsewhere for this once.
        let moves = ask.key.filter(|key| why == Retry::Unreachable && self.was_home(key, tried));
        let target = match ask.pin {
            // Nobody else has what it names.
            _ if self.kept(ask) != Kept::Unknown => return None,
            Pin::Rank(rank) if self.has_rank(rank) => self.pinned(ask.key, rank, tried, now)?.target,
            Pin::None if self.settings.affinity => self.target(match moves {
                Some(key) => self.by_load(&key, tried, now)?.replica,
                None => self.least_loaded(tried, now)?.0,
            }),
            Pin::None | Pin::Invalid | Pin::Rank(_) => self.unrouted(tried, now)?.target,
        };
        self.finish(turn, None, now);
        let moved = moves.zip(target.replica);
        if let Some((key, replica)) = moved {
            self.live_at(key, replica, now);
            self.takes_one(replica, now);
        }
        self.failed_over += 1;
        let chosen = Chosen { target, decision: turn.decision, why: turn.why };
        Some(self.enter(ask, chosen, moved.is_some(), CacheOutcome::Moved, now))
    }

    /// Whether a conversation lives at the engine tried last.
    fn was_home(&self, key: &Key, tried: &[Attempt]) -> bool {
        let home = self.conversations.home(key).map(|home| self.engine_of(home));
        home.is_some() && home == tried.last().map(|last| last.engine)
    }
}

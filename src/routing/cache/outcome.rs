use std::collections::VecDeque;

use serde::Serialize;

/// What became of a conversation's cache, told at the end of each of its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheOutcome {
    /// The turn found what the one before left.
    Kept,
    /// The first turn of its conversation: there was nothing to find.
    FirstTurn,
    /// It went elsewhere because home was too busy.
    Spilled,
    /// The conversation has another home than before, or its turn was sent elsewhere by a failure or by the client.
    Moved,
    /// Others needed the room in the cache.
    Evicted,
    /// The engine started anew, and its cache with it.
    ReplicaRestarted,
    /// The prompt does not go on where the last one ended: compacted, or changed near its beginning.
    PromptChanged,
    /// The engine does not say how much it found.
    Unmeasured,
}

impl CacheOutcome {
    /// All outcomes, in the order in which they are reported.
    pub const ALL: [CacheOutcome; 8] = [
        CacheOutcome::Kept,
        CacheOutcome::FirstTurn,
        CacheOutcome::Spilled,
        CacheOutcome::Moved,
        CacheOutcome::Evicted,
        CacheOutcome::ReplicaRestarted,
        CacheOutcome::PromptChanged,
        CacheOutcome::Unmeasured,
    ];

    /// The name in metrics, logs and JSON.
    pub fn name(self) -> &'static str {
        match self {
            CacheOutcome::Kept => "kept",
            CacheOutcome::FirstTurn => "first_turn",
            CacheOutcome::Spilled => "spilled",
            CacheOutcome::Moved => "moved",
            CacheOutcome::Evicted => "evicted",
            CacheOutcome::ReplicaRestarted => "replica_restarted",
            CacheOutcome::PromptChanged => "prompt_changed",
            CacheOutcome::Unmeasured => "unmeasured",
        }
    }
}

/// Turns by what became of their conversation's cache, and how well that was foreseen, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    outcomes: [u64; CacheOutcome::ALL.len()],
    /// Tokens that the turns with a cache at home should have found there.
    pub expected_tokens: u64,
    /// Tokens that those turns found, by the engines' reports.
    pub found_tokens: u64,
    /// By how much the two differed, turn by turn, added up.
    pub error_tokens: u64,
    /// Idle conversations of a replica that are not followed any more because they were too many.
    pub untracked: u64,
}

impl CacheCounts {
    /// Turns with this outcome.
    pub fn of(&self, outcome: CacheOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    pub(super) fn count(&mut self, outcome: CacheOutcome) {
        self.outcomes[outcome as usize] += 1;
    }

    pub(super) fn foreseen(&mut self, expected: u64, found: u64) {
        self.expected_tokens += expected;
        self.found_tokens += found;
        self.error_tokens += expected.abs_diff(found);
    }
}

/// What is likely wrong where turns go home and yet find nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// No answer says how much of its prompt was cached: vLLM says so for the OpenAI dialect only when started with
    /// `--enable-prompt-tokens-details`.
    NoCachedTokens,
    /// No turn finds anything: the engine runs without prefix caching.
    NoPrefixCache,
    /// Turns find only a beginning: something near the head of the prompt changes from turn to turn (a date, a counter).
    PromptHeadChanges,
}

impl Advice {
    /// What to tell the operator.
    pub fn sentence(self) -> &'static str {
        match self {
            Advice::NoCachedTokens => {
                "no answer says how many prompt tokens were cached: start vLLM with --enable-prompt-tokens-details"
            }
            Advice::NoPrefixCache => {
                "turns go home and find nothing cached: is the engine started with --enable-prefix-caching?"
            }
            Advice::PromptHeadChanges => {
                "turns go home and find only the head of their prompt: something near its beginning changes each turn"
            }
        }
    }
}

/// Turns that an advice rests on.
const WATCHED: usize = 50;

/// The last turns that should have found their cache.
#[derive(Default)]
pub(super) struct Watch {
    turns: VecDeque<Watched>,
}

struct Watched {
    expected: u64,
    found: Option<u64>,
}

impl Watch {
    pub fn note(&mut self, expected: u64, found: Option<u64>) {
        if self.turns.len() == WATCHED {
            self.turns.pop_front();
        }
        self.turns.push_back(Watched { expected, found });
    }

    /// What is likely wrong, if the last turns all point to it.
    pub fn advice(&self) -> Option<Advice> {
        if self.turns.len() < WATCHED {
            return None;
        }
        let Some(found) = self.turns.iter().map(|turn| turn.found).sum::<Option<u64>>() else {
            return self.turns.iter().all(|turn| turn.found.is_none()).then_some(Advice::NoCachedTokens);
        };
        let expected: u64 = self.turns.iter().map(|turn| turn.expected).sum();
        match found {
            0 => Some(Advice::NoPrefixCache),
            _ if found * 2 < expected => Some(Advice::PromptHeadChanges),
            _ => None,
        }
    }
}

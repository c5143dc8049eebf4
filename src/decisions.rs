//! The last decisions, for those who ask why a turn went where it went.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::routing::{CacheOutcome, ConversationHash, Decision, Reason};

/// Decisions kept.
pub const DECISIONS_MAX: usize = 200;

/// A decision, and what came of it. It holds nothing that a client sent.
#[derive(Clone)]
pub struct Decided {
    /// When the request came.
    pub at: SystemTime,
    pub model: String,
    /// The replica that was asked last.
    pub replica: String,
    pub decision: Decision,
    pub reason: Reason,
    pub conversation: Option<ConversationHash>,
    /// How long it waited for room, in seconds, if it had to.
    pub parked_s: Option<f64>,
    /// Prompt tokens, and those of them that were cached; none where the engine did not say.
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    /// What became of its conversation's cache.
    pub cache: Option<CacheOutcome>,
}

/// The last [`DECISIONS_MAX`] decisions of the process whose requests have ended.
#[derive(Default)]
pub struct Decisions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last_ended_first: VecDeque<Numbered>,
    next: u64,
}

/// A decision with its number in the process, by which a reader knows it again.
#[derive(Clone)]
pub struct Numbered {
    pub number: u64,
    pub decided: Decided,
}

/// Which of them are asked for. What is none or empty asks for all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub model: Option<String>,
    /// The name of a decision.
    pub decision: Option<String>,
    /// How the shown hash of a conversation begins.
    pub conversation: Option<String>,
}

impl Decisions {
    /// Keeps a decision; the oldest goes.
    pub fn note(&self, decided: Decided) {
        let mut kept = self.0.lock();
        if kept.last_ended_first.len() == DECISIONS_MAX {
            kept.last_ended_first.pop_back();
        }
        let number = kept.next;
        kept.next += 1;
        kept.last_ended_first.push_front(Numbered { number, decided });
    }

    /// Those asked for, the newest first: they are kept in the order in which they ended.
    pub fn select(&self, filter: &Filter) -> Vec<Numbered> {
        let fit = |one: &&Numbered| filter.fits(&one.decided);
        let mut selected: Vec<Numbered> = self.0.lock().last_ended_first.iter().filter(fit).cloned().collect();
        selected.sort_by_key(|one| std::cmp::Reverse(one.decided.at));
        selected
    }
}

impl Filter {
    fn fits(&self, decided: &Decided) -> bool {
        let asked = |wanted: &Option<String>, fits: &dyn Fn(&str) -> bool| match wanted.as_deref().map(str::trim) {
            None | Some("") => true,
            Some(wanted) => fits(wanted),
        };
        asked(&self.model, &|wanted| decided.model == wanted)
            && asked(&self.decision, &|wanted| decided.decision.name() == wanted)
            && asked(&self.conversation, &|wanted| {
                decided.conversation.is_some_and(|hash| hash.to_string().starts_with(&wanted.to_ascii_lowercase()))
            })
    }
}

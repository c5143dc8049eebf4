//! What can be wrong with a replica, on request.

use serde::{Deserialize, Serialize};

/// The state of a replica. A new one replaces the last.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// All is well.
    #[default]
    Ok,
    /// New connections are refused; those that are open live on.
    Refuse,
    /// The engine does no more steps, while `/health` answers 200 as vLLM's does then.
    Hang,
    /// Every request gets this many output tokens and then nothing, with its connection open.
    Stall {
        #[serde(default = "one")]
        after_tokens: u32,
    },
    /// Every answer fails after this many output tokens, a stream with an error event, while all else is well.
    Fail {
        #[serde(default)]
        after_tokens: u32,
    },
    /// The engine is dead and the server in front of it is not: `/health` answers 503, requests fail, streams end with an
    /// error event. vLLM exits seconds later; here [`Fault::Die`] is the next request.
    EngineDead,
    /// The process is gone: every connection is cut and new ones are refused, until another state is asked for. Then a
    /// new process starts, with an empty cache and counters from zero.
    Die,
    /// Dies, and a new process is there after this many seconds.
    Restart {
        #[serde(default)]
        down_s: f64,
    },
    /// Steps take this many times as long.
    Slow { factor: f64 },
    /// `/metrics` repeats what it said when it was first asked in this state.
    StaleMetrics,
    /// The server answers 503 to everything.
    Starting,
}

fn one() -> u32 {
    1
}

impl Fault {
    /// # Errors
    /// When a number is out of range, a message that names it.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Slow { factor } if !(factor.is_finite() && *factor > 0.0) => {
                Err(format!("factor is {factor}: give a number above 0"))
            }
            Self::Restart { down_s } if !(0.0..=3600.0).contains(down_s) => {
                Err(format!("down_s is {down_s}: give 0 to 3600 seconds"))
            }
            _ => Ok(()),
        }
    }

    /// How much longer steps take.
    pub(super) fn slowdown(&self) -> f64 {
        if let Self::Slow { factor } = self { *factor } else { 1.0 }
    }

    /// Whether the process that serves now must end.
    pub(super) fn kills(&self) -> bool {
        matches!(self, Self::Die | Self::Restart { .. })
    }
}

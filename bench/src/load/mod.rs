//! What agents ask for: sessions of turns, in tokens.
//!
//! Pure: time is an argument, and nothing in here knows how a request is sent. [`Sessions`] says which turn is due and is
//! told when it ended; the experiment drives it in virtual time.

mod distribution;
mod queue;
mod session;
mod sessions;

use std::path::Path;

pub use distribution::Distribution;
pub use queue::Queue;
use serde::Deserialize;
use serde_yaml::with::singleton_map_recursive;
pub use session::{Conversation, Session, Turn};
pub use sessions::{Call, Sessions, TurnId};

/// The loads in `bench/loads/`, by name.
const BUILT_IN: [(&str, &str); 8] = [
    ("published", include_str!("../../loads/published.yaml")),
    ("think", include_str!("../../loads/think.yaml")),
    ("burst", include_str!("../../loads/burst.yaml")),
    ("poisson", include_str!("../../loads/poisson.yaml")),
    ("farm", include_str!("../../loads/farm.yaml")),
    ("open", include_str!("../../loads/open.yaml")),
    ("long", include_str!("../../loads/long.yaml")),
    ("long-context", include_str!("../../loads/long-context.yaml")),
];

/// A load: how sessions come, what each does, and what it is usually run on.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The profile of the replicas it is meant for.
    pub profile: String,
    /// The number of replicas it is meant for.
    pub replicas: u16,
    /// Numbers of sessions it is meant for.
    pub tiers: Vec<u32>,
    pub arrivals: Arrivals,
    /// Tokens of the system prompt that all sessions share.
    pub system_tokens: u32,
    /// Tokens of a conversation's first message.
    pub first_message_tokens: Distribution,
    /// Tokens of each later message.
    pub later_message_tokens: Distribution,
    /// Turns of a session.
    pub turns: Distribution,
    /// Tokens the model would answer with if nothing stopped it.
    pub output_tokens: Distribution,
    /// Where an answer is cut off.
    pub max_tokens: u32,
    /// Seconds between the end of a turn and the next one.
    pub think_s: Distribution,
    /// Tokens a conversation grows to at most, its last answer included; it ends before.
    pub context_max: u32,
    /// Agents that work for a session besides its main conversation.
    #[serde(default)]
    pub agents: Option<Agents>,
}

/// When sessions begin.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// So many sessions as the tier says at all times: the next begins when one ends.
    ClosedLoop,
    /// Sessions come when they come, however slow the fleet is: a Poisson process. Its rate is such that as many sessions
    /// as the tier says would be there at once if each took `session_s`.
    Poisson { session_s: f64 },
}

/// Agents that work in parallel: each is a conversation of its own, with a system prompt that all agents share. The main
/// conversation waits for all of them before its next turn.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    /// The chance that a turn starts some, 0 to 1.
    pub chance: f64,
    /// How many then.
    pub number: Distribution,
    pub system_tokens: u32,
    pub turns: Distribution,
}

impl Load {
    /// The names of the built-in loads.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a built-in load by its name, or else the YAML file at that path.
    ///
    /// # Errors
    /// A message that says what is wrong and where.
    pub fn read(name_or_path: &str) -> Result<Self, String> {
        let yaml = match BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            Some((_, yaml)) => (*yaml).to_owned(),
            None => std::fs::read_to_string(Path::new(name_or_path)).map_err(|error| {
                let names: Vec<_> = Self::names().collect();
                format!("no load `{name_or_path}`: {error}; name a file or one of {}", names.join(", "))
            })?,
        };
        Self::parse(&yaml).map_err(|error| format!("load `{name_or_path}`: {error}"))
    }

    /// Reads a load from YAML and checks it.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn parse(yaml: &str) -> Result<Self, String> {
        let yaml = serde_yaml::Deserializer::from_str(yaml);
        let load: Self = singleton_map_recursive::deserialize(yaml).map_err(|error| error.to_string())?;
        load.check()?;
        Ok(load)
    }

    fn check(&self) -> Result<(), String> {
        let mut distributions = vec![
            ("first_message_tokens", self.first_message_tokens),
            ("later_message_tokens", self.later_message_tokens),
            ("turns", self.turns),
            ("output_tokens", self.output_tokens),
            ("think_s", self.think_s),
        ];
        if let Some(agents) = &self.agents {
            distributions.extend([("agents.number", agents.number), ("agents.turns", agents.turns)]);
            if !(0.0..=1.0).contains(&agents.chance) {
                return Err(format!("agents.chance is {}: give a number from 0 to 1", agents.chance));
            }
        }
        if let Some((field, value)) = distributions.iter().find(|(_, value)| !value.is_valid()) {
            return Err(format!("{field} is {value:?}: give numbers from 0 on, the smaller first"));
        }
        if let Arrivals::Poisson { session_s } = self.arrivals
            && !(session_s.is_finite() && session_s > 0.0)
        {
            return Err(format!("arrivals.poisson.session_s is {session_s}: give a number above 0"));
        }
        if self.replicas == 0 || self.max_tokens == 0 || self.tiers.contains(&0) {
            return Err("replicas, max_tokens and tiers: give numbers above 0".to_owned());
        }
        let system = self.agents.map_or(0, |agents| agents.system_tokens).max(self.system_tokens);
        let first_turn = f64::from(system) + self.first_message_tokens.most() + f64::from(self.max_tokens);
        if first_turn > f64::from(self.context_max) {
            return Err(format!("context_max is {}: a first turn of {first_turn} tokens must fit", self.context_max));
        }
        Ok(())
    }
}

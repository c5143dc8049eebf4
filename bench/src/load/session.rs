//! What one session will do, from its first word to its last.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{Agents, Load};

/// A session: its main conversation, then those of the agents that work for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// What a client would send to tell its sessions apart.
    pub key: u64,
    pub conversations: Vec<Conversation>,
}

/// Turns that share a prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// The turn of the main conversation whose end starts it; none for the main conversation.
    pub after_turn: Option<usize>,
    pub turns: Vec<Turn>,
}

/// One request and its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Tokens of the system prompt, at the first turn.
    pub system_tokens: u32,
    /// New tokens of the user or of a tool.
    pub message_tokens: u32,
    /// Tokens the model will answer with.
    pub output_tokens: u32,
    /// Pause before it, seconds.
    pub think_s: f64,
}

impl Session {
    /// The session of this number. It depends on nothing but the arguments, so that every arm gets the same sessions.
    pub fn plan(load: &Load, seed: u64, number: u64) -> Self {
        let mut rng = rng(seed, number);
        let key = rng.random();
        let turns = load.turns.draw_count(&mut rng, 1);
        let main = conversation(load, &mut rng, None, load.system_tokens, turns);
        let mut conversations = vec![main];
        if let Some(agents) = &load.agents {
            for turn in 0..conversations[0].turns.len() - 1 {
                conversations.extend(agents_after(load, agents, &mut rng, turn));
            }
        }
        Self { key, conversations }
    }
}

/// Random numbers for the `stream`-th thing that is drawn under a seed.
pub(super) fn rng(seed: u64, stream: u64) -> Pcg64 {
    // Neighbouring seeds must not give neighbouring states.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    Pcg64::seed_from_u64(seed.wrapping_mul(SPREAD) ^ stream.wrapping_add(1).wrapping_mul(SPREAD.rotate_left(32)))
}

fn agents_after(load: &Load, agents: &Agents, rng: &mut Pcg64, turn: usize) -> Vec<Conversation> {
    if !rng.random_bool(agents.chance) {
        return Vec::new();
    }
    let number = agents.number.draw_count(rng, 1);
    (0..number)
        .map(|_| {
            let turns = agents.turns.draw_count(rng, 1);
            conversation(load, rng, Some(turn), agents.system_tokens, turns)
        })
        .collect()
}

/// Ends before the context is full.
fn conversation(
    load: &Load,
    rng: &mut impl Rng,
    after_turn: Option<usize>,
    system_tokens: u32,
    turns: u32,
) -> Conversation {
    let mut context = 0;
    let turns = (0..turns).map_while(|turn| {
        let first = turn == 0;
        let message = if first { load.first_message_tokens } else { load.later_message_tokens };
        let turn = Turn {
            system_tokens: if first { system_tokens } else { 0 },
            message_tokens: message.draw_count(rng, 1),
            output_tokens: load.output_tokens.draw_count(rng, 1).min(load.max_tokens),
            think_s: if first { 0.0 } else { load.think_s.draw(rng) },
        };
        context += turn.system_tokens + turn.message_tokens + turn.output_tokens;
        (context <= load.context_max).then_some(turn)
    });
    Conversation { after_turn, turns: turns.collect() }
}

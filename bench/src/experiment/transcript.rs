use std::collections::HashMap;

use crate::engine::{Prompt, Request, RequestId};
use crate::load::{Call, TurnId};

/// What was said so far in each conversation, in tokens.
pub struct Transcripts {
    block_size: u32,
    conversations: HashMap<(u64, usize), Prompt>,
}

impl Transcripts {
    pub fn new(block_size: u32) -> Self {
        Self { block_size, conversations: HashMap::new() }
    }

    /// The request of a turn: everything so far, and what is new.
    pub fn ask(&mut self, id: RequestId, call: &Call) -> Request {
        let TurnId { session, conversation, .. } = call.id;
        let prompt = self.conversations.entry((session, conversation)).or_insert_with(|| {
            let mut prompt = Prompt::new(self.block_size);
            // Agents share a system prompt of their own.
            let kind = u32::from(conversation > 0);
            prompt.extend(std::iter::once(kind).chain(1..call.turn.system_tokens));
            prompt
        });
        // A conversation's first words are its own, so that everything after them is too.
        let own = [session as u32, conversation as u32];
        prompt.extend(own.into_iter().chain(2..).take(call.turn.message_tokens as usize));
        let output = (0..call.turn.output_tokens).collect();
        Request { id, prompt: prompt.clone(), output, max_tokens: call.max_tokens }
    }

    /// Notes the answer of a turn.
    pub fn answer(&mut self, id: TurnId, output_tokens: u32) {
        if let Some(prompt) = self.conversations.get_mut(&(id.session, id.conversation)) {
            prompt.extend(0..output_tokens);
        }
    }

    /// Forgets a session that is over.
    pub fn forget(&mut self, session: u64) {
        self.conversations.retain(|(of, _), _| *of != session);
    }
}

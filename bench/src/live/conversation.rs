use super::request::{self, Message};
use crate::engine::Prompt;
use crate::fleet::tokens::tokenize;
use crate::load::Call;

/// What was said so far.
pub struct Conversation {
    pub system: String,
    pub messages: Vec<Message>,
}

impl Conversation {
    /// Nothing has been said before this turn.
    pub fn begin(call: &Call) -> Self {
        Self { system: request::system(call), messages: Vec::new() }
    }

    /// Its tokens, as a balancer knows them that sees the texts and not the chat template.
    pub fn prompt(&self, block_size: u32) -> Prompt {
        let mut prompt = Prompt::new(block_size);
        prompt.extend(tokenize(&self.system));
        self.messages.iter().for_each(|message| prompt.extend(tokenize(&message.content)));
        prompt
    }
}

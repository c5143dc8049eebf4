//! Text of so many tokens, as the simulated engines count them.

use crate::fleet::tokens::BYTES_PER_TOKEN;

/// What the chat template adds to a message: the tokens that open and end it.
const TEMPLATE_TOKENS: u32 = 2;

/// A message of `tokens` tokens in all. Texts of different subjects differ from their first word on.
pub fn message(subject: &str, tokens: u32) -> String {
    let bytes = tokens.saturating_sub(TEMPLATE_TOKENS).max(1) as usize * BYTES_PER_TOKEN;
    let mut text = String::with_capacity(bytes + 64);
    let mut word = 0;
    while text.len() < bytes {
        text += &format!("{subject} {word} ");
        word += 1;
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tokens::tokenize;

    #[test]
    fn a_message_has_the_tokens_it_is_asked_for() {
        for tokens in [3, 100, 7345] {
            let text = message("session 1", tokens);
            assert_eq!(tokenize(&text).count() as u32 + TEMPLATE_TOKENS, tokens);
        }
    }

    #[test]
    fn subjects_differ_from_the_first_word_on() {
        let first = |subject| tokenize(&message(subject, 100)).next();
        assert_ne!(first("1 session"), first("2 session"));
    }
}

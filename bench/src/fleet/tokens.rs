//! Text and tokens: four bytes a token, so that what a client sends back becomes the tokens that were generated.
//!
//! Every message is cut on its own, from its first byte. Its text may grow or stay, and the tokens before it stay the
//! same, as with a real chat template.

/// Bytes of text a token stands for; close to what real vocabularies reach on English and code.
pub const BYTES_PER_TOKEN: usize = 4;

/// A token of the chat template. No text makes one: its bytes are not UTF-8.
const fn special(number: u8) -> u32 {
    u32::from_le_bytes([number, 0xff, 0xff, 0xff])
}

/// Opens a message of the system.
pub const SYSTEM: u32 = special(0);
/// Opens a message of the user.
pub const USER: u32 = special(1);
/// Opens a message of the model.
pub const ASSISTANT: u32 = special(2);
/// Opens the result of a tool.
pub const TOOL: u32 = special(3);
/// Ends a message.
pub const END: u32 = special(4);

/// The tokens of a text.
pub fn tokenize(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.as_bytes().chunks(BYTES_PER_TOKEN).map(|chunk| {
        let mut bytes = [0; BYTES_PER_TOKEN];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(bytes)
    })
}

/// The text of a generated token; that of [`END`] is empty.
pub fn text(token: u32) -> String {
    if token == END {
        return String::new();
    }
    String::from_utf8_lossy(&token.to_le_bytes()).into_owned()
}

/// What the model answers to a prompt with this fingerprint: words of three letters and a space, the same every time.
/// The space comes last, so that a client that trims the answer changes its last token at most.
pub fn answer(fingerprint: u64) -> impl Iterator<Item = u32> {
    (1u64..).map(move |index| {
        let mut bits = scramble(fingerprint.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let mut letter = || {
            let letter = b'a' + (bits % 26) as u8;
            bits /= 26;
            letter
        };
        u32::from_le_bytes([letter(), letter(), letter(), b' '])
    })
}

/// The finaliser of splitmix64: every bit of the result depends on every bit of the input.
pub fn scramble(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_sent_back_becomes_the_same_tokens() {
        let generated: Vec<_> = answer(7).take(50).collect();
        let sent: String = generated.iter().map(|token| text(*token)).collect();
        assert_eq!(sent.len(), 200);
        assert_eq!(tokenize(&sent).collect::<Vec<_>>(), generated);
        // A client may trim what ends the answer: only the last token changes.
        assert_eq!(tokenize(sent.trim()).take(49).collect::<Vec<_>>(), generated[..49]);
    }

    #[test]
    fn no_text_makes_a_token_of_the_template() {
        let all_chars: String = (0..=0x10_ffffu32).step_by(97).filter_map(char::from_u32).collect();
        let specials = [SYSTEM, USER, ASSISTANT, TOOL, END];
        assert!(tokenize(&all_chars).all(|token| !specials.contains(&token)));
    }

    #[test]
    fn a_longer_text_begins_with_the_tokens_of_a_shorter_one() {
        let (short, long) = ("eight by", "eight bytes and some more");
        assert!(tokenize(long).collect::<Vec<_>>().starts_with(&tokenize(short).collect::<Vec<_>>()));
    }
}

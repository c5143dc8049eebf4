//! The tokens of a request as the prefix cache sees them: a chain of block hashes.
//!
//! A block's hash covers every token before it, so equal hashes mean equal prefixes. The chain grows token by token,
//! which makes the next turn of a conversation as cheap as its new tokens: clone the last prompt and extend it.

/// The hash of a full block and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash(pub u64);

/// A sequence of tokens, reduced to its length and its chain of block hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    block_size: u32,
    hashes: Vec<BlockHash>,
    /// The hash of all tokens so far, full block or not.
    state: u64,
    len: u32,
}

impl Prompt {
    /// An empty prompt for an engine whose blocks hold `block_size` tokens (at least 1).
    pub fn new(block_size: u32) -> Self {
        assert!(block_size > 0, "a block holds at least one token");
        Self { block_size, hashes: Vec::new(), state: 0, len: 0 }
    }

    /// Appends one token.
    pub fn push(&mut self, token: u32) {
        self.state = mix(self.state, token);
        self.len += 1;
        if self.len.is_multiple_of(self.block_size) {
            self.hashes.push(BlockHash(self.state));
        }
    }

    /// The number of tokens.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no token yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens a block holds.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The hashes of the full blocks, first to last.
    pub fn block_hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// A hash of all tokens, those of the last, unfilled block included.
    pub fn fingerprint(&self) -> u64 {
        self.state
    }
}

impl Extend<u32> for Prompt {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, tokens: I) {
        for token in tokens {
            self.push(token);
        }
    }
}

/// One step of the chain: a folded multiplication, as in wyhash, of the state and the token.
fn mix(state: u64, token: u32) -> u64 {
    const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;
    const FACTOR: u64 = 0xa076_1d64_78bd_642f;
    let input = (state ^ u64::from(token)).wrapping_add(INCREMENT);
    let product = u128::from(input) * u128::from(FACTOR ^ state.rotate_left(32));
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(tokens: impl IntoIterator<Item = u32>) -> Prompt {
        let mut prompt = Prompt::new(4);
        prompt.extend(tokens);
        prompt
    }

    #[test]
    fn only_full_blocks_have_a_hash() {
        assert_eq!(prompt(0..3).block_hashes().len(), 0);
        assert_eq!(prompt(0..4).block_hashes().len(), 1);
        assert_eq!(prompt(0..11).block_hashes().len(), 2);
    }

    #[test]
    fn a_shared_prefix_shares_its_hashes_and_no_more() {
        let (a, b) = (prompt([1, 2, 3, 4, 5, 6, 7, 8]), prompt([1, 2, 3, 4, 5, 6, 7, 9]));
        assert_eq!(a.block_hashes()[0], b.block_hashes()[0]);
        assert_ne!(a.block_hashes()[1], b.block_hashes()[1]);
        // The same block after another beginning is another block.
        let c = prompt([0, 2, 3, 4, 5, 6, 7, 8]);
        assert_ne!(a.block_hashes()[1], c.block_hashes()[1]);
    }

    #[test]
    fn extending_is_the_same_as_starting_over() {
        let mut grown = prompt(0..6);
        grown.extend(6..20);
        assert_eq!(grown, prompt(0..20));
    }
}

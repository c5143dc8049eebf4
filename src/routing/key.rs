//! The name a conversation goes by inside the balancer.

use std::fmt;

/// A conversation's key: a keyed 128-bit hash of what the client sent, never what it sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    /// Takes a hash that is already keyed and spread over all 128 bits.
    pub const fn new(hash: u128) -> Self {
        Self(hash)
    }
}

impl fmt::Debug for Key {
    /// Shows the first 16 of the 128 bits: enough to tell two keys apart in a test, too few to name a conversation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:04x}…)", self.0 >> 112)
    }
}

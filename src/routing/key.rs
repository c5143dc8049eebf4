//! The name a conversation goes by inside the balancer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A conversation's key: a keyed 128-bit hash of what the client sent, never what it sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key(u128);

impl Key {
    /// Takes a hash that is already keyed and spread over all 128 bits.
    pub const fn new(hash: u128) -> Self {
        Self(hash)
    }
}

impl Key {
    /// What may be shown of it.
    pub fn shown(&self) -> ConversationHash {
        ConversationHash((self.0 >> 96) as u32)
    }
}

/// What a page shows of a conversation: 32 bits of its key, as eight hexadecimal digits. It says nothing of what the client
/// sent, and is another under another routing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConversationHash(u32);

impl fmt::Display for ConversationHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Key {
    /// Shows the first 16 of the 128 bits: enough to tell two keys apart in a test, too few to name a conversation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:04x}…)", self.0 >> 112)
    }
}

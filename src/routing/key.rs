use std::fmt;

/// The key of a conversation: a 128-bit keyed hash of what the client sent, never the id itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u128);

impl fmt::Debug for Key {
    /// Shows too little to look the key up, enough to tell two apart in a failing test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:08x}..)", (self.0 >> 96) as u32)
    }
}

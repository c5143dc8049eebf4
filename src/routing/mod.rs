//! The pure core: which replica a request goes to.

mod key;

pub use key::Key;

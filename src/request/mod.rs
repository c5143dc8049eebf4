//! What a request asks for, and what its answer says of its tokens. Pure: bytes and headers in, facts out.

pub mod chunks;
pub mod endpoint;
pub mod event;
pub mod head;
mod json;
mod json_reader;
pub mod key;
pub mod multipart;
pub mod peek;
pub mod rewrite;
pub mod saved;
pub mod session;
pub mod source;
pub mod stored;
pub mod traceparent;
pub mod usage;

pub use endpoint::{Dialect, Endpoint, Local};
pub use key::{Caller, KeyHasher, RoutingKey};
pub use peek::{Peek, peek};
pub use session::{InHeaders, Rules};
pub use stored::{Stored, StoredIds};

//! What is read of requests and answers, through the public surface.

mod chunks;
mod endpoint;
mod event;
mod head;
mod key;
mod multipart;
mod peek;
mod rewrite;
mod session;
mod session_in_body;
mod stored;
mod usage;

//! What is read of requests and answers, through the public surface.

mod endpoint;
mod key;
mod multipart;
mod peek;
mod rewrite;
mod session;
mod session_in_body;
mod stored;
mod usage;

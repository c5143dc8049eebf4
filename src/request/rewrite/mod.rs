//! What an operator may have changed on the way, and nothing beside it: the model's name in a request and in its answer, and a
//! usage that the client did not ask for.
//!
//! `body` changes requests, which are whole. Answers pass piece by piece: `model_field` finds the name in JSON, `renamed` in an
//! answer of either form, `unasked_usage` takes a chunk out of a stream. What comes out is the same however a stream is split.

mod body;
mod model_field;
mod renamed;
mod unasked_usage;

pub use body::{Edit, apply};
pub use renamed::Renamed;
pub use unasked_usage::UnaskedUsage;

//! What an operator asks a running balancer from a terminal, over its admin address.

mod admin;
mod explain;
mod status;
mod text;

pub use admin::{Admin, Whereabouts};
pub use explain::explain;
pub use status::{show, watch};

//! The replicas as they live: where they are, whether they answer, what their metrics say, what is in flight on them.

mod clock;
mod discoverer;
mod engine;
mod fetch;
mod in_flight;
mod in_force;
mod life;
mod model;
mod models;
mod parking;
mod resting;
mod revive;
mod saved;
mod scrape;
mod sources;
mod states;
mod transport;
pub mod vllm_metrics;

pub use clock::now;
pub use discoverer::{DiscoverService, Discoverer};
pub use engine::Engine;
pub use fetch::{Answer, Fetcher, bearer};
pub use in_flight::{Elsewhere, InFlight, TRIES_MAX};
pub use in_force::InForce;
pub use life::Life;
pub use model::{ANY_MODEL, Model};
pub use models::Fleet;
pub use parking::{Routed, Wait, WakeService};
pub use resting::{Rest, Resting};
pub use scrape::{ScrapeService, Scraper};
pub use transport::tcp_keepalive;

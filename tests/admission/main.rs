//! Past the knee, case by case, on the pure core: who waits, who goes on, and what is learned of the caches.

mod bounds;
mod capacity;
mod line;
mod members;
mod odd_input;
mod outcomes;
mod placement;
mod world;

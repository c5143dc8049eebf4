//! What a model knows, over a restart of the process.

use std::time::Duration;

use parking_lot::Mutex;

use super::{Model, now};
use crate::routing::{Router, Saved, Time};

/// What waits for the engines to be found at which it was, and when it was saved.
#[derive(Default)]
pub struct Kept(Mutex<Option<(Saved, Time)>>);

impl Model {
    /// What is to be kept: what is known, or what was known before, while no engine has been found at which that was.
    pub fn save(&self) -> Saved {
        let router = self.router.lock();
        match &*self.kept.0.lock() {
            Some((saved, at)) => saved.clone().aged(now().since(*at)),
            None => router.save(now()),
        }
    }

    /// Takes back what was kept `away` ago, as soon as an engine is known.
    pub fn restore(&self, saved: Saved, away: Duration) {
        let mut router = self.router.lock();
        *self.kept.0.lock() = Some((saved, now() - away));
        self.kept.put_back(&mut router);
    }
}

impl Kept {
    pub fn put_back(&self, router: &mut Router) {
        if router.configured().is_empty() {
            return;
        }
        if let Some((saved, at)) = self.0.lock().take() {
            router.restore(&saved, now().since(at), now());
        }
    }
}

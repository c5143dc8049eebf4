//! Who calls, where callers are configured: told by an API key, and held to what the operator allows each of them.

pub mod limits;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::config::{self, KeyHash};
use crate::fleet::now;
use crate::routing::Key;

use limits::{Exceeded, Limits};

/// Every caller that is configured.
pub struct Callers(Vec<Arc<Caller>>);

/// One of them.
pub struct Caller {
    settings: config::Caller,
    /// Shared with the caller of the same name before and after a reload.
    limits: Arc<Limits>,
}

/// A request of a caller, counted in until it is dropped.
pub struct Admitted {
    caller: Arc<Caller>,
    conversation: Option<Key>,
}

impl Callers {
    /// Those of a configuration. Where they were known `before`, what they use at this moment stays counted.
    pub fn new(configured: &[config::Caller], before: Option<&Callers>) -> Callers {
        let known = |name: &str| before?.0.iter().find(|caller| caller.name() == name);
        let caller = |settings: &config::Caller| {
            let limits = known(&settings.name).map(|caller| caller.limits.clone()).unwrap_or_default();
            Arc::new(Caller { settings: settings.clone(), limits })
        };
        Callers(configured.iter().map(caller).collect())
    }

    /// Whose key these headers carry: `Authorization: Bearer` or `x-api-key`. Two keys of two callers are nobody's.
    ///
    /// Every hash is compared, each in the same time: how long it takes tells nothing of the keys.
    pub fn identify(&self, headers: &HeaderMap) -> Option<&Arc<Caller>> {
        let mut found: Vec<&Arc<Caller>> = Vec::new();
        for key in keys(headers) {
            let hash = KeyHash::of(key);
            let mut holder = None;
            for caller in &self.0 {
                for known in &caller.settings.keys {
                    if known.equals(&hash) {
                        holder = Some(caller);
                    }
                }
            }
            found.push(holder?);
        }
        let first = *found.first()?;
        found.iter().all(|caller| Arc::ptr_eq(caller, first)).then_some(first)
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Caller>> {
        self.0.iter()
    }
}

/// The keys that a client sent. What is no bearer token is a key that nobody has.
fn keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers.get_all(AUTHORIZATION).iter().map(|value| {
        let value = value.as_bytes();
        let (scheme, token) = value.split_at(value.len().min(7));
        if scheme.eq_ignore_ascii_case(b"bearer ") { token.trim_ascii() } else { b"" }
    });
    bearer.chain(headers.get_all("x-api-key").iter().map(|value| value.as_bytes().trim_ascii()))
}

impl Caller {
    /// As configured: for logs, labels and pages.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// For fairness between those who wait for room.
    pub fn weight(&self) -> u32 {
        self.settings.weight
    }

    /// Whether it may use the model of this configured name.
    pub fn may_use(&self, model: &str) -> bool {
        self.settings.may_use(model)
    }

    /// Requests of it at this moment.
    pub fn in_flight(&self) -> u32 {
        self.limits.in_flight()
    }

    /// Counts a request of it in.
    ///
    /// # Errors
    /// If that would be one too many, at once or in this minute.
    pub fn admit(self: &Arc<Self>) -> Result<Admitted, Exceeded> {
        self.limits.enter(&self.settings, now())?;
        Ok(Admitted { caller: self.clone(), conversation: None })
    }

    /// Whether a request of it would be counted in, and its conversation. Counts nothing.
    ///
    /// # Errors
    /// If that would be one too many.
    pub fn would_admit(&self, conversation: Option<Key>) -> Result<(), Exceeded> {
        self.limits.would_take(&self.settings, conversation, now())
    }
}

impl Admitted {
    /// Counts its conversation in.
    ///
    /// # Errors
    /// If that would be one too many.
    pub fn converse(&mut self, conversation: Key) -> Result<(), Exceeded> {
        self.caller.limits.converse(&self.caller.settings, conversation, now())?;
        self.conversation = Some(conversation);
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.caller.limits.leave(self.conversation, now());
    }
}

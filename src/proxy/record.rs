//! What is kept of a request that has ended, for the page: in its model's history and among the last decisions.

use super::{Context, Proxy};
use crate::decisions::Decided;
use crate::history::Ended;
use crate::request::usage::Usage;
use crate::routing::CacheOutcome;

impl Proxy {
    /// Keeps what is shown of it.
    pub(super) fn record(
        &self,
        context: &Context,
        usage: Option<Usage>,
        first_byte_s: Option<f64>,
        cache: Option<CacheOutcome>,
    ) {
        let Some(model) = &context.model else { return };
        let parked_s = context.parked.map(|parked| parked.as_secs_f64());
        let decided = context.in_flight.as_ref().and_then(|in_flight| Some((in_flight, in_flight.decided()?)));
        let ended = Ended {
            routed: decided.is_some(),
            prompt: usage.map(|usage| usage.prompt),
            cached: usage.and_then(|usage| usage.cached),
            completion: usage.map_or(0, |usage| usage.completion),
            first_byte_s,
            parked_s,
        };
        if ended.routed || parked_s.is_some() {
            model.history.lock().note(&ended);
        }
        if let Some((in_flight, (decision, reason))) = decided {
            self.decisions.note(Decided {
                at: context.began_at,
                model: model.label().to_owned(),
                replica: in_flight.replica().to_owned(),
                decision,
                reason,
                conversation: in_flight.conversation(),
                parked_s,
                prompt_tokens: ended.prompt,
                cached_tokens: ended.cached,
                cache,
            });
        }
    }
}

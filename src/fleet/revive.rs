//! Suspects engines that hang, and takes them back when they generate again.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use log::info;
use serde_json::{Value, json};

use super::{Engine, Fetcher, Model};
use crate::metrics::METRICS;
use crate::routing::{Router, Suspicion};

/// A prompt may take this many times as long to read as the model's replicas have read others, before its engine counts as hung.
const READING_FACTOR: u32 = 4;

/// Pauses between the requests that ask a hung engine for a token.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Time for that token: an engine that goes on after a stop has first to do what it had begun.
const TOKEN_MAX: Duration = Duration::from_secs(20);

/// Bytes of an answer to it.
const ANSWER_MAX: u64 = 1 << 20;

/// After how long a silence an engine counts as hung; `reading` is what the longest prompt in flight there should take to read.
pub(super) fn hang_limit(model: &Model, reading: Duration) -> Duration {
    model.settings().timeouts.hang.max(reading.saturating_mul(READING_FACTOR))
}

/// Judges, after a check of an engine, whether it hangs, or does so no more.
pub(super) fn judge(fetcher: &Arc<Fetcher>, model: &Arc<Model>, index: usize, engine: &Arc<Engine>) {
    let note = |router: &mut Router| (router.reading_time(index), router.in_flight(index));
    let Some((reading, in_flight)) = model.note_of(index, engine, note) else { return };
    let silent = engine.life.silence(in_flight > engine.resting.count());
    if engine.life.has_revived() {
        engine.life.set_hung(false);
        model.learn(index, engine, "", |router| router.set_suspect(index, None));
        return;
    }
    if engine.life.is_hung() || !engine.life.tells() || silent < hang_limit(model, reading) {
        return;
    }
    METRICS.hangs.with_label_values(&[model.label(), &engine.name]).inc();
    let suspicion = Suspicion::Silent { lasting: silent };
    model.learn(index, engine, "", |router| router.set_suspect(index, Some(suspicion)));
    // Those who wait there look for another replica now, and must not find this one.
    engine.life.set_hung(true);
    let asked = ask_until_revived(fetcher.clone(), model.clone(), index, engine.clone());
    let over = engine.life.hung_no_more();
    tokio::spawn(async move {
        tokio::select! {
            () = asked => {}
            // The next hang has an asker of its own.
            () = over => {}
        }
    });
}

/// Asks a hung engine for a token, again and again, until it counts as hung no more, or is no longer the model's.
async fn ask_until_revived(fetcher: Arc<Fetcher>, model: Arc<Model>, index: usize, engine: Arc<Engine>) {
    let mut pause = PAUSE_MIN;
    while engine.life.is_hung() && model.note_of(index, &engine, |_| ()).is_some() {
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
        if generates(&fetcher, &model, &engine).await {
            // The next check takes it back.
            engine.life.sign();
        }
    }
}

/// Whether an engine generates a token. One that will not be asked (its model embeds, say) counts as one that does: nothing else
/// would ever bring it back.
async fn generates(fetcher: &Fetcher, model: &Model, engine: &Engine) -> bool {
    let name = served_name(fetcher, model, engine).await;
    let ask = json!({"model": name, "prompt": "Hi", "max_tokens": 1});
    match fetcher.post(engine, "/v1/completions", &ask, TOKEN_MAX, ANSWER_MAX).await {
        Ok(answer) if answer.status == StatusCode::TOO_MANY_REQUESTS => false,
        Ok(answer) => answer.status.is_success() || answer.status.is_client_error(),
        Err(error) => {
            info!("replica {} gives no token yet: {:?}", engine.name, error.etype());
            false
        }
    }
}

/// What the engine itself calls the model, which its server tells also while its core hangs.
async fn served_name(fetcher: &Fetcher, model: &Model, engine: &Engine) -> Option<String> {
    let first = |answer: Value| Some(answer.get("data")?.get(0)?.get("id")?.as_str()?.to_owned());
    let answer = fetcher.get(engine, "/v1/models", None, TOKEN_MAX, ANSWER_MAX).await.ok();
    answer.and_then(|answer| first(serde_json::from_slice(&answer.body).ok()?)).or_else(|| model.name.clone())
}

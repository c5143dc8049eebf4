//! A model, its engines, and how its requests are treated.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::check::{leads_to_any, once, secret};
use super::discovery::discovery;
use super::place::{Place, Section};
use super::{Alias, Discovery, EngineUrl, Secret, Trust, settings, tls};
use crate::routing::{Admission, Recovery};

/// A model as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// `None`: requests for any model name go here.
    pub name: Option<String>,
    /// Other names that clients call it. No two models share one.
    pub aliases: Vec<Alias>,
    /// Whether the engines see `name` where a client used an alias, and the client sees its alias in the answer.
    pub rewrite: bool,
    /// Whether engines are asked for the usage of streams whose clients do not ask.
    pub usage_injection: bool,
    /// Whether conversations stay on their home.
    pub affinity: bool,
    pub spill_threshold: SpillThreshold,
    /// What the engines were started with; `None` where it is not known.
    pub max_num_seqs: Option<u32>,
    /// A conversation is forgotten this long after its last turn.
    pub idle_forget: Duration,
    /// Conversations remembered at once.
    pub conversations_max: usize,
    /// Whether new conversations wait for room in the caches, and how.
    pub admission: Admission,
    /// When a replica is left alone at which requests fail, and how one that comes back is filled.
    pub recovery: Recovery,
    pub timeouts: Timeouts,
    pub replicas: Replicas,
}

/// How long requests wait for their engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, a TLS handshake included.
    pub connect: Duration,
    /// For any sign of life of an engine that has something to do, before that is tried elsewhere. An engine that still reads a
    /// long prompt is given more.
    pub hang: Duration,
    /// For the first byte of an answer, while its engine shows no sign of life.
    pub first_byte: Duration,
    /// For the next byte, while the engine shows no sign of life.
    pub idle_stream: Duration,
    /// For the whole of it, whatever happens.
    pub total: Duration,
}

/// Which replicas a model has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// At least one, no engine twice.
    Listed(Vec<Engine>),
    /// Those that are found, at each moment.
    Discovered(Discovery),
}

impl Replicas {
    /// Those that stand in the file.
    pub fn listed(&self) -> &[Engine] {
        match self {
            Replicas::Listed(engines) => engines,
            Replicas::Discovered(_) => &[],
        }
    }
}

/// At how many requests in flight on the home a turn goes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillThreshold {
    Auto,
    Set(u32),
}

/// One engine; with data-parallel ranks it is several replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    pub url: EngineUrl,
    /// How many ranks it has.
    pub data_parallel_size: u32,
    /// Sent to the engine in place of the client's credentials.
    pub api_key: Option<Secret>,
    /// Whether it is to take no new conversation and to lose those that it has.
    pub draining: bool,
    pub transport: Transport,
}

/// How engines are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// For an https URL.
    pub trust: Trust,
    /// HTTP/2: by ALPN for https, at once for http.
    pub http2: bool,
}

/// The models, of which each has its own settings.
pub(super) fn models(place: &Place, bound: &[SocketAddr], folder: &Path) -> Option<Vec<Model>> {
    let alone = place.len() == 1;
    let (mut names, mut aliases) = (Vec::new(), Vec::new());
    place.list(1..=settings::MODELS_MAX, |item| {
        Some(item.section(|s| Model {
            name: model_name(s, alone, &mut names),
            aliases: model_aliases(s, &mut aliases),
            rewrite: model_rewrite(s),
            usage_injection: s.get("usage_injection", false, Place::switch),
            affinity: s.get("affinity", true, Place::switch),
            spill_threshold: s.get("spill_threshold", SpillThreshold::Auto, spill_threshold),
            max_num_seqs: s.get("max_num_seqs", None, |place| place.within(&settings::MAX_NUM_SEQS).map(Some)),
            idle_forget: s.within("idle_forget", &settings::IDLE_FORGET),
            conversations_max: s.within("conversations_max", &settings::CONVERSATIONS),
            admission: Admission {
                kv_cache_tokens:
                    s.get("kv_cache_tokens", None, |place| place.within(&settings::KV_CACHE_TOKENS).map(Some)),
                ..s.get("admission", Admission::default(), admission)
            },
            recovery: s.place("recovery").section(recovery),
            timeouts: s.place("timeouts").section(|s| Timeouts {
                connect: s.within("connect", &settings::CONNECT),
                hang: s.within("hang", &settings::HANG),
                first_byte: s.within("first_byte", &settings::FIRST_BYTE),
                idle_stream: s.within("idle_stream", &settings::IDLE_STREAM),
                total: s.within("total", &settings::TOTAL),
            }),
            replicas: {
                let transport = transport(s, &Transport::default(), true, folder);
                let found = replicas(&s.place("replicas"), &transport, bound, folder);
                found.unwrap_or(Replicas::Listed(Vec::new()))
            },
        }))
    })
}

fn model_name(s: &mut Section, alone: bool, names: &mut Vec<String>) -> Option<String> {
    match s.given("name") {
        Some(place) => {
            let name = place.text(settings::MODEL_NAME_MAX)?;
            once(&place, names, name.to_owned())
        }
        None if alone => None,
        None => s.place("name").expected("a name, since there are several models"),
    }
}

fn model_aliases(s: &mut Section, seen: &mut Vec<Alias>) -> Vec<Alias> {
    let named = s.given("name").is_some();
    s.get("aliases", Vec::new(), |place| {
        if !named && place.len() > 0 {
            return place.expected("none, since any name goes to a model without one");
        }
        let alias = |item: Place| once(&item, seen, Alias::new(item.text(settings::MODEL_NAME_MAX)?));
        place.list(0..=settings::ALIASES_MAX, alias)
    })
}

fn model_rewrite(s: &mut Section) -> bool {
    let named = s.given("name").is_some();
    s.get("rewrite", false, |place| match place.switch()? {
        true if !named => place.expected("off, since the model has no name to put in place of the client's"),
        rewrite => Some(rewrite),
    })
}

fn spill_threshold(place: &Place) -> Option<SpillThreshold> {
    let set = place.within_or("auto", &settings::SPILL_THRESHOLD)?;
    Some(set.map_or(SpillThreshold::Auto, SpillThreshold::Set))
}

/// The mode alone, or with how the wait goes.
fn admission(place: &Place) -> Option<Admission> {
    if place.is_value() {
        return place.choice().map(|mode| Admission { mode, ..Admission::default() });
    }
    Some(place.section(|s| Admission {
        mode: s.get("mode", Admission::DEFAULT.mode, Place::choice),
        max_wait: s.within("max_wait", &settings::MAX_WAIT),
        overdue: s.get("overdue", Admission::DEFAULT.overdue, Place::choice),
        parked_max: s.within("parked_max", &settings::PARKED),
        rotate: s.get("rotate", None, |place| place.within_or("off", &settings::ROTATE)),
        linger: s.get("linger", None, |place| place.within_or("auto", &settings::LINGER)),
        ..Admission::default()
    }))
}

fn recovery(s: &mut Section) -> Recovery {
    let (pause, pause_max) = (s.within("pause", &settings::PAUSE), s.within("pause_max", &settings::PAUSE_MAX));
    if pause > pause_max {
        s.place("pause_max").expected::<()>("at least `pause`");
    }
    Recovery {
        failures: s.within("failures", &settings::FAILURES),
        pause,
        pause_max,
        return_rate: s.within("return_rate", &settings::RETURN_RATE),
    }
}

/// A list, or where to find them.
fn replicas(place: &Place, transport: &Transport, bound: &[SocketAddr], folder: &Path) -> Option<Replicas> {
    if place.is_mapping() {
        return place.section(|s| discovery(s, transport, bound, folder)).map(Replicas::Discovered);
    }
    engines(place, transport, bound, folder).map(Replicas::Listed)
}

/// How engines are spoken to, or one of them; `secure` where that may be over TLS.
fn transport(s: &mut Section, default: &Transport, secure: bool, folder: &Path) -> Transport {
    let trust = |place: &Place| match secure {
        true => tls::trust(place, folder),
        // Whoever wrote it believes that the engine's certificate is checked.
        false => place.expected_but("an https URL beside it", "an http one"),
    };
    Transport { trust: s.get("tls", default.trust.clone(), trust), http2: s.get("http2", default.http2, Place::switch) }
}

pub(super) fn engines(place: &Place, default: &Transport, bound: &[SocketAddr], folder: &Path) -> Option<Vec<Engine>> {
    let mut names = Vec::new();
    let engines = place.list(1..=settings::ENGINES_MAX, |item| {
        item.section(|s| {
            let url = engine_url(&s.place("url"), &mut names, bound);
            let data_parallel_size = s.within("data_parallel_size", &settings::DATA_PARALLEL_SIZE);
            let api_key = s.given("api_key").and_then(|place| secret(&place, folder));
            let secure = url.as_ref().is_none_or(EngineUrl::tls);
            let draining = s.get("draining", false, Place::switch);
            let transport = transport(s, default, secure, folder);
            Some(Engine { url: url?, data_parallel_size, api_key, draining, transport })
        })
    })?;
    let replicas: usize = engines.iter().map(|engine| engine.data_parallel_size as usize).sum();
    let most = settings::REPLICAS_MAX;
    if replicas > most {
        return place.expected_but(format!("at most {most} replicas, ranks counted"), replicas);
    }
    Some(engines)
}

fn engine_url(place: &Place, names: &mut Vec<String>, bound: &[SocketAddr]) -> Option<EngineUrl> {
    let text = place.value("http://HOST:PORT", Some)?;
    let url = match EngineUrl::parse(text) {
        Ok(url) => url,
        // There may be a password before the @.
        Err(what) if text.contains('@') => return place.clone().hidden().expected(what),
        Err(what) => return place.expected(what),
    };
    if leads_to_any(&url, bound) {
        return place.expected("an engine, not an address of this balancer");
    }
    once(place, names, url.name())?;
    Some(url)
}

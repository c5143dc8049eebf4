//! Every setting's default and range, as the check enforces them and `docs/configuring.md` states them.

use super::bounds::{Bounds, Bytes};
use crate::request::head::HEADERS_MAX;
use crate::request::source::KeySource;
use crate::routing::{Admission, MAX_NUM_SEQS_ASSUMED, Recovery};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub const LISTEN_ADDRESS: SocketAddr = SocketAddr::new(LOOPBACK, 8080);
pub const LISTEN_ADDRESSES_MAX: usize = 64;
pub const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(LOOPBACK, 9090);

/// The default is the number of the machine's cores.
pub fn threads() -> Bounds<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Bounds { default: cores.clamp(1, 256), min: 1, max: 256 }
}

pub const GRACE: Bounds<Duration> =
    Bounds { default: Duration::from_mins(10), min: Duration::ZERO, max: Duration::from_hours(24) };

pub const BODY: Bounds<Bytes> = Bounds { default: Bytes::mib(64), min: Bytes::kib(1), max: Bytes::gib(1) };

pub const BUFFERED: Bounds<Bytes> = Bounds { default: Bytes::mib(512), min: Bytes::mib(1), max: Bytes::gib(1024) };

/// At most half of what Pingora reads, which has no smaller limit of its own.
pub const HEADER_BYTES: Bounds<Bytes> = Bounds { default: Bytes::kib(64), min: Bytes::kib(4), max: Bytes::kib(512) };

pub const HEADERS: Bounds<usize> = Bounds { default: 128, min: 16, max: HEADERS_MAX };

pub const HEADER_READ: Bounds<Duration> =
    Bounds { default: Duration::from_secs(10), min: Duration::from_millis(100), max: Duration::from_mins(5) };

pub const BODY_READ: Bounds<Duration> =
    Bounds { default: Duration::from_secs(60), min: Duration::from_millis(100), max: Duration::from_hours(1) };

pub const IDLE: Bounds<Duration> =
    Bounds { default: Duration::from_mins(1), min: Duration::from_secs(1), max: Duration::from_hours(1) };

/// More than enough for an agent that works in parallel, and what Pingora takes where nothing is set.
pub const STREAMS: Bounds<u32> = Bounds { default: 100, min: 1, max: 10_000 };

pub const HEADER_LIST: Bounds<Bytes> = Bounds { default: Bytes::kib(64), min: Bytes::kib(4), max: Bytes::mib(1) };

/// The protocol's own default of 64 KiB makes a large body wait for the line's delay every 64 KiB.
pub const WINDOW: Bounds<Bytes> = Bounds { default: Bytes::mib(1), min: Bytes::kib(64), max: Bytes::mib(64) };

pub const CONNECTIONS: Bounds<usize> = Bounds { default: 16_384, min: 1, max: 1_000_000 };

pub const ORIGINS_MAX: usize = 64;

pub const SESSION_HEADERS_MAX: usize = 16;

/// All but the two that often name a person or a single request.
pub const SOURCES: [KeySource; 8] = [
    KeySource::ClaudeCode,
    KeySource::Codex,
    KeySource::SessionHeaders,
    KeySource::SessionIdHeaders,
    KeySource::GatewayHeaders,
    KeySource::MetadataUserId,
    KeySource::BodyIds,
    KeySource::Opening,
];

pub const SCRAPE_INTERVAL: Bounds<Duration> =
    Bounds { default: Duration::from_secs(5), min: Duration::from_millis(100), max: Duration::from_mins(5) };

pub const SCRAPE_TIMEOUT: Bounds<Duration> =
    Bounds { default: Duration::from_secs(2), min: Duration::from_millis(10), max: Duration::from_mins(1) };

pub const SCRAPE_SIZE: Bounds<Bytes> = Bounds { default: Bytes::mib(8), min: Bytes::kib(1), max: Bytes::mib(256) };

pub const CALLERS_MAX: usize = 1024;
/// Keys of one caller: a new one and the one that it replaces, for each place that it calls from.
pub const CALLER_KEYS_MAX: usize = 8;

/// Only the ranges of these three hold: the default is no limit.
pub const CALLER_RATE: Bounds<u32> = Bounds { default: 600, min: 1, max: 1_000_000 };
pub const CALLER_IN_FLIGHT: Bounds<u32> = Bounds { default: 64, min: 1, max: 1_000_000 };
pub const CALLER_CONVERSATIONS: Bounds<u32> = Bounds { default: 64, min: 1, max: 100_000 };

pub const CALLER_WEIGHT: Bounds<u32> = Bounds { default: 1, min: 1, max: 100 };

pub const MODELS_MAX: usize = 256;
/// In characters.
pub const MODEL_NAME_MAX: usize = 256;

/// Other names of one model.
pub const ALIASES_MAX: usize = 64;

/// The default is what vLLM uses when nothing is set, and what is assumed when nothing is known.
pub const MAX_NUM_SEQS: Bounds<u32> = Bounds { default: MAX_NUM_SEQS_ASSUMED, min: 1, max: 65_536 };

/// Only the range holds: the default follows from `max_num_seqs`.
pub const SPILL_THRESHOLD: Bounds<u32> = Bounds { default: MAX_NUM_SEQS.default / 4, min: 1, max: 65_536 };

pub const IDLE_FORGET: Bounds<Duration> =
    Bounds { default: Duration::from_mins(30), min: Duration::from_secs(1), max: Duration::from_hours(24) };

pub const CONVERSATIONS: Bounds<usize> = Bounds { default: 8192, min: 1, max: 1_000_000 };

/// Only the range holds: where it is not set, the engine says it, or it is learned. 1 000 000 000 is above any cache.
pub const KV_CACHE_TOKENS: Bounds<u64> = Bounds { default: 200_000, min: 1, max: 1_000_000_000 };

pub const MAX_WAIT: Bounds<Duration> =
    Bounds { default: Admission::DEFAULT.max_wait, min: Duration::ZERO, max: Duration::from_mins(30) };

pub const PARKED: Bounds<usize> = Bounds { default: Admission::DEFAULT.parked_max, min: 0, max: 1_000_000 };

/// Only the range holds: the default is never.
pub const ROTATE: Bounds<u32> = Bounds { default: 3, min: 1, max: 1000 };

/// Only the range holds: the default follows from the pauses seen.
pub const LINGER: Bounds<Duration> =
    Bounds { default: Duration::from_secs(5), min: Duration::ZERO, max: Duration::from_mins(10) };

pub const FAILURES: Bounds<u32> = Bounds { default: Recovery::DEFAULT.failures, min: 1, max: 1000 };

pub const PAUSE: Bounds<Duration> =
    Bounds { default: Recovery::DEFAULT.pause, min: Duration::from_millis(100), max: Duration::from_hours(1) };

pub const PAUSE_MAX: Bounds<Duration> =
    Bounds { default: Recovery::DEFAULT.pause_max, min: Duration::from_millis(100), max: Duration::from_hours(24) };

pub const RETURN_RATE: Bounds<u32> = Bounds { default: Recovery::DEFAULT.return_rate, min: 1, max: 1000 };

pub const CONNECT: Bounds<Duration> =
    Bounds { default: Duration::from_secs(5), min: Duration::from_millis(100), max: Duration::from_mins(1) };

/// Readings are some seconds apart, and an engine that captures its graphs stands still for seconds.
pub const HANG: Bounds<Duration> =
    Bounds { default: Duration::from_secs(30), min: Duration::from_secs(1), max: Duration::from_hours(1) };

pub const FIRST_BYTE: Bounds<Duration> =
    Bounds { default: Duration::from_mins(10), min: Duration::from_secs(1), max: Duration::from_hours(24) };

pub const IDLE_STREAM: Bounds<Duration> =
    Bounds { default: Duration::from_mins(5), min: Duration::from_secs(1), max: Duration::from_hours(24) };

/// Far above any generation: it ends what nobody else will.
pub const TOTAL: Bounds<Duration> =
    Bounds { default: Duration::from_hours(24), min: Duration::from_secs(1), max: Duration::from_hours(7 * 24) };

/// Entries in the list of one model.
pub const ENGINES_MAX: usize = 1024;
/// Replicas of one model: each rank of each engine is one.
pub const REPLICAS_MAX: usize = 4096;

/// What a cluster's DNS serves may itself be 5 s old.
pub const DISCOVERY_EVERY: Bounds<Duration> =
    Bounds { default: Duration::from_secs(5), min: Duration::from_millis(100), max: Duration::from_hours(1) };

pub const DATA_PARALLEL_SIZE: Bounds<u32> = Bounds { default: 1, min: 1, max: 1024 };

/// How many sources there are.
pub const SOURCES_MAX: usize = SOURCES.len() + 2;
/// The longest path of a key file, in characters.
pub const PATH_MAX: usize = 4096;
/// The largest file of certificates or a key, in bytes.
pub const PEM_MAX: u64 = 1 << 20;

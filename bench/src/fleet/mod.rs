//! Engines behind HTTP: a fleet of replicas that speak vLLM's API in real time.
//!
//! Every replica has a port of its own, or the engines are ranks behind one port, as with vLLM's data parallelism. Text
//! becomes tokens by a simple scheme ([`tokens`]) under which a conversation that grows has a prefix that is shared.

mod api;
mod control;
mod fault;
mod metrics;
mod process;
mod rank;
mod render;
mod replica;
mod stats;
pub mod tokens;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::control::Switches;
pub use self::fault::Fault;
use self::process::Settings;
use self::replica::Replica;
use crate::engine::{Profile, Prompt};

/// Where fleets listen: they are for one machine.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Engines of a fleet at most: far more than one machine can serve in real time.
pub const REPLICAS_MAX: u16 = 256;

/// What a fleet is made of.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    pub profile: Profile,
    /// Engines, 1 to [`REPLICAS_MAX`].
    pub replicas: u16,
    /// Whether the engines are ranks behind one port instead of having a port each.
    pub data_parallel: bool,
    /// How many times as fast as in reality, above 0.
    pub speed: f64,
    /// The port of the first replica, the next ones following; 0 takes free ones.
    pub port: u16,
    /// Tokens after which the model ends an answer of its own accord. Without it every answer is as long as its request
    /// allows.
    pub answer_tokens: Option<u32>,
}

impl FleetConfig {
    /// `replicas` replicas in real time on free ports.
    pub fn new(profile: Profile, replicas: u16) -> Self {
        Self { profile, replicas, data_parallel: false, speed: 1.0, port: 0, answer_tokens: None }
    }

    fn check(&self) -> io::Result<()> {
        let wrong = |message: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            return wrong("replicas is out of range: give 1 to 256");
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return wrong("speed is not above 0: give how many times as fast as in reality");
        }
        if self.answer_tokens == Some(0) {
            return wrong("answer_tokens is 0: give 1 or more");
        }
        if self.port.checked_add(self.ports() - 1).is_none() {
            return wrong("the last port is above 65535: start lower");
        }
        Ok(())
    }

    fn ports(&self) -> u16 {
        if self.data_parallel { 1 } else { self.replicas }
    }
}

/// What the model answers to a body sent to `path`: the same on every replica, unless the engine's `answer_tokens` end it. `None`
/// where the body holds no conversation.
pub fn answer_to(profile: &Profile, path: &str, body: &Value) -> Option<String> {
    let (messages, most) = match path {
        "/v1/chat/completions" => (render::chat(body)?, &body["max_tokens"]),
        "/v1/messages" => (render::messages(body)?, &body["max_tokens"]),
        "/v1/responses" => (render::responses(body)?, &body["max_output_tokens"]),
        _ => return None,
    };
    let mut prompt = Prompt::new(profile.engine.block_size);
    prompt.extend(render::tokens(&messages));
    let room = profile.engine.max_model_len.checked_sub(prompt.len())?;
    let most = most.as_u64().map_or(room, |most| room.min(u32::try_from(most).unwrap_or(u32::MAX)));
    Some(tokens::answer(prompt.fingerprint()).take(most as usize).map(tokens::text).collect())
}

/// A running fleet. It ends when it is dropped.
pub struct Fleet {
    replicas: Vec<SocketAddr>,
    ranks: u16,
    model: String,
    control: SocketAddr,
    switches: Switches,
    tasks: JoinSet<io::Result<()>>,
}

impl Fleet {
    /// Starts the replicas. They accept requests when this returns.
    ///
    /// # Errors
    /// When the configuration is out of range or a port cannot be bound.
    pub async fn start(config: FleetConfig) -> io::Result<Self> {
        config.check()?;
        let ports = config.ports();
        let settings = Settings {
            ranks: config.replicas / ports,
            profile: config.profile,
            speed: config.speed,
            answer_tokens: config.answer_tokens,
        };
        let switches: Switches = (0..ports).map(|_| watch::Sender::new(Fault::Ok)).collect();
        let mut replicas = Vec::new();
        let mut tasks = JoinSet::new();
        for (index, switch) in (0..ports).zip(switches.iter()) {
            let port = if config.port == 0 { 0 } else { config.port + index };
            let address = SocketAddr::new(HOST, port);
            let replica = Replica::bind(address, settings.clone(), switch.subscribe())
                .map_err(|error| io::Error::new(error.kind(), format!("replica {index} at {address}: {error}")))?;
            replicas.push(replica.address);
            tasks.spawn(replica.run());
        }
        let listener = TcpListener::bind((HOST, 0)).await?;
        let control = listener.local_addr()?;
        let router = control::router(switches.clone());
        tasks.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { replicas, ranks: settings.ranks, model: settings.profile.model.name, control, switches, tasks })
    }

    /// The address of each replica.
    pub fn replicas(&self) -> &[SocketAddr] {
        &self.replicas
    }

    /// The address that takes faults.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// Puts a replica into a state. What the replica does about it follows at once, but not within this call.
    ///
    /// # Panics
    /// When there is no such replica.
    pub fn set_fault(&self, replica: usize, fault: Fault) {
        self.switches[replica].send_replace(fault);
    }

    /// What a script needs to know of the fleet.
    pub fn describe(&self) -> Value {
        let url = |address: &SocketAddr| format!("http://{address}");
        json!({
            "model": self.model, "ranks": self.ranks, "control": url(&self.control),
            "replicas": self.replicas.iter().map(url).collect::<Vec<_>>(),
        })
    }

    /// Serves until a replica fails for good.
    ///
    /// # Errors
    /// That failure.
    pub async fn run(mut self) -> io::Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(io::Error::other)??;
        }
        Ok(())
    }
}

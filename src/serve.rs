//! Puts the parts together and runs them.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use log::{info, warn};
use parking_lot::Mutex;
use pingora::listeners::TcpSocketOptions;
use pingora::server::configuration::ServerConf;
use pingora::server::{ListenFds, RunArgs, Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use pingora::services::listening::Service;
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::admin::{Admin, HistoryService};
use crate::config::Config;
use crate::decisions::Decisions;
use crate::fleet::{DiscoverService, Discoverer, Fetcher, ScrapeService, Scraper, WakeService, tcp_keepalive};
use crate::live::{Current, Live};
use crate::proxy::{AccessLog, Activity, Buffered, Edge, Explainer, Listeners, PINGORA_TRIES, Proxy};
use crate::reload::{ReloadService, Reloader};
use crate::request::{KeyHasher, RoutingKey};
use crate::state::{self, Keeper};

/// Pingora sleeps this long after a shutdown began before it stops its runtimes, whatever is in flight. The shutdown
/// service below ends the process long before.
const PINGORA_GRACE: Duration = Duration::from_secs(2 * 24 * 3600);

/// Idle connections kept to the engines, over all of them.
const POOL_SIZE: usize = 1024;

/// Serves until a signal ends it: SIGTERM lets what is in flight finish, SIGINT does not, SIGHUP reloads.
///
/// # Errors
/// If the configuration does not check, an address cannot be listened on, or the system gives no thread.
pub fn serve(path: &Path) -> Result<(), String> {
    let config = Config::load(path).map_err(|faults| faults.sentence())?;
    let sockets: Vec<(SocketAddr, TcpListener)> =
        config.listen.iter().map(|listen| bind(listen.address)).collect::<Result<_, _>>()?;
    let admin_listener = bind(config.admin.address)?;
    warn_if_open(&config);
    let bound: Vec<SocketAddr> = sockets.iter().map(|(address, _)| *address).collect();
    let listeners = Arc::new(Listeners::new(&config.listen, &bound)?);
    let access_log = AccessLog::start().map_err(|error| format!("the access log has no thread: {error}"))?;
    let live: Current = Arc::new(ArcSwap::from_pointee(Live::new(&config)));
    let (key, keeper) = kept_state(&config, &live)?;

    raise_open_files(config.server.limits.connections);
    let mut server = Server::new_with_opt_and_conf(None, pingora_configuration(&config));
    let activity = Arc::new(Activity::default());
    let scraper = Arc::new(Scraper::new(live.load().fleet.clone(), config.scrape.clone()));
    let discoverer = Arc::new(Discoverer { live: live.clone(), scraper: scraper.clone(), changed: Notify::new() });
    let reloader = Arc::new(Reloader {
        path: path.to_owned(),
        live: live.clone(),
        scraper: scraper.clone(),
        listeners: listeners.clone(),
        discoverer: discoverer.clone(),
        one_at_a_time: Mutex::new(()),
        started: config,
    });
    let decisions = Arc::new(Decisions::default());
    let (keys, buffered) = (KeyHasher::new(key), Arc::new(Buffered::default()));
    let explainer = Explainer { live: live.clone(), keys: keys.clone(), buffered: buffered.clone() };
    let proxy = Proxy {
        live: live.clone(),
        keys,
        activity: activity.clone(),
        buffered,
        fetcher: Fetcher::default(),
        access_log: access_log.clone(),
        decisions: decisions.clone(),
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let admin = Admin { live: live.clone(), reloader: reloader.clone(), decisions, explainer, since };

    let proxy = pingora_proxy::http_proxy(&server.configuration, proxy);
    let mut edge = Service::new("edge".into(), Edge::new(proxy, live.clone(), activity.clone(), listeners.clone()));
    let mut socket_options = TcpSocketOptions::default();
    socket_options.tcp_keepalive = Some(tcp_keepalive());
    for address in bound {
        edge.add_tcp_with_settings(&address.to_string(), socket_options.clone());
    }
    let mut admin = Service::new("admin".into(), admin);
    admin.threads = Some(1);
    admin.add_tcp(&admin_listener.0.to_string());

    let sockets = server.add_service(Sockets { sockets, listeners, admin: Some(admin_listener) });
    let discovery = server.add_service(background_service("discovery", DiscoverService(discoverer)));
    let edge = server.add_service(edge);
    edge.add_dependency(&sockets);
    // Whoever connects before waits for a moment and is then served.
    edge.add_dependency(&discovery);
    server.add_service(admin).add_dependency(&sockets);
    server.add_service(background_service("scrape", ScrapeService(scraper)));
    server.add_service(background_service("wake", WakeService(live.clone())));
    server.add_service(background_service("history", HistoryService(live.clone())));
    server.add_service(background_service("reload", ReloadService(reloader)));
    server.add_service(background_service("shutdown", Shutdown { activity, live, access_log, keeper: keeper.clone() }));
    server.run(RunArgs::default());
    // After SIGINT; every other end is the shutdown service's.
    keeper.inspect(|keeper| keeper.write());
    Ok(())
}

/// The routing key, and who keeps the state file where there is one. What it held is back in the fleet then.
fn kept_state(config: &Config, live: &Current) -> Result<(RoutingKey, Option<Arc<Keeper>>), String> {
    let Some(path) = &config.server.state_file else { return Ok((random_key()?, None)) };
    let key = match state::take_back(path, &live.load().fleet) {
        Some(key) => key,
        None => random_key()?,
    };
    let keeper = Arc::new(Keeper::new(path, key, live.clone()));
    keeper.clone().start()?;
    Ok((key, Some(keeper)))
}

fn pingora_configuration(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.server.threads,
        work_stealing: false,
        grace_period_seconds: Some(PINGORA_GRACE.as_secs()),
        max_retries: PINGORA_TRIES,
        upstream_keepalive_pool_size: POOL_SIZE,
        ..ServerConf::default()
    }
}

/// Listens before anything runs, so that an address in use is a sentence and not a panic. Returns the true address,
/// also for port 0.
fn bind(address: SocketAddr) -> Result<(SocketAddr, TcpListener), String> {
    let explain = |error| format!("cannot listen on {address}: {error}");
    let listener = TcpListener::bind(address).map_err(explain)?;
    listener.set_nonblocking(true).map_err(explain)?;
    Ok((listener.local_addr().map_err(explain)?, listener))
}

/// A balancer for one's own machine needs no keys, and one for others may stand behind something that asks for them; else
/// it is likely a mistake.
pub fn warn_if_open(config: &Config) {
    for address in config.open_to_anyone() {
        warn!("anyone who reaches {address} may use the models: no callers are configured");
    }
}

/// Every client connection may need one to an engine beside it, so the usual 1,024 open files would be the first limit met.
fn raise_open_files(connections: usize) {
    let wanted = 2 * connections as u64;
    match rlimit::increase_nofile_limit(wanted.max(1024)) {
        Ok(limit) if limit < wanted => {
            warn!(
                "{limit} open files are allowed, {connections} connections may take {wanted}: raise the limit (ulimit -n)"
            );
        }
        Ok(_) => {}
        Err(error) => warn!("the limit of open files is unknown: {error}"),
    }
}

fn random_key() -> Result<RoutingKey, String> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| format!("the system gives no random numbers: {error}"))?;
    Ok(key)
}

/// Hands the sockets to Pingora, which looks for them by address before it opens its own.
struct Sockets {
    sockets: Vec<(SocketAddr, TcpListener)>,
    listeners: Arc<Listeners>,
    admin: Option<(SocketAddr, TcpListener)>,
}

#[async_trait]
impl ServiceWithDependents for Sockets {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        if let Some(fds) = fds {
            let mut fds = fds.lock();
            for ((address, listener), scheme) in self.sockets.drain(..).zip(self.listeners.schemes()) {
                info!("listening on {scheme}://{address}");
                fds.add(address.to_string(), listener.into_raw_fd());
            }
            if let Some((address, listener)) = self.admin.take() {
                info!("admin on http://{address}");
                fds.add(address.to_string(), listener.into_raw_fd());
            }
        }
        ready.notify_ready();
    }

    fn name(&self) -> &str {
        "sockets"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}

/// Ends at the next SIGTERM or SIGINT: whoever sends one during a shutdown does not want to wait.
async fn another_signal() {
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

/// Ends the process once a shutdown has begun and nothing is in flight any more, or the grace period is over.
struct Shutdown {
    activity: Arc<Activity>,
    live: Current,
    access_log: AccessLog,
    keeper: Option<Arc<Keeper>>,
}

#[async_trait]
impl BackgroundService for Shutdown {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        if shutdown.wait_for(|begun| *begun).await.is_err() {
            return;
        }
        let grace = self.live.load().server.grace;
        info!("shutting down: requests in flight {}, which have at most {grace:?}", self.activity.requests());
        let why = tokio::select! {
            () = self.activity.idle() => None,
            () = tokio::time::sleep(grace) => Some("the grace period is over"),
            () = another_signal() => Some("told a second time"),
        };
        match why {
            Some(why) => warn!("{why}: requests cut off {}", self.activity.requests()),
            None => info!("stopped: nothing was cut off"),
        }
        self.access_log.flush();
        self.keeper.as_ref().inspect(|keeper| keeper.write());
        std::process::exit(0);
    }
}

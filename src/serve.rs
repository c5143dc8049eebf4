//! Puts the parts together and runs them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use log::warn;
use parking_lot::Mutex;
use pingora::listeners::{L4BufferSettings, ListenerConfig, TcpSocketOptions};
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::background::background_service;
use pingora::services::listening::Service;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::admin::{Admin, HistoryService};
use crate::config::Config;
use crate::decisions::Decisions;
use crate::fleet::{DiscoverService, Discoverer, Fetcher, ScrapeService, Scraper, WakeService, tcp_keepalive};
use crate::live::{Current, Live};
use crate::panics::{self, Lasting};
use crate::proxy::{AccessLog, Activity, Buffered, Edge, EngineProxy, Explainer, Listeners, PINGORA_TRIES, Proxy};
use crate::reload::{self, ReloadService, Reloader};
use crate::request::{KeyHasher, RoutingKey};
use crate::shutdown::Shutdown;
use crate::sockets::{self, Sockets};
use crate::state::{self, Keeper};
use crate::traces::Traces;
use crate::upgrade::{self, Giver, Role, Signals, Socket, Taker};

/// Pingora sleeps this long after a shutdown began before it stops its runtimes, whatever is in flight. [`Shutdown`] ends the
/// process long before.
const PINGORA_GRACE: Duration = Duration::from_secs(2 * 24 * 3600);

/// Idle connections kept to the engines, over all of them.
const POOL_SIZE: usize = 1024;

/// Serves until a signal ends it: SIGTERM lets what is in flight finish, SIGINT does not, SIGHUP reloads, SIGQUIT hands over
/// to a process that was started with `upgrade`.
///
/// # Errors
/// If the configuration does not check, something else stands where the state file is to be, an address cannot be listened on,
/// the process to take over from does not hand over, or the system gives no thread.
pub fn serve(path: &Path, upgrade: bool) -> Result<(), String> {
    panics::watch();
    reload::ignore_hangups();
    let config = Config::load(path).map_err(|faults| faults.sentence())?;
    config.server.state_file.as_deref().map(state::check_place).transpose()?;
    let place = upgrade::place(&config, path);
    let mut taker = upgrade.then(|| Taker::wait(&place)).transpose()?;
    let sockets = sockets::open(&config, taker.as_mut())?;
    let to_hand_over = sockets.iter().map(Socket::another).collect::<Result<_, _>>()?;
    warn_if_open(&config);
    let live: Current = Arc::new(ArcSwap::from_pointee(Live::new(&config)));
    let parts = Parts::new(&config, &sockets, live.clone())?;
    let key = match &taker {
        Some(taker) => taker.key,
        None => kept_key(&config, &live)?,
    };
    let keeper = config.server.state_file.as_ref().map(|path| Arc::new(Keeper::new(path, key, live.clone())));
    if let Some(keeper) = keeper.clone().filter(|_| taker.is_none()) {
        keeper.start()?;
    }
    raise_open_files(config.server.limits.connections);

    let mut server = Server::new_with_opt_and_conf(None, pingora_configuration(&config));
    let heeds = Arc::new(Notify::new());
    let handing_over = Arc::new(AsyncMutex::new(()));
    let giver = Giver {
        place,
        sockets: Mutex::new(Some(Arc::new(to_hand_over))),
        key,
        live: live.clone(),
        keeper: keeper.clone(),
        activity: parts.activity.clone(),
        handing_over: handing_over.clone(),
        heeds: heeds.clone(),
    };
    let sockets = Sockets { sockets, listeners: parts.listeners.clone(), taker, live, keeper: keeper.clone(), heeds };
    parts.add_services(&mut server, path, config, KeyHasher::new(key), sockets);
    let shutdown = parts.shutdown(handing_over, keeper.clone());
    server.add_service(background_service("shutdown", Lasting(shutdown)));
    server.run(RunArgs { shutdown_signal: Box::new(Signals(Arc::new(giver))) });
    // After SIGINT; every other end is the shutdown service's.
    keeper.inspect(|keeper| keeper.write());
    Ok(())
}

/// What several services share.
struct Parts {
    live: Current,
    listeners: Arc<Listeners>,
    activity: Arc<Activity>,
    access_log: AccessLog,
    traces: Option<Traces>,
}

impl Parts {
    fn new(config: &Config, sockets: &[Socket], live: Current) -> Result<Parts, String> {
        let bound = sockets::bound(sockets, Role::Clients);
        Ok(Parts {
            live,
            listeners: Arc::new(Listeners::new(&config.listen, &bound)?),
            activity: Arc::new(Activity::default()),
            access_log: AccessLog::start().map_err(|error| format!("the access log has no thread: {error}"))?,
            traces: config.traces.as_deref().map(Traces::start).transpose()?,
        })
    }

    /// All services but the one that ends the process, each after those that it needs.
    fn add_services(&self, server: &mut Server, path: &Path, config: Config, keys: KeyHasher, sockets: Sockets) {
        let live = &self.live;
        let scraper = Arc::new(Scraper::new(live.load().fleet.clone(), config.scrape.clone()));
        let discoverer = Arc::new(Discoverer { live: live.clone(), scraper: scraper.clone(), changed: Notify::new() });
        let reloader = Arc::new(Reloader {
            path: path.to_owned(),
            live: live.clone(),
            scraper: scraper.clone(),
            listeners: self.listeners.clone(),
            discoverer: discoverer.clone(),
            one_at_a_time: Mutex::new(()),
            started: config,
        });
        let [clients, admins] = [Role::Clients, Role::Admin].map(|role| sockets::bound(&sockets.sockets, role));
        let (proxy, admin) = self.proxy_and_admin(keys, reloader.clone());
        let edge = Edge::new(live.clone(), self.activity.clone(), self.listeners.clone());
        let edge = listening(edge.service(proxy, &server.configuration), &clients);

        let upgrades = sockets.taker.is_some();
        let sockets = server.add_service(sockets);
        let discovery = server.add_service(background_service("discovery", Lasting(DiscoverService(discoverer))));
        if upgrades {
            // The old process serves until the replicas are known.
            sockets.add_dependency(&discovery);
        }
        let edge = server.add_service(edge);
        edge.add_dependency(&sockets);
        // Whoever connects before waits for a moment and is then served.
        edge.add_dependency(&discovery);
        server.add_service(admin_service(admin, &admins)).add_dependency(&sockets);
        server.add_service(background_service("scrape", Lasting(ScrapeService(scraper))));
        server.add_service(background_service("wake", Lasting(WakeService(live.clone()))));
        server.add_service(background_service("history", Lasting(HistoryService(live.clone()))));
        server.add_service(background_service("reload", Lasting(ReloadService(reloader))));
    }

    /// What serves clients, and what shows it.
    fn proxy_and_admin(&self, keys: KeyHasher, reloader: Arc<Reloader>) -> (Proxy, Admin) {
        let (decisions, buffered) = (Arc::new(Decisions::default()), Arc::new(Buffered::default()));
        let explainer = Explainer { live: self.live.clone(), keys: keys.clone(), buffered: buffered.clone() };
        let proxy = Proxy {
            live: self.live.clone(),
            keys,
            activity: self.activity.clone(),
            buffered,
            fetcher: Fetcher::default(),
            access_log: self.access_log.clone(),
            decisions: decisions.clone(),
            traces: self.traces.clone(),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        (proxy, Admin { live: self.live.clone(), reloader, decisions, explainer, since })
    }

    fn shutdown(self, handing_over: Arc<AsyncMutex<()>>, keeper: Option<Arc<Keeper>>) -> Shutdown {
        let Parts { live, activity, access_log, traces, .. } = self;
        Shutdown { activity, live, handing_over, access_log, traces, keeper }
    }
}

fn listening(mut service: Service<EngineProxy>, addresses: &[SocketAddr]) -> Service<EngineProxy> {
    let mut options = TcpSocketOptions::default();
    options.tcp_keepalive = Some(tcp_keepalive());
    for address in addresses {
        let listener = ListenerConfig::tcp(address.to_string()).tcp_socket_options(options.clone());
        // Whoever reads a connection, the gate, TLS or HTTP/2, has a buffer of its own.
        service.add_listener(listener.l4_buffer(L4BufferSettings::default().read(0)));
    }
    service
}

fn admin_service(admin: Admin, addresses: &[SocketAddr]) -> Service<Admin> {
    let mut service = Service::new("admin".into(), admin);
    service.threads = Some(1);
    addresses.iter().for_each(|address| service.add_tcp(&address.to_string()));
    service
}

/// The routing key. Where it was kept, what was known under it is back in the fleet then.
fn kept_key(config: &Config, live: &Current) -> Result<RoutingKey, String> {
    if let Some(key) = config.server.state_file.as_ref().and_then(|path| state::take_back(path, &live.load().fleet)) {
        return Ok(key);
    }
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| format!("the system gives no random numbers: {error}"))?;
    Ok(key)
}

fn pingora_configuration(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.server.threads,
        work_stealing: false,
        grace_period_seconds: Some(PINGORA_GRACE.as_secs()),
        max_retries: PINGORA_TRIES,
        // Pingora keeps so many for each thread.
        upstream_keepalive_pool_size: POOL_SIZE.div_ceil(config.server.threads),
        ..ServerConf::default()
    }
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

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use pingora::upstreams::peer::HttpPeer;

use super::life::Life;
use super::resting::Resting;
use super::transport::{CONNECT_MAX, Transport};
use crate::config::{self, Secret};

/// Checks in a row that must fail before an engine is taken out; one good one brings it back.
const FAILURES_OUT: u32 = 3;

/// One engine of the fleet as it lives: where it is and whether it answers. What it has to do is in its model's router.
pub struct Engine {
    /// `host:port`; also the Host header that it gets.
    pub name: String,
    /// Whether it does anything for those who wait for it.
    pub life: Life,
    /// Requests in flight there that it has nothing to do for.
    pub resting: Resting,
    api_key: ArcSwapOption<Secret>,
    transport: Transport,
    host: String,
    port: u16,
    address: ArcSwapOption<SocketAddr>,
    failures: AtomicU32,
    answered: AtomicBool,
    checking: AtomicBool,
}

impl Engine {
    /// An engine as configured, not yet resolved or checked.
    pub fn new(engine: &config::Engine) -> Engine {
        let (host, port) = (engine.url.host().to_owned(), engine.url.port());
        let literal = host.parse().ok();
        Engine {
            name: engine.url.name(),
            life: Life::default(),
            resting: Resting::default(),
            api_key: ArcSwapOption::from_pointee(engine.api_key.clone()),
            transport: Transport::new(engine),
            host,
            port,
            address: ArcSwapOption::from_pointee(literal.map(|ip| SocketAddr::new(ip, port))),
            failures: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            checking: AtomicBool::new(false),
        }
    }

    /// One in the place of another in its router, which counts what is in flight at both.
    pub(super) fn in_place_of(before: &Engine, engine: &config::Engine) -> Engine {
        Engine { resting: before.resting.clone(), ..Engine::new(engine) }
    }

    /// The key that requests to it carry instead of the client's.
    pub fn api_key(&self) -> Option<Arc<Secret>> {
        self.api_key.load_full()
    }

    /// Takes another key.
    pub fn set_api_key(&self, key: Option<Secret>) {
        self.api_key.store(key.map(Arc::new));
    }

    /// Whether it is what `engine` describes, but for its key.
    pub(super) fn is(&self, engine: &config::Engine) -> bool {
        self.name == engine.url.name() && self.transport.is_of(engine)
    }

    /// Where to connect to, with the limits that every connection to an engine has.
    ///
    /// # Errors
    /// If the host's name does not resolve.
    pub async fn peer(&self) -> std::io::Result<HttpPeer> {
        let address = match self.address.load_full() {
            Some(address) => *address,
            None => self.resolve().await?,
        };
        Ok(self.transport.peer(address))
    }

    /// Looks the host's name up and keeps the address.
    ///
    /// # Errors
    /// If the name does not resolve; the address known before is kept.
    pub async fn resolve(&self) -> std::io::Result<SocketAddr> {
        let lookup = tokio::net::lookup_host((self.host.as_str(), self.port));
        let found = tokio::time::timeout(CONNECT_MAX, lookup).await.map_err(std::io::Error::from)??;
        let address = preferred(found).ok_or_else(|| std::io::Error::other(format!("{} has no address", self.host)))?;
        self.address.store(Some(Arc::new(address)));
        Ok(address)
    }

    /// Whether it has ever answered a check.
    pub fn answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes the outcome of a check. Some(up): the engine is to be used, or not, from now on.
    pub(super) fn checked(&self, good: bool) -> Option<bool> {
        if good {
            self.answered.store(true, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            return Some(true);
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        (failures >= FAILURES_OUT).then_some(false)
    }

    /// Begins a check, which lasts until what is returned is dropped. None: one is still under way.
    pub(super) fn begin_check(self: &Arc<Self>) -> Option<Check> {
        (!self.checking.swap(true, Ordering::Acquire)).then(|| Check(self.clone()))
    }
}

/// IPv4 where there are both, as where replicas are looked for: `localhost` mostly names `::1` first, and few engines listen there.
fn preferred(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    addresses.min_by_key(SocketAddr::is_ipv6)
}

/// A check of an engine under way.
pub(super) struct Check(Arc<Engine>);

impl Drop for Check {
    fn drop(&mut self) {
        self.0.checking.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_families_ipv4_is_preferred() {
        let of = |list: &[&str]| preferred(list.iter().map(|address| address.parse().expect("an address")));
        let is = |address: &str| Some(address.parse().expect("an address"));
        assert_eq!(of(&["[::1]:1", "127.0.0.1:1"]), is("127.0.0.1:1"));
        assert_eq!(of(&["10.0.0.1:1", "[fd00::1]:1", "10.0.0.2:1"]), is("10.0.0.1:1"));
        assert_eq!(of(&["[fd00::1]:1", "[fd00::2]:1"]), is("[fd00::1]:1"));
        assert_eq!(of(&[]), None);
    }
}

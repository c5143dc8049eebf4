//! Where replicas are looked for, as Pingora's `ServiceDiscovery`. Each backend found carries its engine.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use tokio::sync::Mutex;

use crate::config::{Discovery, Engine, Source, settings};

type Found = Result<(BTreeSet<Backend>, HashMap<u64, bool>)>;

/// What looks where the configuration says.
pub fn source(discovery: &Discovery) -> Box<dyn ServiceDiscovery + Send + Sync> {
    match &discovery.source {
        Source::Dns(named) => Box::new(Dns { discovery: discovery.clone(), named: named.as_ref().clone() }),
        Source::File(path) => {
            Box::new(File { discovery: discovery.clone(), path: path.clone(), reading: Arc::default() })
        }
    }
}

/// The engines found, in order.
///
/// # Errors
/// In words: why none could be found, and what was found that cannot be used.
pub async fn engines(source: &(dyn ServiceDiscovery + Send + Sync)) -> Result<Vec<Engine>, String> {
    let (backends, _) = source.discover().await.map_err(|error| in_words(&error))?;
    let engines: Vec<Engine> = backends.iter().filter_map(|backend| backend.ext.get::<Engine>()).cloned().collect();
    let replicas: usize = engines.iter().map(|engine| engine.data_parallel_size as usize).sum();
    match engines.len() {
        0 => Err("nothing was found".into()),
        more if more > settings::ENGINES_MAX => {
            Err(format!("{more} engines were found, which are more than {}", settings::ENGINES_MAX))
        }
        _ if replicas > settings::REPLICAS_MAX => Err(format!(
            "{replicas} replicas were found, ranks counted, which are more than {}",
            settings::REPLICAS_MAX
        )),
        _ => Ok(engines),
    }
}

/// Every address of a name.
struct Dns {
    discovery: Discovery,
    named: Engine,
}

#[async_trait]
impl ServiceDiscovery for Dns {
    async fn discover(&self) -> Found {
        let (host, port) = (self.named.url.host(), self.named.url.port());
        let addresses = tokio::net::lookup_host((host, port))
            .await
            .map_err(|error| failed(format!("{host} does not resolve: {error}")))?;
        let mut backends = BTreeSet::new();
        for address in one_family(addresses.collect()) {
            let engine = self.discovery.engine_at(&self.named, address.ip()).map_err(failed)?;
            backends.insert(backend(address, 1, engine));
        }
        Ok((backends, HashMap::new()))
    }
}

/// An engine that has addresses of both families would be two replicas.
fn one_family(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let has_v4 = addresses.iter().any(SocketAddr::is_ipv4);
    addresses.into_iter().filter(|address| address.is_ipv4() == has_v4).collect()
}

/// The URLs in a file.
struct File {
    discovery: Discovery,
    path: PathBuf,
    /// Held while it is read: on a disk that does not answer, threads would pile up.
    reading: Arc<Mutex<()>>,
}

#[async_trait]
impl ServiceDiscovery for File {
    async fn discover(&self) -> Found {
        let (discovery, path) = (self.discovery.clone(), self.path.clone());
        let reading = self.reading.clone().lock_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let _reading = reading;
            discovery.read(&path)
        });
        let engines =
            read.await.map_err(|error| failed(error.to_string()))?.map_err(|faults| failed(faults.sentence()))?;
        // Backends are told apart by address and weight. A name in a URL has no address until its engine is asked, so the
        // place in the file stands for it, and the order of the file is kept.
        let unresolved = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let backends = engines.into_iter().enumerate().map(|(place, engine)| backend(unresolved, place, engine));
        Ok((backends.collect(), HashMap::new()))
    }
}

fn backend(address: SocketAddr, weight: usize, engine: Engine) -> Backend {
    let mut backend = Backend { addr: address.into(), weight, ext: http::Extensions::new() };
    backend.ext.insert(engine);
    backend
}

fn failed(why: String) -> Box<Error> {
    Error::explain(ErrorType::Custom("discovery failed"), why)
}

fn in_words(error: &Error) -> String {
    error.context.as_ref().map_or_else(|| error.etype().as_str().to_owned(), |context| context.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().expect("an address")).collect()
    }

    #[test]
    fn an_engine_with_two_families_is_one_replica() {
        let (v4, v6) = (["10.0.0.1:1", "10.0.0.2:1"], ["[fd00::1]:1", "[fd00::2]:1"]);
        assert_eq!(one_family(addresses(&[v6[0], v4[0], v6[1], v4[1]])), addresses(&v4));
        assert_eq!(one_family(addresses(&v6)), addresses(&v6));
        assert_eq!(one_family(Vec::new()), []);
    }
}

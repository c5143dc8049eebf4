//! Replicas that are not listed: where they are looked for.

use super::place::Section;
use super::{Engine, EngineUrl, Faults, Transport, check, model, settings};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FORM: &str = "either dns: HOST:PORT or file: PATH";

/// How replicas are found, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    pub source: Source,
    /// From the end of one look to the next.
    pub every: Duration,
    /// How those found are spoken to, where nothing else is said of them.
    pub transport: Transport,
    /// Addresses of this balancer, which are no replicas.
    pub own: Vec<SocketAddr>,
}

/// Where replicas are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each address of the host of this engine is an engine like it.
    Dns(Box<Engine>),
    /// A file that holds what the list `replicas` may hold.
    File(PathBuf),
}

impl Discovery {
    /// An engine like `named` at an address of its host.
    ///
    /// # Errors
    /// If the address is one of this balancer.
    pub fn engine_at(&self, named: &Engine, address: IpAddr) -> Result<Engine, String> {
        let url = named.url.at(address);
        match check::leads_to_any(&url, &self.own) {
            true => Err(format!("{} is an address of this balancer", url.name())),
            false => Ok(Engine { url, ..named.clone() }),
        }
    }

    /// Reads a file of replicas, and the key files and environment variables it names. Relative paths in it start from its
    /// folder.
    ///
    /// # Errors
    /// Every fault in the file.
    pub fn read(&self, path: &Path) -> Result<Vec<Engine>, Faults> {
        let text = super::read_text(path)?;
        super::checked(path, &text, |root, folder| {
            model::engines(root, &self.transport, &self.own, folder).unwrap_or_default()
        })
    }
}

/// The mapping that stands in place of a list of replicas.
pub(super) fn discovery(
    s: &mut Section,
    transport: &Transport,
    own: &[SocketAddr],
    folder: &Path,
) -> Option<Discovery> {
    let every = s.within("every", &settings::DISCOVERY_EVERY);
    let data_parallel_size = s.within("data_parallel_size", &settings::DATA_PARALLEL_SIZE);
    let api_key = s.given("api_key").and_then(|place| check::secret(&place, folder));
    let of_a_name = ["data_parallel_size", "api_key"].map(|name| s.given(name));
    let source = s.one_of(
        FORM,
        &[
            ("dns", &|place| {
                let url = place.value("HOST:PORT", host_and_port)?;
                Some(Source::Dns(Box::new(Engine {
                    url,
                    data_parallel_size,
                    api_key: api_key.clone(),
                    draining: false,
                    transport: transport.clone(),
                })))
            }),
            ("file", &|place| {
                of_a_name.iter().flatten().for_each(|place| {
                    place.expected::<()>("it in the file instead, with each replica there");
                });
                place.text(settings::PATH_MAX).map(|path| Source::File(folder.join(path)))
            }),
        ],
    )?;
    Some(Discovery { source, every, transport: transport.clone(), own: own.to_vec() })
}

fn host_and_port(text: &str) -> Option<EngineUrl> {
    let has_port = text.contains(':') && !text.contains('/');
    has_port.then(|| EngineUrl::parse(&format!("http://{text}")).ok())?
}

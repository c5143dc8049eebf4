//! Which settings there are, and what must hold between them. Those of models are in [`model`].

use super::place::{Place, Section};
use super::{
    AccessLog, Admin, Agents, ClientCredentials, Config, EngineUrl, Http2, Limits, Listen, Scrape, Secret, Server,
    SessionRules, callers, model, settings, tls,
};
use crate::request::source::KeySource;
use http::{HeaderName, HeaderValue, Uri};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Reads the whole file; relative paths in it start from `folder`.
pub(super) fn config(root: &Place, folder: &Path) -> Config {
    root.section(|s| {
        let mut bound = Vec::new();
        let listen = listen(&s.place("listen"), &mut bound, folder).unwrap_or_default();
        let admin = admin(&s.place("admin"), &mut bound, folder);
        let (server, session) = (server(&s.place("server"), folder), session(&s.place("session")));
        let (scrape, callers) = (scrape(&s.place("scrape")), s.place("callers"));
        let traces = s.place("traces").section(|s| s.get("endpoint", None, |place| collector(place).map(Some)));
        let models = model::models(&s.place("models"), &bound, folder).unwrap_or_default();
        let named = models.iter().all(|model| model.name.is_some());
        let callers = callers.is_given().then(|| callers::read(&callers, named, folder)).flatten();
        Config { listen, admin, server, session, scrape, traces, callers, models }
    })
}

fn listen(place: &Place, bound: &mut Vec<SocketAddr>, folder: &Path) -> Option<Vec<Listen>> {
    if !place.is_given() {
        let address = settings::LISTEN_ADDRESS;
        bound.push(address);
        return Some(vec![Listen { address, tls: None }]);
    }
    place.list(1..=settings::LISTEN_ADDRESSES_MAX, |item| {
        item.section(|s| {
            let place = s.place("address");
            let address = socket_address(&place);
            let tls = s.given("tls").and_then(|place| tls::identity(&place, folder));
            bind(&place, address?, bound);
            Some(Listen { address: address?, tls })
        })
    })
}

/// The admin address, and its token if there is one.
pub(super) fn admin(place: &Place, bound: &mut Vec<SocketAddr>, folder: &Path) -> Admin {
    place.section(|s| {
        let place = s.place("address");
        let address = match place.is_given() {
            true => socket_address(&place),
            false => Some(settings::ADMIN_ADDRESS),
        };
        let token = s.place("token");
        if let Some(address) = address {
            bind(&place, address, bound);
            if !address.ip().is_loopback() && !token.is_given() {
                token.expected::<()>(format!("a token, since others can reach {address}"));
            }
        }
        Admin {
            address: address.unwrap_or(settings::ADMIN_ADDRESS),
            token: token.is_given().then(|| secret(&token, folder)).flatten(),
        }
    })
}

fn socket_address(place: &Place) -> Option<SocketAddr> {
    let what = "an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
    place.value(what, |text| text.parse().ok())
}

/// Notes an address as taken, or a fault if it cannot be bound beside those that are. Port 0 is always a free one.
fn bind(place: &Place, address: SocketAddr, bound: &mut Vec<SocketAddr>) {
    let in_the_way = |other: &&SocketAddr| {
        let any = address.ip().is_unspecified() || other.ip().is_unspecified();
        let same_ip = address.ip() == other.ip() || any && address.is_ipv4() == other.is_ipv4();
        address.port() != 0 && address.port() == other.port() && same_ip
    };
    if let Some(other) = bound.iter().find(in_the_way) {
        let what = format!("an address other than {other}, which this file uses already");
        place.expected::<()>(what);
    }
    bound.push(address);
}

fn server(place: &Place, folder: &Path) -> Server {
    place.section(|s| Server {
        threads: s.within("threads", &settings::threads()),
        grace: s.within("grace", &settings::GRACE),
        access_log: s.get("access_log", AccessLog::Text, Place::choice),
        response_headers: s.get("response_headers", true, Place::switch),
        state_file: s.get("state_file", None, |place| path(place, folder)),
        upgrade_socket: s.get("upgrade_socket", None, |place| path(place, folder)),
        client_credentials: s.get("client_credentials", ClientCredentials::Pass, Place::choice),
        origins: s.place("cors").section(|s| s.get("origins", Vec::new(), origins)),
        limits: s.place("limits").section(limits),
        http2: s.place("http2").section(|s| Http2 {
            streams: s.within("streams", &settings::STREAMS),
            header_list_bytes: s.within("header_list", &settings::HEADER_LIST).0,
            window_bytes: s.within("window", &settings::WINDOW).0,
        }),
    })
}

fn path(place: &Place, folder: &Path) -> Option<Option<PathBuf>> {
    place.text(settings::PATH_MAX).map(|path| Some(folder.join(path)))
}

fn origins(place: &Place) -> Option<Vec<HeaderValue>> {
    let mut seen = Vec::new();
    place.list(0..=settings::ORIGINS_MAX, |item| {
        once(&item, &mut seen, item.value("`*` or an origin, such as https://chat.example", origin)?)
    })
}

/// As browsers write it: in small letters, without a path, and without the port that the scheme means anyway.
fn origin(text: &str) -> Option<HeaderValue> {
    let whole = |uri: &Uri| {
        let default = match uri.scheme_str()? {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let port = authority.port_u16().filter(|port| *port != default);
        let port = port.map_or(String::new(), |port| format!(":{port}"));
        Some(format!("{}://{}{port}", uri.scheme_str()?, authority.host()))
    };
    let is_origin = || text.parse().ok().and_then(|uri| whole(&uri)).is_some_and(|whole| whole == text);
    (text == "*" || text == text.to_ascii_lowercase() && is_origin()).then(|| HeaderValue::from_str(text).ok())?
}

fn limits(s: &mut Section) -> Limits {
    let body_bytes = s.within("body", &settings::BODY).0;
    let buffered = s.place("buffered");
    let buffered_bytes = s.within("buffered", &settings::BUFFERED).0;
    if body_bytes > buffered_bytes {
        buffered.expected::<()>("at least `body`, or the largest bodies would never be taken");
    }
    Limits {
        body_bytes,
        buffered_bytes,
        header_bytes: s.within("header_bytes", &settings::HEADER_BYTES).0,
        headers: s.within("headers", &settings::HEADERS),
        header_read: s.within("header_read", &settings::HEADER_READ),
        body_read: s.within("body_read", &settings::BODY_READ),
        idle: s.within("idle", &settings::IDLE),
        connections: s.within("connections", &settings::CONNECTIONS),
    }
}

fn session(place: &Place) -> SessionRules {
    place.section(|s| SessionRules {
        headers: s.get("headers", Vec::new(), |place| {
            let mut seen = Vec::new();
            place.list(0..=settings::SESSION_HEADERS_MAX, |item| {
                let header = |text: &str| HeaderName::from_bytes(text.as_bytes()).ok();
                once(&item, &mut seen, item.value("the name of a header", header)?)
            })
        }),
        sources: s.get("sources", settings::SOURCES.into(), |place| {
            let mut seen = Vec::new();
            place.list(0..=settings::SOURCES_MAX, |item| once(&item, &mut seen, item.choice::<KeySource>()?))
        }),
        agents: s.get("agents", Agents::Separate, Place::choice),
    })
}

fn scrape(place: &Place) -> Scrape {
    place.section(|s| Scrape {
        interval: s.within("interval", &settings::SCRAPE_INTERVAL),
        timeout: s.within("timeout", &settings::SCRAPE_TIMEOUT),
        max_bytes: s.within("max_size", &settings::SCRAPE_SIZE).0,
    })
}

/// Where a collector of traces is asked.
fn collector(place: &Place) -> Option<String> {
    let is_collector = |text: &str| {
        let uri: Uri = text.parse().ok()?;
        let plain = uri.scheme_str() == Some("http") && uri.authority().is_some_and(|own| !own.as_str().contains('@'));
        plain.then(|| text.to_owned())
    };
    place.value("an http URL, such as http://127.0.0.1:4318/v1/traces", is_collector)
}

/// Whether the URL names an address that is bound here, as far as can be told without asking the network.
pub(super) fn leads_to_any(url: &EngineUrl, bound: &[SocketAddr]) -> bool {
    bound.iter().any(|address| leads_to(url, *address))
}

fn leads_to(url: &EngineUrl, address: SocketAddr) -> bool {
    let same_host = match (url.host(), url.host().parse::<IpAddr>()) {
        ("localhost", _) => address.ip().is_loopback() || address.ip().is_unspecified(),
        (_, Ok(ip)) => ip == address.ip() || ip.is_loopback() && address.ip().is_unspecified(),
        (_, Err(_)) => false,
    };
    same_host && url.port() == address.port()
}

/// A secret stands in a file or a variable of its own, so that this file can be shown to anyone.
pub(super) fn secret(place: &Place, folder: &Path) -> Option<Secret> {
    const NAME: &str = "the name of an environment variable";
    let refused = |place: &Place, (what, found): (String, String)| place.expected_but(what, found);
    place.clone().hidden().section(|s| {
        s.one_of(
            "either file: PATH or env: NAME",
            &[
                ("file", &|place| {
                    let path = place.text(settings::PATH_MAX)?;
                    Secret::from_file(&folder.join(path)).map_or_else(|why| refused(place, why), Some)
                }),
                ("env", &|place| {
                    let variable = place.value(NAME, variable_name)?;
                    Secret::from_environment(variable).map_or_else(|why| refused(place, why), Some)
                }),
            ],
        )
    })
}

fn variable_name(text: &str) -> Option<&str> {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!text.is_empty() && text.bytes().all(valid)).then_some(text)
}

/// Refuses a value that stood before in the same list.
pub(super) fn once<T: PartialEq + Clone>(place: &Place, seen: &mut Vec<T>, value: T) -> Option<T> {
    if seen.contains(&value) {
        return place.expected("one that is not listed before");
    }
    seen.push(value.clone());
    Some(value)
}

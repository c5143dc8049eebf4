//! The address of an engine.

use http::Uri;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Where an engine listens: `http://HOST:PORT` or `https://HOST:PORT`, port 80 or 443 if none is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineUrl {
    tls: bool,
    host: String,
    port: u16,
}

impl EngineUrl {
    /// Reads one, as it stands in the file.
    ///
    /// # Errors
    /// What was expected instead, in words.
    pub fn parse(text: &str) -> Result<EngineUrl, &'static str> {
        const FORM: &str = "http://HOST:PORT or https://HOST:PORT";
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(FORM),
        };
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err("http://HOST:PORT without user and password (a key goes into api_key)");
        }
        if !matches!(uri.path(), "" | "/") || text.contains(['?', '#']) {
            return Err("http://HOST:PORT without a path (the request brings its own)");
        }
        let host = host(authority.host()).ok_or("http://HOST:PORT with a valid host")?;
        let port = match &authority.as_str()[authority.host().len()..] {
            "" if tls => 443,
            "" => 80,
            port => port
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .filter(|port| *port != 0)
                .ok_or("http://HOST:PORT with a port from 1 to 65535")?,
        };
        Ok(EngineUrl { tls, host, port })
    }

    /// Whether it is an https URL.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The same at an address of its host.
    pub fn at(&self, address: IpAddr) -> EngineUrl {
        EngineUrl { host: address.to_string(), ..*self }
    }

    /// A name or an IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, which is what the replica is called; an IPv6 address stands in brackets.
    pub fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.name())
    }
}

/// One spelling for one host, so that a replica listed twice is seen.
fn host(text: &str) -> Option<String> {
    if let Some(address) = text.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    // Underscores are no part of host names, but container networks use them.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let valid = (1..=253).contains(&text.len()) && text.bytes().all(allowed);
    valid.then(|| text.to_ascii_lowercase())
}

//! Certificates and keys: read from PEM files, checked, and kept ready for use.

use super::place::Place;
use super::{file, settings};
use pingora::protocols::tls::CaType;
use pingora::utils::tls::WrappedX509;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a listener shows its clients: a certificate with its chain, and the private key that belongs to it; and what it asks to
/// be shown.
#[derive(Clone)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    clients: Option<Clients>,
}

/// The authorities of which clients must show a certificate.
#[derive(Clone)]
struct Clients {
    authorities: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Whom to believe that an engine is the one it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Who may have signed its certificate; `None`: those that the system trusts.
    pub authorities: Option<Authorities>,
    /// The name that its certificate must bear; `None`: the host of its URL.
    pub server_name: Option<String>,
}

/// At least one certificate.
#[derive(Clone)]
pub struct Authorities(Arc<CaType>);

impl Identity {
    /// As rustls uses it.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        self.key.clone()
    }

    /// Who says whether a client's certificate will do; `None`: clients need none.
    pub fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.clients.as_ref().map(|clients| clients.verifier.clone())
    }
}

impl Authorities {
    /// As Pingora uses it.
    pub fn certificates(&self) -> Arc<CaType> {
        self.0.clone()
    }
}

/// The `tls` of a listener.
pub(super) fn identity(place: &Place, folder: &Path) -> Option<Identity> {
    place.section(|s| {
        let (certificate, key) = (s.place("certificate"), s.place("key"));
        let (chain, private_key) = (certificates(&certificate, folder), private_key(&key, folder));
        let clients = s.get("client_ca", None, |place| clients(place, folder).map(Some));
        match CertifiedKey::from_der(chain?, private_key?, &ring::default_provider()) {
            Ok(pair) => Some(Identity { key: Arc::new(pair), clients }),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                key.expected_but("the key of the certificate", "another")
            }
            Err(rustls::Error::InvalidCertificate(_)) => {
                certificate.expected_but("a certificate that can be read", "a broken one")
            }
            Err(_) => key.expected_but("an RSA, ECDSA or Ed25519 key", "another kind"),
        }
    })
}

fn clients(place: &Place, folder: &Path) -> Option<Clients> {
    let authorities = certificates(place, folder)?;
    let roots = Arc::new(roots(place, &authorities)?);
    match WebPkiClientVerifier::builder_with_provider(roots, Arc::new(ring::default_provider())).build() {
        Ok(verifier) => Some(Clients { authorities, verifier }),
        Err(error) => place.expected_but("certificates of authorities", error),
    }
}

/// What rustls checks others' certificates with.
fn roots(place: &Place, certificates: &[CertificateDer<'static>]) -> Option<RootCertStore> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in certificates.iter().enumerate() {
        if store.add(certificate.clone()).is_err() {
            return broken(place, index);
        }
    }
    Some(store)
}

fn broken<T>(place: &Place, index: usize) -> Option<T> {
    place.expected_but("certificates that can be read", format!("number {} broken", index + 1))
}

/// The `tls` of engines.
pub(super) fn trust(place: &Place, folder: &Path) -> Option<Trust> {
    Some(place.section(|s| Trust {
        authorities: s.get("ca", None, |place| authorities(place, folder).map(Some)),
        server_name: s.get("sni", None, |place| server_name(place).map(Some)),
    }))
}

fn server_name(place: &Place) -> Option<String> {
    let valid = |text: &str| ServerName::try_from(text.to_owned()).ok().map(|_| text.to_owned());
    place.value("a host name or an IP address", valid)
}

fn authorities(place: &Place, folder: &Path) -> Option<Authorities> {
    let certificates = certificates(place, folder)?;
    // Both readers must take it: rustls checks with it, Pingora holds it.
    roots(place, &certificates)?;
    let mut read = Vec::new();
    for (index, certificate) in certificates.into_iter().enumerate() {
        match WrappedX509::try_new(certificate.to_vec(), |raw| X509Certificate::from_der(raw).map(|(_, it)| it)) {
            Ok(held) => read.push(held),
            Err(_) => return broken(place, index),
        }
    }
    Some(Authorities(read.into()))
}

fn certificates(place: &Place, folder: &Path) -> Option<Vec<CertificateDer<'static>>> {
    const WHAT: &str = "a file of certificates in PEM";
    let pem = pem(place, folder, WHAT)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if certificates.is_empty() => place.expected_but(WHAT, "none in it"),
        Ok(certificates) => Some(certificates),
        Err(_) => place.expected_but(WHAT, "broken PEM"),
    }
}

fn private_key(place: &Place, folder: &Path) -> Option<PrivateKeyDer<'static>> {
    const WHAT: &str = "a file with a private key in PEM";
    let pem = pem(place, folder, WHAT)?;
    PrivateKeyDer::from_pem_slice(&pem).ok().or_else(|| place.expected_but(WHAT, "none in it"))
}

fn pem(place: &Place, folder: &Path, what: &str) -> Option<Vec<u8>> {
    let path = folder.join(place.text(settings::PATH_MAX)?);
    match file::read(&path, settings::PEM_MAX + 1) {
        Ok(bytes) if bytes.len() as u64 > settings::PEM_MAX => place.expected_but(what, "a much larger one"),
        Ok(bytes) => Some(bytes),
        Err(error) => place.expected_but(what, error),
    }
}

/// A renewed certificate differs, even for the same key.
impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        let authorities = |of: &Identity| of.clients.as_ref().map(|clients| clients.authorities.clone());
        self.key.cert == other.key.cert && authorities(self) == authorities(other)
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Identity(hidden)")
    }
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Authorities) -> bool {
        let raw = |of: &Authorities| of.0.iter().map(WrappedX509::borrow_raw_cert).cloned().collect::<Vec<_>>();
        raw(self) == raw(other)
    }
}

impl Eq for Authorities {}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Authorities({})", self.0.len())
    }
}

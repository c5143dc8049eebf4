//! Certificates for the tests, made anew in each, and what TLS is set up with.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority, and a folder for what it signs.
pub struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, as files.
#[derive(Clone)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
    der: CertificateDer<'static>,
}

impl Pki {
    pub fn new() -> Pki {
        let mut params = CertificateParams::default();
        // By their names they are told apart.
        let name = format!("authority {:016x}", RandomState::new().hash_one(0));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let pki = Pki { issuer, folder: TempDir::new().expect("a temporary directory") };
        std::fs::write(pki.ca(), pki.issuer.pem()).expect("the authority is written");
        pki
    }

    /// The authority's own certificate, as a file.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for `name`, in files called after `file`.
    pub fn issue(&self, file: &str, name: &str) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |end: &str| self.folder.path().join(format!("{file}.{end}"));
        let pair = Pair { certificate: path("pem"), key: path("key"), der: certificate.der().clone() };
        std::fs::write(&pair.certificate, certificate.pem()).expect("the certificate is written");
        std::fs::write(&pair.key, key.serialize_pem()).expect("the key is written");
        pair
    }

    /// How a client of the tests connects that believes this authority.
    pub fn client(&self) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        TlsClient { roots, versions: vec![&version::TLS12, &version::TLS13], alpn: Vec::new(), shown: None }
    }
}

impl Pair {
    /// As a listener's `tls`.
    pub fn settings(&self) -> Value {
        json!({"certificate": self.certificate, "key": self.key})
    }

    /// Whether this is the certificate that a connection was shown.
    pub fn is_shown_on(&self, stream: &TlsStream<TcpStream>) -> bool {
        stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()) == Some(&self.der)
    }

    /// For an engine that shows it.
    pub fn acceptor(&self, alpn: &[&str]) -> TlsAcceptor {
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("a key");
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key)
            .expect("a certificate with its key");
        config.alpn_protocols = protocols(alpn);
        TlsAcceptor::from(Arc::new(config))
    }
}

/// How to connect with TLS.
#[derive(Clone)]
pub struct TlsClient {
    roots: RootCertStore,
    versions: Vec<&'static SupportedProtocolVersion>,
    alpn: Vec<Vec<u8>>,
    shown: Option<Pair>,
}

impl TlsClient {
    /// Has a certificate of its own.
    pub fn showing(self, pair: &Pair) -> TlsClient {
        TlsClient { shown: Some(pair.clone()), ..self }
    }

    pub fn version(self, version: &'static SupportedProtocolVersion) -> TlsClient {
        TlsClient { versions: vec![version], ..self }
    }

    pub fn alpn(self, alpn: &[&str]) -> TlsClient {
        TlsClient { alpn: protocols(alpn), ..self }
    }

    /// Shakes hands with who is `name`.
    pub async fn connect(&self, address: std::net::SocketAddr, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&self.versions)
            .expect("versions")
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.shown {
            None => config.with_no_client_auth(),
            Some(Pair { der, key, .. }) => {
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                config.with_client_auth_cert(vec![der.clone()], key).expect("a certificate with its key")
            }
        };
        config.alpn_protocols = self.alpn.clone();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        super::within("a TLS handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }
}

fn protocols(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

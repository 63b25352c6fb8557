//! A certificate authority of one test, and certificates that it signs, as PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

/// A certificate chain and its key.
#[derive(Clone)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// When a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Now,
    /// Until a day in the past.
    Over,
}

static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);

/// A certificate authority. Its files are removed with it.
pub struct Authority {
    dir: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // An issuer is found by its name, and each test may have several.
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("authority {number} of a test");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("ca.crt"), issuer.pem()).expect("written");
        Self { dir, issuer }
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// A certificate for 127.0.0.1 and localhost.
    pub fn server(&self, name: &str) -> Pair {
        self.sign(name, ExtendedKeyUsagePurpose::ServerAuth, Validity::Now)
    }

    /// A certificate of a client.
    pub fn client(&self, name: &str, validity: Validity) -> Pair {
        self.sign(name, ExtendedKeyUsagePurpose::ClientAuth, validity)
    }

    /// Replaces the files of this name by a new certificate with a new key.
    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose, validity: Validity) -> Pair {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        if validity == Validity::Over {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 2);
        }
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("signed");
        let file = |ending: &str| self.dir.path().join(format!("{name}.{ending}"));
        let pair = Pair {
            cert: file("crt"),
            key: file("key"),
        };
        std::fs::write(&pair.cert, cert.pem()).expect("written");
        std::fs::write(&pair.key, key.serialize_pem()).expect("written");
        pair
    }
}

/// TLS of a server with this certificate, which requires a certificate of `clients` if there are any.
pub fn server_config(pair: &Pair, clients: Option<&Path>, protocol: &[u8]) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for cert in CertificateDer::pem_file_iter(ca).expect("a file") {
                roots.add(cert.expect("PEM")).expect("an authority");
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let chain = CertificateDer::pem_file_iter(&pair.cert).expect("a file");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_file(&pair.key).expect("a key");
    let mut config = builder.with_single_cert(chain, key).expect("a pair");
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

//! The web configuration file: <https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md>, with tokens
//! besides. What is not supported is an error, because ignoring it could open the endpoint.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;

use crate::tls::{TlsCertificate, TlsCertificateError};

/// Largest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why a web configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebConfigError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Not YAML, or with a field that is not known. Its values are not repeated.
    #[error("{}: {why}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// Fields that do not fit together.
    #[error("{}: {why}", path.display())]
    Conflict {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: &'static str,
    },
    /// A certificate or key is not PEM.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// A certificate or key that cannot be used.
    #[error("{}: {source}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// The certificate of this server and its key cannot be used.
    #[error(transparent)]
    Pair(#[from] TlsCertificateError),
    /// The authorities of clients cannot be used.
    #[error("{}: {source}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: VerifierBuilderError,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebConfigFile {
    tls_server_config: Option<TlsServerSection>,
    #[serde(default)]
    basic_auth_users: BTreeMap<String, String>,
    authorization: Option<Authorization>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsServerSection {
    cert_file: PathBuf,
    key_file: PathBuf,
    #[serde(default)]
    client_auth_type: ClientAuthType,
    client_ca_file: Option<PathBuf>,
    #[serde(default)]
    client_allowed_sans: Vec<String>,
    #[serde(default)]
    min_version: TlsVersion,
    #[serde(default = "newest")]
    max_version: TlsVersion,
}

/// Names of Go's `tls.ClientAuthType`. Types that do not verify certificates are not supported.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum ClientAuthType {
    #[default]
    NoClientCert,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum TlsVersion {
    #[default]
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

fn newest() -> TlsVersion {
    TlsVersion::Tls13
}

/// The section `authorization` of a scrape configuration of Prometheus.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Authorization {
    #[serde(default, rename = "type")]
    _kind: BearerScheme,
    credentials_file: PathBuf,
}

#[derive(Default, Deserialize)]
enum BearerScheme {
    #[default]
    Bearer,
}

/// Reads a certificate and its key.
pub(super) type CertificateReader<'a> =
    dyn Fn(&Path, &Path) -> Result<Arc<TlsCertificate>, TlsCertificateError> + 'a;

/// The web configuration file and the files that it names.
pub(super) struct WebConfig {
    /// `None` without TLS.
    pub(super) tls: Option<WebTlsConfig>,
    /// bcrypt hashes by user.
    pub(super) users: BTreeMap<String, String>,
    pub(super) tokens: Vec<String>,
}

pub(super) struct WebTlsConfig {
    pub(super) server: Arc<ServerConfig>,
    pub(super) names: AllowedNames,
}

/// Names for certificates of clients: one of them must match. Without names, every certificate is allowed.
pub(super) struct AllowedNames(Vec<ServerName<'static>>);

impl AllowedNames {
    pub(super) fn allow(&self, certificate: Option<&CertificateDer<'_>>) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let parsed =
            certificate.and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
        parsed.is_some_and(|certificate| {
            self.0
                .iter()
                .any(|name| verify_server_name(&certificate, name).is_ok())
        })
    }
}

impl WebConfig {
    /// Reads the files, and has `open` read the certificate and its key. Blocks on the disk.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(super) fn load(path: &Path, open: &CertificateReader<'_>) -> Result<Self, WebConfigError> {
        let text = read(path)?;
        let file: WebConfigFile = serde_saphyr::from_str(&text).map_err(|error| {
            // Further lines quote the file.
            let text = error.to_string();
            let why = text.lines().next().unwrap_or_default().to_owned();
            let path = path.to_owned();
            WebConfigError::Yaml { path, why }
        })?;
        let mut hashes = file.basic_auth_users.values();
        if !hashes.all(|hash| hash.parse::<bcrypt::HashParts>().is_ok()) {
            let why = "a password of basic_auth_users is not a bcrypt hash";
            return Err(conflict(path, why));
        }
        let dir = path.parent().unwrap_or(Path::new("/"));
        let mut tokens = Vec::new();
        if let Some(authorization) = file.authorization {
            let text = read(&dir.join(authorization.credentials_file))?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            tokens.extend(lines.map(str::to_owned));
            if tokens.is_empty() {
                return Err(conflict(path, "no token in the file of authorization"));
            }
        }
        let tls = file.tls_server_config.map(|tls| tls.load(path, open));
        Ok(Self {
            tls: tls.transpose()?,
            users: file.basic_auth_users,
            tokens,
        })
    }
}

impl TlsServerSection {
    /// Checks that the fields about certificates of clients fit together.
    fn check_client_auth(&self) -> Result<(), &'static str> {
        let is_verified = self.client_auth_type != ClientAuthType::NoClientCert;
        if is_verified != self.client_ca_file.is_some() {
            return Err(
                "client_ca_file needs a client_auth_type that verifies certificates, and such a type needs client_ca_file",
            );
        }
        if !self.client_allowed_sans.is_empty()
            && self.client_auth_type != ClientAuthType::RequireAndVerifyClientCert
        {
            return Err("client_allowed_sans needs client_auth_type RequireAndVerifyClientCert");
        }
        Ok(())
    }

    /// Reads the certificates. Their paths are relative to the directory of the web configuration file, `path`.
    fn load(
        self,
        path: &Path,
        open: &CertificateReader<'_>,
    ) -> Result<WebTlsConfig, WebConfigError> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let versions: &[&SupportedProtocolVersion] = match (self.min_version, self.max_version) {
            (TlsVersion::Tls12, TlsVersion::Tls13) => &[&TLS13, &TLS12],
            (TlsVersion::Tls12, TlsVersion::Tls12) => &[&TLS12],
            (TlsVersion::Tls13, TlsVersion::Tls13) => &[&TLS13],
            _ => return Err(conflict(path, "min_version is above max_version")),
        };
        self.check_client_auth()
            .map_err(|why| conflict(path, why))?;
        let (cert, key) = (dir.join(&self.cert_file), dir.join(&self.key_file));
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_protocol_versions(versions)
            .map_err(unusable(&cert))?;
        let builder = match &self.client_ca_file {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let verifier = client_verifier(dir.join(ca), self.client_auth_type, provider)?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut server = builder.with_cert_resolver(open(&cert, &key)?);
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        let names = self
            .client_allowed_sans
            .into_iter()
            .map(ServerName::try_from);
        let names = names.collect::<Result<_, _>>();
        Ok(WebTlsConfig {
            server: Arc::new(server),
            names: AllowedNames(names.map_err(|_| {
                let why = "an entry of client_allowed_sans is neither a DNS name nor an IP address";
                conflict(path, why)
            })?),
        })
    }
}

fn conflict(path: &Path, why: &'static str) -> WebConfigError {
    WebConfigError::Conflict {
        path: path.to_owned(),
        why,
    }
}

/// Verifies certificates of clients by the authorities in a file.
fn client_verifier(
    path: PathBuf,
    client_auth: ClientAuthType,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, WebConfigError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(&path)? {
        roots.add(authority).map_err(unusable(&path))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match client_auth {
        ClientAuthType::VerifyClientCertIfGiven => verifier.allow_unauthenticated(),
        _ => verifier,
    };
    verifier
        .build()
        .map_err(|source| WebConfigError::Authorities { path, source })
}

fn unusable(path: &Path) -> impl FnOnce(rustls::Error) -> WebConfigError + use<> {
    let path = path.to_owned();
    |source| WebConfigError::Certificate { path, source }
}

fn read(path: &Path) -> Result<String, WebConfigError> {
    let text = fs::metadata(path).and_then(|file| {
        if file.len() > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        fs::read_to_string(path)
    });
    text.map_err(|source| WebConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

fn in_file(path: &Path) -> impl FnOnce(pem::Error) -> WebConfigError {
    let path = path.to_owned();
    |source| WebConfigError::Pem { path, source }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, WebConfigError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(in_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("web.yaml");
        fs::write(&path, text).expect("written");
        let open =
            |cert: &Path, key: &Path| TlsCertificate::open("metrics", cert, key).map(Arc::new);
        match WebConfig::load(&path, &open) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_would_not_be_obeyed_is_an_error() {
        let tls = "tls_server_config: {cert_file: a, key_file: b, ";
        for (text, wanted) in [
            ("rate_limit: {burst: 1}\n".to_owned(), "rate_limit"),
            (format!("{tls}cipher_suites: [x]}}\n"), "cipher_suites"),
            (
                format!("{tls}client_auth_type: RequestClientCert}}\n"),
                "RequestClientCert",
            ),
            (
                format!("{tls}client_ca_file: c}}\n"),
                "needs a client_auth_type",
            ),
            (
                format!("{tls}client_auth_type: RequireAndVerifyClientCert}}\n"),
                "needs a client_auth_type",
            ),
            (
                format!("{tls}min_version: TLS13, max_version: TLS12}}\n"),
                "above",
            ),
            (format!("{tls}min_version: TLS10}}\n"), "TLS10"),
            (
                format!("{tls}client_allowed_sans: [a]}}\n"),
                "client_allowed_sans needs",
            ),
            (format!("{tls}}}\n"), "No such file"),
            (
                "basic_auth_users: {a: hunter2}\n".to_owned(),
                "not a bcrypt hash",
            ),
            (
                "authorization: {credentials_file: none}\n".to_owned(),
                "No such file",
            ),
            (
                "authorization: {type: Digest, credentials_file: a}\n".to_owned(),
                "Digest",
            ),
        ] {
            let error = error(&text);
            assert!(error.contains(wanted), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert_eq!(error("basic_auth_users: {}\n"), "");
    }
}

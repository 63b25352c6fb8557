//! Endpoints of a registry: its hosts, each with an HTTP client for its TLS settings.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::tls::{Certificate, Identity};
use reqwest::{Client, ClientBuilder, Url};

use super::hosts_file::{Capabilities, HostEntry, TlsEntry, look_up};
use super::redirect::InsecureHosts;
use crate::blocking::lock;
use crate::config::ImageStoreConfig;
use crate::error::{At as _, Error, Result};
use crate::reference::Reference;

/// Maximum number of cached clients. Each has a copy of the system's certificates.
const MAX_CLIENTS: usize = 32;

/// How long a connection is kept after its last request. Each that has carried a layer holds the 400 KB into which hyper read it, and the
/// requests of one pull follow each other closely.
const IDLE: Duration = Duration::from_secs(5);

/// One host of a registry.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    /// Up to and including `/v2`, without a trailing slash.
    pub(super) base: Url,
    /// Host and port, for errors and credentials.
    pub(super) host: String,
    pub(super) client: Client,
    /// The time limit of a connection.
    pub(super) connect: Duration,
    pub(super) headers: HeaderMap,
    pub(super) capabilities: Capabilities,
    /// Whether it may be reached without TLS, and with certificates of unknown authorities.
    pub(super) is_insecure: bool,
    /// The hosts that it may lead to without TLS.
    pub(super) insecure_hosts: Arc<InsecureHosts>,
    /// True if it is a mirror, which receives the registry in the parameter `ns`.
    pub(super) is_mirror: bool,
}

impl Endpoint {
    /// The name under which its credentials are stored: the host of a mirror, else the registry.
    pub(super) fn registry<'a>(&'a self, name: &'a Reference) -> &'a str {
        if self.is_mirror {
            &self.host
        } else {
            name.registry()
        }
    }
}

/// Creates endpoints, and caches clients with their connections.
#[derive(Debug)]
pub(super) struct Endpoints {
    config: Arc<ImageStoreConfig>,
    pub(super) insecure_hosts: Arc<InsecureHosts>,
    clients: Mutex<HashMap<ClientKey, Client>>,
}

/// Identifies a client, which is reused as long as its files are unchanged.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct ClientKey {
    tls: TlsEntry,
    is_local: bool,
    files: Vec<(PathBuf, Option<SystemTime>)>,
}

impl Endpoints {
    pub(super) fn new(config: Arc<ImageStoreConfig>) -> Self {
        // An error means that the process has already installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            insecure_hosts: Arc::new(InsecureHosts::new(&config.insecure_redirect_hosts)),
            config,
            clients: Mutex::default(),
        }
    }

    /// All hosts of a registry in the order in which they are tried. Files are read each time: changes need no restart.
    /// `insecure` allows plain HTTP and certificates of unknown authorities, unless a `hosts.toml` has its own address.
    pub(super) fn for_registry(&self, registry: &str, insecure: bool) -> Result<Vec<Endpoint>> {
        let mut entries = look_up(&self.config.certs_dirs, registry)?;
        let mut insecure_from = usize::MAX;
        if insecure && let Some(own) = entries.pop_if(|entry| entry.address.is_empty()) {
            let host = upstream_host(registry);
            insecure_from = entries.len();
            for scheme in ["https", "http"] {
                let mut entry = own.clone();
                entry.address = format!("{scheme}://{host}");
                entry.tls.skip_verify = true;
                entries.push(entry);
            }
        }
        let mut endpoints = Vec::new();
        for (index, entry) in entries.into_iter().enumerate() {
            let mut endpoint = self.endpoint(registry, entry)?;
            endpoint.is_insecure = index >= insecure_from;
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    fn endpoint(&self, registry: &str, entry: HostEntry) -> Result<Endpoint> {
        let has_tls = entry.tls != TlsEntry::default();
        let base = base(registry, &entry, has_tls).ok_or_else(|| {
            Error::invalid(
                format!("registry {registry}"),
                format!("\"{}\" is no address", entry.address),
            )
        })?;
        let host = match base.port() {
            Some(port) => format!("{}:{port}", base.host_str().unwrap_or_default()),
            None => base.host_str().unwrap_or_default().to_owned(),
        };
        let upstream = upstream_host(registry);
        let mut headers = HeaderMap::new();
        for (name, value) in &entry.headers {
            let (Ok(header), Ok(mut value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            else {
                let what = format!("header {name} of {host}");
                return Err(Error::invalid(what, "not a header"));
            };
            value.set_sensitive(true);
            headers.append(header, value);
        }
        Ok(Endpoint {
            is_mirror: host != upstream && !entry.address.is_empty(),
            connect: self.connect_timeout(&entry.tls),
            client: self.client(entry.tls, is_local(&host))?,
            capabilities: entry.capabilities,
            is_insecure: false,
            insecure_hosts: Arc::clone(&self.insecure_hosts),
            base,
            host,
            headers,
        })
    }

    fn connect_timeout(&self, tls: &TlsEntry) -> Duration {
        tls.dial_timeout.unwrap_or(self.config.timeouts.connect)
    }

    fn client(&self, tls: TlsEntry, is_local: bool) -> Result<Client> {
        let clients = tls
            .client
            .iter()
            .flat_map(|(cert, key)| [Some(cert), key.as_ref()]);
        let files = tls.ca.iter().chain(clients.flatten());
        let files = files.map(|path| {
            let modified = fs::metadata(path).and_then(|m| m.modified()).ok();
            (path.clone(), modified)
        });
        let files = files.collect();
        let key = ClientKey {
            tls,
            is_local,
            files,
        };
        if let Some(client) = lock(&self.clients).get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(&key.tls, is_local)?;
        let mut clients = lock(&self.clients);
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, tls: &TlsEntry, is_local: bool) -> Result<Client> {
        let mut authorities = Vec::new();
        for path in &tls.ca {
            let pem = fs::read(path).at(path)?;
            authorities.extend(Certificate::from_pem_bundle(&pem).map_err(|e| settings(path, &e))?);
        }
        let identity = tls
            .client
            .first()
            .map(|(cert, key)| identity(cert, key.as_deref()))
            .transpose()?;
        let identity = identity.as_ref();
        let with_system_certificates = self
            .client_builder(tls, identity, is_local)
            .tls_certs_merge(authorities.clone())
            .build();
        // Without system certificates, registries with their own certificates or without TLS are still reachable.
        let built = with_system_certificates.or_else(|_| {
            self.client_builder(tls, identity, is_local)
                .tls_certs_only(authorities)
                .build()
        });
        built.map_err(|error| Error::internal(format!("a client for registries: {error}")))
    }

    fn client_builder(
        &self,
        tls: &TlsEntry,
        identity: Option<&Identity>,
        is_local: bool,
    ) -> ClientBuilder {
        let mut builder = Client::builder()
            // Redirects are followed by `Host::get`, which does not send credentials to their targets.
            .redirect(Policy::none())
            .connect_timeout(self.connect_timeout(tls))
            .pool_idle_timeout(IDLE)
            .user_agent(&self.config.user_agent)
            .tls_danger_accept_invalid_certs(tls.skip_verify);
        // As in Go programs, a proxy (HTTPS_PROXY and so on) is not used for the local host.
        if is_local {
            builder = builder.no_proxy();
        }
        if let Some(identity) = identity {
            builder = builder.identity(identity.clone());
        }
        builder
    }
}

/// Reads the client certificate and its key from two files, or from one.
fn identity(cert: &Path, key: Option<&Path>) -> Result<Identity> {
    let mut pem = fs::read(cert).at(cert)?;
    if let Some(key) = key {
        pem.push(b'\n');
        pem.extend(fs::read(key).at(key)?);
    }
    Identity::from_pem(&pem).map_err(|e| settings(cert, &e))
}

fn settings(path: &Path, error: &reqwest::Error) -> Error {
    Error::Settings {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// The host that serves a registry: Docker Hub's differs from its name.
fn upstream_host(registry: &str) -> &str {
    match registry {
        "docker.io" => "registry-1.docker.io",
        other => other,
    }
}

/// Returns the URL of a host, by containerd's rules.
fn base(registry: &str, entry: &HostEntry, has_tls: bool) -> Option<Url> {
    let address = match entry.address.as_str() {
        "" => upstream_host(registry),
        "docker.io" | "https://docker.io" => "https://registry-1.docker.io",
        address => address,
    };
    let text = if address.contains("://") {
        address.to_owned()
    } else if is_local(address) && !has_tls {
        format!("http://{address}")
    } else {
        format!("https://{address}")
    };
    let mut url = Url::parse(&text).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    let path = url.path().trim_end_matches('/');
    let path = if entry.override_path || path.ends_with("/v2") {
        path.to_owned()
    } else {
        format!("{path}/v2")
    };
    url.set_path(&path);
    Some(url)
}

/// Returns whether it is the local host, where plain HTTP is the default.
fn is_local(address: &str) -> bool {
    let host = address.split('/').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_rules_of_containerd() {
        let at = |registry: &str, address: &str, override_path: bool| {
            let entry = HostEntry {
                address: address.to_owned(),
                override_path,
                ..HostEntry::default()
            };
            base(registry, &entry, false).map(|url| url.to_string())
        };
        let cases = [
            ("docker.io", "", false, "https://registry-1.docker.io/v2"),
            (
                "docker.io",
                "https://docker.io",
                false,
                "https://registry-1.docker.io/v2",
            ),
            ("quay.io", "", false, "https://quay.io/v2"),
            ("localhost:5000", "", false, "http://localhost:5000/v2"),
            ("127.0.0.7:5000", "", false, "http://127.0.0.7:5000/v2"),
            ("[::1]:5000", "", false, "http://[::1]:5000/v2"),
            ("quay.io", "m.example", false, "https://m.example/v2"),
            (
                "quay.io",
                "http://m.example/p/",
                false,
                "http://m.example/p/v2",
            ),
            (
                "quay.io",
                "http://m.example/p/v2",
                false,
                "http://m.example/p/v2",
            ),
            (
                "quay.io",
                "http://m.example/v2/q/",
                true,
                "http://m.example/v2/q",
            ),
        ];
        for (registry, address, override_path, expected) in cases {
            assert_eq!(
                at(registry, address, override_path).as_deref(),
                Some(expected)
            );
        }
        assert_eq!(at("quay.io", "ftp://m.example", false), None);
    }
}

//! Registry client (OCI distribution-spec 1.1 and its predecessor by Docker): hosts, authentication, manifests, blobs.
//!
//! The client is built on `reqwest`. `oci-client` does not fit: it has one TLS configuration for all hosts, no client certificates,
//! headers or `override_path`, reads manifests of any size into memory, and does not expose status codes and `Retry-After`.

mod answers;
mod auth;
mod blob;
mod body;
mod challenge;
mod client;
mod client_certificates;
mod endpoint;
mod foreign;
mod get;
mod host;
mod hosts_file;
mod manifests;
mod node_address;
mod notes;
mod plain;
mod rate_limit;
mod redirect;
mod refusal;
mod registries_conf;
mod repository;
mod request;
mod retries;
mod secrets;
mod warning;
mod words;

pub(crate) use self::answers::Answers;
pub use self::blob::BlobPart;
pub use self::client::RegistryClient;
pub(crate) use self::client::check_conf;
pub use self::client_certificates::ClientCertificate;
pub(crate) use self::client_certificates::client_certificates;
pub(crate) use self::manifests::ManifestAnswer;
pub use self::repository::Repository;

/// Parses `hosts.toml`, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn read_hosts_file(text: &str, dir: &std::path::Path) {
    let _ = hosts_file::parse(text, dir);
}

/// Parses `WWW-Authenticate`, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn read_challenge(header: &str) {
    let _ = challenge::parse(header);
}

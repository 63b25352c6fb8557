//! Layers that a registry does not have, at the addresses that the manifest has for them (image-spec, "Descriptors", `urls`). Whoever makes
//! an image chooses the addresses, so they get no credentials, and only content with the right digest is used.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::blob::Target;
use super::endpoint::Endpoint;
use super::host::{Host, RedirectTokens};
use super::node_address::{host_and_port, may_lead_to};
use super::redirect::InsecureHosts;
use super::repository::Repository;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};

/// Returns the address of a layer, if it may be used: as for redirects, what a registry with TLS offers is not fetched without. User and
/// password in it are left out.
fn address(text: &str, is_plain: bool, hosts: &InsecureHosts) -> Option<Url> {
    let mut url = Url::parse(text).ok()?;
    let is_usable = match url.scheme() {
        "https" => true,
        "http" => is_plain || hosts.contain(&url),
        _ => false,
    };
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    (is_usable && url.has_host()).then_some(url)
}

impl Repository {
    /// Passes the bytes of a layer to the target, from the first of its addresses that has it. `missing` is the error of the registry.
    pub(super) async fn foreign_blob<S, F>(
        &self,
        descriptor: &Descriptor,
        target: &mut Target<'_, S>,
        missing: Error,
    ) -> Result<()>
    where
        S: FnMut(u64, Bytes) -> F + Send,
        F: Future<Output = bool> + Send,
    {
        let mut schemes = self.hosts.iter().map(|host| host.endpoint.base.scheme());
        let is_plain = schemes.all(|scheme| scheme == "http");
        let mut last = "no address that may be used".to_owned();
        for url in &descriptor.urls {
            let Some(url) = address(url, is_plain, &self.endpoints.insecure_hosts) else {
                continue;
            };
            let mut hosts = self.hosts.iter();
            if !hosts.any(|host| may_lead_to(&host.endpoint.base, &url)) {
                continue;
            }
            let Some(host) = self.foreign_host(&url)? else {
                continue;
            };
            match host.blob(&url, target, host.retries).await {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    last = match host.failed(failure) {
                        unreachable @ Error::RegistryUnavailable { .. } => unreachable.to_string(),
                        // What an answer says is not for the maker of the image, who may have named any server of the network.
                        _ => format!("{} does not send it", host.endpoint.host),
                    };
                }
            }
        }
        Err(and_elsewhere(missing, &last))
    }

    /// The host of an address. It has neither the headers nor the credentials of a registry, also if it is one.
    fn foreign_host(&self, url: &Url) -> Result<Option<Host>> {
        let Some(like) = self.hosts.last() else {
            return Ok(None);
        };
        let name = host_and_port(url);
        let Some(own) = self.endpoints.for_registry(&name, false)?.pop() else {
            return Ok(None);
        };
        let mut base = url.clone();
        base.set_path("");
        base.set_query(None);
        Ok(Some(Host {
            name: like.name.clone(),
            endpoint: Endpoint {
                base,
                host: name,
                headers: HeaderMap::new(),
                is_mirror: false,
                ..own
            },
            authorizer: like.authorizer.anonymous(),
            redirect_tokens: RedirectTokens::default(),
            config: Arc::clone(&like.config),
            retries: like.retries,
            is_down: AtomicBool::new(false),
            notes: Arc::default(),
        }))
    }
}

/// Adds the errors of the addresses to the error of the registry itself.
fn and_elsewhere(mut missing: Error, elsewhere: &str) -> Error {
    let of_registry = match &mut missing {
        Error::AllServersFailed { answers, .. } => {
            answers.last_mut().map(|answer| &mut answer.error)
        }
        only => Some(only),
    };
    if let Some(Error::NotFound { what }) = of_registry {
        *what = format!("{what}; and elsewhere: {elsewhere}");
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_the_web_and_not_less_safe_than_the_registry() {
        let named = InsecureHosts::new(&["named.example".to_owned()]);
        let at = |text, is_plain| address(text, is_plain, &named).map(|url| url.to_string());
        let https = "https://a.example/x?y=z";
        for is_plain in [false, true] {
            assert_eq!(at(https, is_plain).as_deref(), Some(https));
            assert_eq!(
                at("https://user:secret@a.example/x?y=z", is_plain).as_deref(),
                Some(https)
            );
            for wrong in [
                "",
                "/x",
                "a.example/x",
                "ftp://a.example/x",
                "file:///etc/passwd",
                "data:,x",
            ] {
                assert_eq!(at(wrong, is_plain), None, "{wrong}");
            }
        }
        assert_eq!(at("http://a.example/x", false), None);
        assert!(at("http://a.example/x", true).is_some());
        assert!(at("http://named.example/x", false).is_some());
    }
}

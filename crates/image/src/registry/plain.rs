//! Files of other servers than registries: signatures in lookaside stores.

use reqwest::{Method, Request, Url};

use super::body::read_body;
use super::client::RegistryClient;
use super::node_address::host_and_port;
use super::redirect::{MAX_REDIRECTS, RedirectRule};
use super::refusal::Refusal;
use super::request::{Attempt, Failure, Server, retry};
use super::retries::Retries;
use crate::error::{Error, Result};

impl RegistryClient {
    /// Gets a file of at most `most` bytes, without credentials; `None` if there is none. TLS is configured as for a registry on the host.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for something that is not a URL of the web; otherwise as for a registry.
    pub(crate) async fn get_plain(&self, url: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let parsed = Url::parse(url).ok();
        let Some(url) = parsed.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            let what = format!("signature store \"{url}\"");
            return Err(Error::invalid(what, "not a URL of the web"));
        };
        let retries = Retries::new(self.config.timeouts.retries, false);
        let got = retry(&self.config, retries, || self.get_once(url.clone(), most));
        match got.await {
            Err(Failure {
                error: Error::NotFound { .. },
                ..
            }) => Ok(None),
            got => got.map(Some).map_err(|failure| failure.error),
        }
    }

    async fn get_once(&self, mut url: Url, most: u64) -> Attempt<Vec<u8>> {
        let first = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let host = host_and_port(&url);
            let endpoint = self.endpoints.for_registry(&host, false)?.pop();
            let endpoint = endpoint.ok_or_else(|| Error::internal("a registry without hosts"))?;
            let request = Request::new(Method::GET, url.clone());
            let server = Server::at(&url, &endpoint);
            let response = server.send(request, &self.config.timeouts).await?;
            if response.status().is_success() {
                return read_body(response, most, &host, &self.config.timeouts).await;
            }
            if !response.status().is_redirection() {
                let refusal = Refusal::read(response, &self.config.timeouts).await;
                let refusal = refusal.map_words(|words| self.config.observer.server_words(words));
                return Err(refusal.failure(&host));
            }
            let rule = RedirectRule {
                first: &first,
                // Signatures are verified.
                is_checked: true,
                is_insecure: false,
                hosts: &self.endpoints.insecure_hosts,
            };
            let to = rule.target(&url, &response);
            url = to.map_err(|reason| Failure::bad(&host, reason))?;
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        Err(Failure::bad(
            &host,
            format!("more than {MAX_REDIRECTS} redirects"),
        ))
    }
}

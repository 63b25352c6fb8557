//! Files of other servers than registries: signatures in lookaside stores.

use reqwest::header::LOCATION;
use reqwest::{Method, Request, Url};

use super::RegistryClient;
use super::request::{Attempt, Failure, pause, read_body, refusal, send};
use crate::error::{Error, Result};

const MAX_REDIRECTS: usize = 5;

impl RegistryClient {
    /// Gets a file of at most `most` bytes, without credentials; `None` if there is none. TLS is configured as for a registry on the host.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for something that is not a URL of the web; otherwise as for a registry.
    pub(crate) async fn get_plain(&self, url: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let wrong = || Error::invalid(format!("signature store \"{url}\""), "not a URL of the web");
        let url = Url::parse(url).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong());
        }
        let mut tries = 0;
        loop {
            match self.get_once(url.clone(), most).await {
                Ok(found) => return Ok(Some(found)),
                Err(Failure {
                    error: Error::NotFound { .. },
                    ..
                }) => return Ok(None),
                Err(Failure {
                    retry: Some(retry), ..
                }) if tries < self.timeouts.retries => {
                    pause(&self.timeouts, tries, retry).await;
                    tries += 1;
                }
                Err(failure) => return Err(failure.error),
            }
        }
    }

    async fn get_once(&self, mut url: Url, most: u64) -> Attempt<Vec<u8>> {
        let stall = self.timeouts.stall;
        for _ in 0..=MAX_REDIRECTS {
            let host = match (url.host_str(), url.port()) {
                (Some(host), Some(port)) => format!("{host}:{port}"),
                (host, _) => host.unwrap_or_default().to_owned(),
            };
            let endpoint = self.endpoints.of(&host, false)?.pop();
            let endpoint = endpoint.ok_or_else(|| Error::internal("a registry without hosts"))?;
            let request = Request::new(Method::GET, url.clone());
            let response = send(&endpoint.client, request, &host, stall).await?;
            if response.status().is_success() {
                return read_body(response, most, &host, stall).await;
            }
            if !response.status().is_redirection() {
                let (response, said) = refusal(response, &host, stall).await;
                return Err(Failure::of_status(&response, &host, &said));
            }
            let to = response.headers().get(LOCATION);
            let to = to.and_then(|to| url.join(to.to_str().ok()?).ok());
            let to = to.filter(|to| match url.scheme() {
                // What was asked for with TLS is not fetched without.
                "https" => to.scheme() == "https",
                _ => matches!(to.scheme(), "http" | "https"),
            });
            url = to.ok_or_else(|| Failure::bad(&host, "a redirect to nowhere"))?;
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        Err(Failure::bad(
            &host,
            format!("more than {MAX_REDIRECTS} redirects"),
        ))
    }
}

//! A GET or HEAD request to one host: redirects, and which credentials each target gets.

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE};
use reqwest::{Method, Request, Response, StatusCode, Url};

use super::challenge::Challenge;
use super::host::Host;
use super::node_address::host_and_port;
use super::rate_limit;
use super::redirect::{MAX_REDIRECTS, RedirectRule};
use super::refusal::Refusal;
use super::request::{Attempt, Failure, Server};
use super::secrets::without;
use super::warning::warnings;
use crate::error::Error;

/// Maximum number of authentications per request to the host: for a first token, and for one that replaces a token that
/// has just expired. The same number applies to the target of a redirect.
const MAX_RENEWALS: usize = 2;

/// What is requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GetRequest<'a> {
    pub(super) accept: Option<&'a str>,
    /// The offset of the first byte.
    pub(super) from: u64,
    /// The offset after the last byte, unless all are wanted.
    pub(super) to: Option<u64>,
    /// Whether the content is compared with a digest that is known already.
    pub(super) is_checked: bool,
    /// Whether only the headers are wanted (HEAD).
    pub(super) is_head: bool,
}

impl Host {
    /// Sends the request, and again after a challenge. The target of a redirect gets an anonymous token only, because the
    /// credentials are for the host (containerd's resolver does the same).
    pub(super) async fn get(&self, url: &Url, get: GetRequest<'_>) -> Attempt<Response> {
        let mut left = [MAX_RENEWALS; 2];
        loop {
            let (used, response) = self.follow(url, get).await?;
            let status = response.status();
            if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
                return Ok(response);
            }
            let answered = response.url().clone();
            let challenge = Challenge::preferred(response.headers());
            let refusal = Refusal::read(response, &self.config.timeouts).await;
            let refusal = self.hide_secrets(refusal).await;
            if status != StatusCode::UNAUTHORIZED {
                return Err(refusal.failure(&self.server_of(&answered, url)));
            }
            let is_own = answered.origin() == url.origin();
            let left = &mut left[usize::from(is_own)];
            if *left == 0 {
                let (host, said) = (host_and_port(&answered), refusal.said());
                let mut reason = "the credentials were refused".to_owned();
                reason.push_str(&said);
                return Err(Error::Unauthenticated { host, reason }.into());
            }
            *left -= 1;
            let renewed = if is_own {
                let server = Server::new(&self.endpoint);
                self.authorizer.renew(&server, used, challenge).await
            } else {
                let server = Server::at(&answered, &self.endpoint);
                let other = self
                    .redirect_tokens
                    .get_or_insert(&answered, || self.authorizer.anonymous());
                other.renew(&server, used, challenge).await
            };
            renewed.map_err(|failure| said_by(failure, &host_and_port(&answered), &refusal))?;
        }
    }

    /// Hides the secrets of the request that a server repeats.
    async fn hide_secrets(&self, refusal: Refusal) -> Refusal {
        let secrets = self.secrets().await;
        refusal.map_words(|words| self.config.observer.server_words(without(words, &secrets)))
    }

    async fn secrets(&self) -> Vec<String> {
        let mut secrets = self.authorizer.secrets().await;
        let headers = self.endpoint.headers.values();
        secrets.extend(headers.filter_map(|value| value.to_str().ok().map(str::to_owned)));
        secrets
    }

    /// Notes what a server warns of in a response, and its limit of requests.
    async fn note_headers(&self, response: &Response, server: &str) {
        if let Some(limit) = rate_limit::parse(response.headers()) {
            self.config.observer.rate_limit(self.registry(), &limit);
            self.notes.set_limit(server, limit);
        }
        let warnings = warnings(response.headers());
        if warnings.is_empty() {
            return;
        }
        let secrets = self.secrets().await;
        for warning in warnings {
            let warning = self
                .config
                .observer
                .server_words(without(warning, &secrets));
            self.notes.add(format!("{server} warns: \"{warning}\""));
        }
    }

    /// The server of a URL for errors: this host, or another that the request for `first` was redirected to.
    fn server_of(&self, url: &Url, first: &Url) -> String {
        let own = &self.endpoint.host;
        if url.origin() == first.origin() {
            return own.clone();
        }
        let other = host_and_port(url);
        format!("{other}, to which {own} redirects")
    }

    /// Follows redirects. Credentials and headers go only to the host they are for. Also returns the generation of the
    /// authorization that was sent.
    async fn follow(&self, url: &Url, get: GetRequest<'_>) -> Attempt<(u64, Response)> {
        let host = &self.endpoint.host;
        let mut target = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = HeaderMap::new();
            let (used, authorization) = if target.origin() == url.origin() {
                headers.clone_from(&self.endpoint.headers);
                self.authorizer.current().await
            } else if let Some(other) = self.redirect_tokens.get(&target) {
                other.current().await
            } else {
                (0, None)
            };
            headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
            if let Some(accept) = get.accept {
                let accept =
                    HeaderValue::try_from(accept).map_err(|_| Failure::bad(host, "accept"))?;
                headers.insert(ACCEPT, accept);
            }
            if get.from > 0 || get.to.is_some() {
                // RFC 9110, 14.1.2: the last position is included.
                let last = get.to.map(|to| to.saturating_sub(1).to_string());
                let last = last.unwrap_or_default();
                let range = HeaderValue::try_from(format!("bytes={}-{last}", get.from));
                headers.insert(RANGE, range.map_err(|_| Failure::bad(host, "range"))?);
            }
            let method = if get.is_head {
                Method::HEAD
            } else {
                Method::GET
            };
            let mut request = Request::new(method, target.clone());
            *request.headers_mut() = headers;
            let server = self.server_of(&target, url);
            let server = Server::new(&self.endpoint).named(&target, server);
            let response = server.send(request, &self.config.timeouts).await?;
            self.note_headers(&response, &server.host).await;
            if !response.status().is_redirection() {
                return Ok((used, response));
            }
            let rule = RedirectRule {
                first: url,
                is_checked: get.is_checked,
                is_insecure: self.endpoint.is_insecure,
                hosts: &self.endpoint.insecure_hosts,
            };
            let next = rule.target(&target, &response);
            target = next.map_err(|reason| Failure::bad(host, reason))?;
        }
        Err(Failure::bad(
            host,
            format!("more than {MAX_REDIRECTS} redirects"),
        ))
    }
}

/// Adds what a server says to an error about its credentials.
fn said_by(mut failure: Failure, server: &str, refusal: &Refusal) -> Failure {
    if let Error::Unauthenticated { host, reason } = &mut failure.error
        && host == server
    {
        reason.push_str(&refusal.said());
    }
    failure
}

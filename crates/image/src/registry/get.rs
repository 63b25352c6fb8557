//! A GET request to one host: redirects, and which credentials each target gets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Method, Request, Response, StatusCode, Url};

use super::Host;
use super::auth::{Authorizer, Challenger};
use super::challenge::Challenge;
use super::node_address::may_lead_to;
use super::request::{Attempt, Failure, refusal, send};
use crate::error::Error;
use crate::progress::lock;

const MAX_REDIRECTS: usize = 5;
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
}

/// Anonymous tokens for the targets of redirects, by origin.
#[derive(Debug, Default)]
pub(super) struct RedirectTokens(Mutex<HashMap<String, Arc<Authorizer>>>);

impl RedirectTokens {
    /// The authorizer of this URL's origin, if that has sent a challenge before.
    fn of(&self, url: &Url) -> Option<Arc<Authorizer>> {
        let all = lock(&self.0);
        all.get(&url.origin().ascii_serialization()).cloned()
    }

    /// Like [`Self::of`], created if missing.
    fn get_or_insert(&self, url: &Url, make: impl FnOnce() -> Authorizer) -> Arc<Authorizer> {
        let mut all = lock(&self.0);
        let one = all.entry(url.origin().ascii_serialization());
        Arc::clone(one.or_insert_with(|| Arc::new(make())))
    }
}

impl Host {
    /// Sends the request, and again after a challenge. The target of a redirect gets an anonymous token only, because the
    /// credentials are for the host (containerd's resolver does the same).
    pub(super) async fn get(&self, url: &Url, get: GetRequest<'_>) -> Attempt<Response> {
        let mut left = [MAX_RENEWALS; 2];
        loop {
            let (used, response) = self.follow(url, get).await?;
            match response.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
                StatusCode::UNAUTHORIZED => {
                    let challenge = Challenge::of(response.headers());
                    let is_own = response.url().origin() == url.origin();
                    let left = &mut left[usize::from(is_own)];
                    if *left == 0 {
                        let host = Challenger::of(response.url(), &self.endpoint.client).host;
                        let reason = "the credentials were refused".to_owned();
                        return Err(Error::Unauthenticated { host, reason }.into());
                    }
                    *left -= 1;
                    if is_own {
                        let challenger = self.endpoint.challenger();
                        self.authorizer.renew(&challenger, used, challenge).await?;
                    } else {
                        let challenger = Challenger::of(response.url(), &self.endpoint.client);
                        let anonymous = || self.authorizer.anonymous();
                        let other = self
                            .redirect_tokens
                            .get_or_insert(response.url(), anonymous);
                        other.renew(&challenger, used, challenge).await?;
                    }
                }
                _ => {
                    let host = self.server_of(response.url(), url);
                    let status_only = Failure::of_status(&response, &host, "");
                    if status_only.retry.is_some() {
                        return Err(status_only);
                    }
                    let (head, message) = refusal(response, &host, self.timeouts.stall).await;
                    return Err(Failure::of_status(&head, &host, &message));
                }
            }
        }
    }

    /// The server of a URL for errors: this host, or another that the request for `first` was redirected to.
    fn server_of(&self, url: &Url, first: &Url) -> String {
        let own = &self.endpoint.host;
        match url.origin() == first.origin() {
            true => own.clone(),
            false => {
                let other = Challenger::of(url, &self.endpoint.client).host;
                format!("{other}, to which {own} redirects")
            }
        }
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
            } else if let Some(other) = self.redirect_tokens.of(&target) {
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
            let mut request = Request::new(Method::GET, target.clone());
            *request.headers_mut() = headers;
            let server = self.server_of(&target, url);
            let response =
                send(&self.endpoint.client, request, &server, self.timeouts.stall).await?;
            if !response.status().is_redirection() {
                return Ok((used, response));
            }
            let location = response
                .headers()
                .get(LOCATION)
                .and_then(|l| l.to_str().ok());
            let next = location.and_then(|location| target.join(location).ok());
            let next = next.ok_or_else(|| Failure::bad(host, "a redirect to nowhere"))?;
            let is_worse = target.scheme() == "https" && next.scheme() != "https";
            if is_worse || !matches!(next.scheme(), "http" | "https") {
                return Err(Failure::bad(host, "a redirect away from https"));
            }
            if !may_lead_to(url, &next) {
                return Err(Failure::bad(host, "a redirect to an address of this node"));
            }
            target = next;
        }
        Err(Failure::bad(
            host,
            format!("more than {MAX_REDIRECTS} redirects"),
        ))
    }
}

//! One request to one host: where it leads, and who is shown what on the way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Method, Request, Response, StatusCode, Url};

use super::Host;
use super::auth::{Authorizer, Place};
use super::challenge::Challenge;
use super::request::{Failure, Tried, refusal, send};
use crate::runtime::image::error::Error;
use crate::runtime::image::progress::lock;

const MAX_REDIRECTS: usize = 5;
/// New things to show to the host for one request: a first token, and one in place of one that has just expired. As many to
/// where it leads.
const MAX_RENEWALS: usize = 2;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ask<'a> {
    pub(super) accept: Option<&'a str>,
    /// The first byte that is wanted.
    pub(super) from: u64,
}

/// What others than the host, where it leads, were shown last: tokens for anybody, by origin.
#[derive(Debug, Default)]
pub(super) struct Others(Mutex<HashMap<String, Arc<Authorizer>>>);

impl Others {
    /// Who shows us at this address; nobody before it has asked.
    fn of(&self, url: &Url) -> Option<Arc<Authorizer>> {
        let all = lock(&self.0);
        all.get(&url.origin().ascii_serialization()).cloned()
    }

    /// The same, and from now on there is one.
    fn made(&self, url: &Url, make: impl FnOnce() -> Authorizer) -> Arc<Authorizer> {
        let mut all = lock(&self.0);
        let one = all.entry(url.origin().ascii_serialization());
        Arc::clone(one.or_insert_with(|| Arc::new(make())))
    }
}

impl Host {
    /// Asks once, and again if the host wants to know who asks, or another to which it leads: that one is asked for a token as
    /// anybody may have it, since what we have is for the host (containerd's resolver does the same).
    pub(super) async fn ask(&self, url: &Url, ask: Ask<'_>) -> Tried<Response> {
        let mut left = [MAX_RENEWALS; 2];
        loop {
            let (used, response) = self.follow(url, ask).await?;
            let host = &self.endpoint.host;
            match response.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => return Ok(response),
                StatusCode::UNAUTHORIZED => {
                    let challenge = Challenge::of(response.headers());
                    let is_own = response.url().origin() == url.origin();
                    let left = &mut left[usize::from(is_own)];
                    if *left == 0 {
                        let host = Place::of(response.url(), &self.endpoint.client).host;
                        let reason = "the credentials were refused".to_owned();
                        return Err(Error::Unauthenticated { host, reason }.into());
                    }
                    *left -= 1;
                    if is_own {
                        let place = self.endpoint.place();
                        self.authorizer.renew(&place, used, challenge).await?;
                    } else {
                        let place = Place::of(response.url(), &self.endpoint.client);
                        let nobody = || self.authorizer.nobody();
                        let other = self.others.made(response.url(), nobody);
                        other.renew(&place, used, challenge).await?;
                    }
                }
                _ => {
                    let status_only = Failure::of_status(&response, host, "");
                    if status_only.retry.is_some() {
                        return Err(status_only);
                    }
                    let (parts, said) = refusal(response, host, self.patience.stall).await;
                    return Err(Failure::of_status(&parts, host, &said));
                }
            }
        }
    }

    /// Follows redirects. What is ours goes only to the host that it is for. Also which of the things to show was shown to who
    /// answers.
    async fn follow(&self, url: &Url, ask: Ask<'_>) -> Tried<(u64, Response)> {
        let host = &self.endpoint.host;
        let mut target = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = HeaderMap::new();
            let (used, authorization) = if target.origin() == url.origin() {
                headers.clone_from(&self.endpoint.headers);
                self.authorizer.current().await
            } else if let Some(other) = self.others.of(&target) {
                other.current().await
            } else {
                (0, None)
            };
            headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
            if let Some(accept) = ask.accept {
                let accept =
                    HeaderValue::try_from(accept).map_err(|_| Failure::bad(host, "accept"))?;
                headers.insert(ACCEPT, accept);
            }
            if ask.from > 0 {
                let range = HeaderValue::try_from(format!("bytes={}-", ask.from));
                headers.insert(RANGE, range.map_err(|_| Failure::bad(host, "range"))?);
            }
            let mut request = Request::new(Method::GET, target.clone());
            *request.headers_mut() = headers;
            let response = send(&self.endpoint.client, request, host, self.patience.stall).await?;
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
            target = next;
        }
        Err(Failure::bad(
            host,
            format!("more than {MAX_REDIRECTS} redirects"),
        ))
    }
}

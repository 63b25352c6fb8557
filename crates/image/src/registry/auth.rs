//! Authentication to one host. Credentials are sent only after a challenge.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::body::read_body;
use super::challenge::Challenge;
use super::node_address::{host_and_port, may_lead_to};
use super::refusal::Refusal;
use super::request::{Failure, Server};
use super::secrets::without;
use crate::config::ImageStoreConfig;
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::{docker_config, json};

const MAX_TOKEN: u64 = 1 << 20;
const UNUSABLE: &str = "the credentials cannot be sent";

/// The `Authorization` of one host, shared by all requests of a pull.
#[derive(Debug)]
pub(super) struct Authorizer {
    config: Arc<ImageStoreConfig>,
    given: Option<Credentials>,
    /// The name under which credentials for this host are stored, if it may get them.
    registry: Option<String>,
    repository: String,
    state: Mutex<State>,
    /// Held while a token is requested. A token service that took too long, and when: requests that waited for it meanwhile need not
    /// wait for it again.
    silence: Mutex<Option<(Instant, Failure)>>,
}

#[derive(Default)]
struct State {
    /// Incremented with each new header, so that only the first of many rejected requests renews it.
    generation: u64,
    header: Option<HeaderValue>,
    credentials: Option<Option<Credentials>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Token {
    token: String,
    access_token: String,
}

impl Authorizer {
    pub(super) fn new(
        config: Arc<ImageStoreConfig>,
        given: Option<Credentials>,
        registry: Option<String>,
        repository: String,
    ) -> Self {
        Self {
            config,
            given,
            registry,
            repository,
            state: Mutex::default(),
            silence: Mutex::default(),
        }
    }

    /// Returns an authorizer without credentials for the same repository.
    pub(super) fn anonymous(&self) -> Self {
        Self::new(
            Arc::clone(&self.config),
            None,
            None,
            self.repository.clone(),
        )
    }

    /// The current header and its generation.
    pub(super) async fn current(&self) -> (u64, Option<HeaderValue>) {
        let state = self.state.lock().await;
        (state.generation, state.header.clone())
    }

    /// The secrets that requests were sent with so far.
    pub(super) async fn secrets(&self) -> Vec<String> {
        let state = self.state.lock().await;
        let known = [
            self.given.as_ref(),
            state.credentials.iter().flatten().next(),
        ];
        let known = known.into_iter().flatten();
        let mut secrets: Vec<_> = known.flat_map(Credentials::secrets).collect();
        let header = state.header.as_ref().and_then(|value| value.to_str().ok());
        let value = header.and_then(|value| value.split_once(' '));
        secrets.extend(value.map(|(_scheme, value)| value.to_owned()));
        secrets
    }

    /// Obtains a new header after a 401, unless another request has already replaced the one of generation `used`.
    pub(super) async fn renew(
        &self,
        challenger: &Server<'_>,
        used: u64,
        challenge: Option<Challenge>,
    ) -> std::result::Result<(), Failure> {
        let arrived = Instant::now();
        let mut silence = self.silence.lock().await;
        if self.state.lock().await.generation != used {
            return Ok(());
        }
        if let Some((ended, failure)) = &*silence
            && *ended >= arrived
        {
            return Err(failure.clone());
        }
        let host = &challenger.host;
        let challenge =
            challenge.ok_or_else(|| unauthenticated(host, "it does not say how to log in"))?;
        let credentials = self.credentials().await?;
        let header = match (&challenge, &credentials) {
            (Challenge::Basic, Some(Credentials::Basic { username, password })) => {
                basic(username, password)
            }
            (Challenge::Basic, given) => {
                let given = match given {
                    Some(_) => "a token is given",
                    None => "none are given",
                };
                let reason = format!("it needs a user and a password, and {given}");
                return Err(unauthenticated(host, &reason));
            }
            (Challenge::Bearer { .. }, Some(Credentials::RegistryToken(token))) => bearer(token),
            (
                Challenge::Bearer {
                    realm,
                    service,
                    scope,
                },
                credentials,
            ) => {
                let own = format!("repository:{}:pull", self.repository);
                let scope = if scope.is_empty() { &own } else { scope };
                let wanted = (service.as_str(), scope.as_str());
                let token = self.token(challenger, realm, wanted, credentials.as_ref());
                let token = token.await.inspect_err(|failure| {
                    if failure.is_silence() {
                        *silence = Some((Instant::now(), failure.clone()));
                    }
                })?;
                bearer(&token)
            }
        };
        let header = header.ok_or_else(|| unauthenticated(host, UNUSABLE))?;
        let mut state = self.state.lock().await;
        if state.header.as_ref() == Some(&header) {
            return Err(unauthenticated(host, "the credentials were refused"));
        }
        state.header = Some(header);
        state.generation += 1;
        Ok(())
    }

    async fn credentials(&self) -> Result<Option<Credentials>> {
        if let Some(given) = &self.given {
            return Ok(Some(given.clone()));
        }
        if let Some(found) = &self.state.lock().await.credentials {
            return Ok(found.clone());
        }
        let found = match (&self.config.docker_config, &self.registry) {
            (Some(path), Some(registry)) => {
                let timeout = self.config.timeouts.helper;
                docker_config::look_up(path, registry, &self.repository, timeout).await?
            }
            _ => None,
        };
        self.state.lock().await.credentials = Some(found.clone());
        Ok(found)
    }

    /// Requests a token from the token service (distribution: "Token Authentication Specification", and its OAuth2 form).
    async fn token(
        &self,
        challenger: &Server<'_>,
        realm: &str,
        (service, scope): (&str, &str),
        credentials: Option<&Credentials>,
    ) -> std::result::Result<String, Failure> {
        let url = Url::parse(realm)
            .map_err(|_| bad_response(challenger, "the address of its token service is none"))?;
        let is_plain = challenger.url.scheme() == "http";
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_plain);
        if !is_safe {
            return Err(
                bad_response(challenger, "its token service is not reached by https").into(),
            );
        }
        if !may_lead_to(&challenger.url, &url) {
            return Err(
                bad_response(challenger, "its token service is an address of this node").into(),
            );
        }
        let host = format!("token service {}", host_and_port(&url));
        let server = challenger.named(&url, host.clone());
        let request = match credentials {
            Some(Credentials::IdentityToken(token)) => {
                let mut user_agent = self.config.user_agent.split('/');
                let body = form(&[
                    ("grant_type", "refresh_token"),
                    ("service", service),
                    ("scope", scope),
                    ("client_id", user_agent.next().unwrap_or_default()),
                    ("refresh_token", token),
                ]);
                let post = server.post(url);
                post.header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(body)
            }
            other => {
                let get = server.get(with_query(url, service, scope));
                match other {
                    Some(Credentials::Basic { username, password }) => {
                        let header = basic(username, password);
                        get.header(
                            AUTHORIZATION,
                            header.ok_or_else(|| unauthenticated(&challenger.host, UNUSABLE))?,
                        )
                    }
                    _ => get,
                }
            }
        };
        let request = request.build();
        let request = request.map_err(|_| unauthenticated(&challenger.host, UNUSABLE))?;
        let response = server.send(request, &self.config.timeouts).await?;
        if response.status() != StatusCode::OK {
            let secrets = credentials.map(Credentials::secrets).unwrap_or_default();
            let refusal = Refusal::read(response, &self.config.timeouts).await;
            let refusal = refusal
                .map_words(|words| self.config.observer.server_words(without(words, &secrets)));
            if refusal.status().is_client_error() && !refusal.is_temporary() {
                let reason = format!("no token: {}", refusal.reason());
                return Err(unauthenticated(&host, &reason));
            }
            return Err(refusal.failure(&host));
        }
        let body = read_body(response, MAX_TOKEN, &host, &self.config.timeouts).await?;
        let token: Token = json::from_slice(&body)
            .map_err(|_| bad_response(challenger, "its token service sends no JSON"))?;
        let token = [token.token, token.access_token]
            .into_iter()
            .find(|token| !token.is_empty());
        token.ok_or_else(|| bad_response(challenger, "its token service sends no token").into())
    }
}

/// The address of a token.
fn with_query(mut url: Url, service: &str, scope: &str) -> Url {
    let mut query = url.query_pairs_mut();
    if !service.is_empty() {
        query.append_pair("service", service);
    }
    query.extend_pairs(scope.split(' ').map(|scope| ("scope", scope)));
    drop(query);
    url
}

fn bad_response(challenger: &Server<'_>, reason: &str) -> Error {
    Error::BadResponse {
        host: challenger.host.clone(),
        reason: reason.to_owned(),
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(k, v)| format!("{}={}", percent_encoded(k), percent_encoded(v)))
        .collect();
    pairs.join("&")
}

fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

fn basic(username: &str, password: &str) -> Option<HeaderValue> {
    secret(format!(
        "Basic {}",
        STANDARD.encode(format!("{username}:{password}"))
    ))
}

fn bearer(token: &str) -> Option<HeaderValue> {
    secret(format!("Bearer {token}"))
}

fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn unauthenticated(host: &str, reason: &str) -> Failure {
    let (host, reason) = (host.to_owned(), reason.to_owned());
    Error::Unauthenticated { host, reason }.into()
}

//! Authentication to one host. Credentials are sent only after a challenge.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::Challenge;
use super::node_address::may_lead_to;
use super::request::{Failure, read_body, send};
use crate::credentials::Credentials;
use crate::docker_config;
use crate::error::{Error, Result};
use crate::json;

const MAX_TOKEN: u64 = 1 << 20;

/// The `Authorization` of one host, shared by all requests of a pull.
#[derive(Debug)]
pub(super) struct Authorizer {
    given: Option<Credentials>,
    docker_config: Option<PathBuf>,
    client_id: Arc<str>,
    /// The name under which credentials for this host are stored.
    registry: String,
    repository: String,
    scope: String,
    helper_timeout: Duration,
    stall: Duration,
    state: Mutex<State>,
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

/// The server that sent a challenge.
#[derive(Debug)]
pub(super) struct Challenger<'a> {
    pub(super) client: &'a Client,
    /// Host and port, for errors.
    pub(super) host: String,
    /// The address. Only a server without TLS may have a token service without it.
    pub(super) url: Url,
}

impl<'a> Challenger<'a> {
    /// Returns the server of a URL. Only the host appears in errors: the rest of the URL may be as secret as a password.
    pub(super) fn of(url: &Url, client: &'a Client) -> Self {
        let mut host = url.host_str().unwrap_or_default().to_owned();
        host.extend(url.port().map(|port| format!(":{port}")));
        Self {
            client,
            host,
            url: url.clone(),
        }
    }
}

/// The parameters of an [`Authorizer`].
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) given: Option<Credentials>,
    pub(super) docker_config: Option<PathBuf>,
    pub(super) client_id: Arc<str>,
    pub(super) registry: String,
    pub(super) repository: String,
    pub(super) helper_timeout: Duration,
    pub(super) stall: Duration,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Token {
    token: String,
    access_token: String,
}

impl Authorizer {
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            given: identity.given,
            docker_config: identity.docker_config,
            client_id: identity.client_id,
            registry: identity.registry,
            scope: format!("repository:{}:pull", identity.repository),
            repository: identity.repository,
            helper_timeout: identity.helper_timeout,
            stall: identity.stall,
            state: Mutex::default(),
        }
    }

    /// Returns an authorizer without credentials for the same repository.
    pub(super) fn anonymous(&self) -> Self {
        Self {
            given: None,
            docker_config: None,
            client_id: Arc::clone(&self.client_id),
            registry: String::new(),
            repository: self.repository.clone(),
            scope: self.scope.clone(),
            helper_timeout: self.helper_timeout,
            stall: self.stall,
            state: Mutex::default(),
        }
    }

    /// The current header and its generation.
    pub(super) async fn current(&self) -> (u64, Option<HeaderValue>) {
        let state = self.state.lock().await;
        (state.generation, state.header.clone())
    }

    /// Obtains a new header after a 401, unless another request has already replaced the one of generation `used`.
    pub(super) async fn renew(
        &self,
        challenger: &Challenger<'_>,
        used: u64,
        challenge: Option<Challenge>,
    ) -> std::result::Result<(), Failure> {
        let mut state = self.state.lock().await;
        if state.generation != used {
            return Ok(());
        }
        let refused = |reason: &str| unauthenticated(&challenger.host, reason);
        let challenge = challenge.ok_or_else(|| refused("it does not say how to log in"))?;
        let credentials = self.credentials(&mut state).await?;
        let header = match (&challenge, &credentials) {
            (Challenge::Basic, Some(Credentials::Basic { username, password })) => {
                basic(username, password)
            }
            (Challenge::Basic, None) => {
                return Err(refused("it wants a user and a password, there are none"));
            }
            (Challenge::Basic, Some(_)) => {
                return Err(refused("it wants a user and a password, there is a token"));
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
                let scope = if scope.is_empty() { &self.scope } else { scope };
                let request = TokenRequest {
                    client_id: &self.client_id,
                    realm,
                    service,
                    scope,
                };
                let token = self
                    .token(challenger, &request, credentials.as_ref())
                    .await?;
                bearer(&token)
            }
        };
        let header = header.ok_or_else(|| refused("the credentials cannot be sent"))?;
        if state.header.as_ref() == Some(&header) {
            return Err(refused("the credentials were refused"));
        }
        state.header = Some(header);
        state.generation += 1;
        Ok(())
    }

    async fn credentials(&self, state: &mut State) -> Result<Option<Credentials>> {
        if let Some(given) = &self.given {
            return Ok(Some(given.clone()));
        }
        if let Some(found) = &state.credentials {
            return Ok(found.clone());
        }
        let found = match &self.docker_config {
            Some(path) => {
                let repository = &self.repository;
                docker_config::look_up(path, &self.registry, repository, self.helper_timeout)
                    .await?
            }
            None => None,
        };
        state.credentials = Some(found.clone());
        Ok(found)
    }

    /// Requests a token from the token service (distribution: "Token Authentication Specification", and its OAuth2 form).
    async fn token(
        &self,
        challenger: &Challenger<'_>,
        request: &TokenRequest<'_>,
        credentials: Option<&Credentials>,
    ) -> std::result::Result<String, Failure> {
        let bad = |reason: &str| Error::BadResponse {
            host: challenger.host.clone(),
            reason: reason.to_owned(),
        };
        let url = Url::parse(request.realm)
            .map_err(|_| bad("the address of its token service is none"))?;
        let is_plain = challenger.url.scheme() == "http";
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_plain);
        if !is_safe {
            return Err(bad("its token service is not reached by https").into());
        }
        if !may_lead_to(&challenger.url, &url) {
            return Err(bad("its token service is an address of this node").into());
        }
        let host = Challenger::of(&url, challenger.client).host;
        let host = format!("token service {host}");
        let http = request.http(challenger, url, credentials)?;
        let response = send(challenger.client, http, &host, self.stall).await?;
        let status = response.status();
        if status.is_client_error()
            && !matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
            )
        {
            return Err(unauthenticated(&host, &format!("no token: {status}")));
        }
        if status != StatusCode::OK {
            return Err(Failure::of_status(&response, &host, ""));
        }
        let body = read_body(response, MAX_TOKEN, &host, self.stall).await?;
        let token: Token =
            json::from_slice(&body).map_err(|_| bad("its token service sends no JSON"))?;
        let token = [token.token, token.access_token]
            .into_iter()
            .find(|token| !token.is_empty());
        token.ok_or_else(|| bad("its token service sends no token").into())
    }
}

struct TokenRequest<'a> {
    client_id: &'a str,
    realm: &'a str,
    service: &'a str,
    scope: &'a str,
}

impl TokenRequest<'_> {
    fn http(
        &self,
        challenger: &Challenger<'_>,
        mut url: Url,
        credentials: Option<&Credentials>,
    ) -> std::result::Result<reqwest::Request, Failure> {
        let unusable = || unauthenticated(&challenger.host, "the credentials cannot be sent");
        let built = match credentials {
            Some(Credentials::IdentityToken(token)) => {
                let body = form(&[
                    ("grant_type", "refresh_token"),
                    ("service", self.service),
                    ("scope", self.scope),
                    ("client_id", self.client_id),
                    ("refresh_token", token),
                ]);
                let post = challenger.client.post(url);
                post.header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(body)
            }
            other => {
                let mut query = url.query_pairs_mut();
                if !self.service.is_empty() {
                    query.append_pair("service", self.service);
                }
                for scope in self.scope.split(' ') {
                    query.append_pair("scope", scope);
                }
                drop(query);
                let get = challenger.client.get(url);
                match other {
                    Some(Credentials::Basic { username, password }) => get.header(
                        AUTHORIZATION,
                        basic(username, password).ok_or_else(unusable)?,
                    ),
                    _ => get,
                }
            }
        };
        built.build().map_err(|_| unusable())
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(k, v)| format!("{}={}", encode(k), encode(v)))
        .collect();
    pairs.join("&")
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

//! How one host is shown who asks. Nothing is sent before the host has asked for it.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::challenge::Challenge;
use super::request::{Failure, read_body, send};
use crate::runtime::image::credentials::Credentials;
use crate::runtime::image::docker_config;
use crate::runtime::image::error::{Error, Result};

const MAX_TOKEN: u64 = 1 << 20;

/// What one host was shown last, shared by all requests of a pull.
#[derive(Debug)]
pub(super) struct Authorizer {
    given: Option<Credentials>,
    docker_config: Option<PathBuf>,
    /// The name under which credentials for this host are kept.
    registry: String,
    scope: String,
    helper_patience: Duration,
    stall: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Grows with each new header, so that of many refused requests only the first asks for a new one.
    generation: u64,
    header: Option<HeaderValue>,
    credentials: Option<Option<Credentials>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// Who wants to know who asks.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) client: &'a Client,
    /// Host and port, for errors.
    pub(super) host: String,
    /// Whether it is reached without TLS: then its token service may be, too.
    pub(super) is_plain: bool,
}

impl<'a> Place<'a> {
    /// Of an address, of which no more is told than the host: the rest may be as good as a password.
    pub(super) fn of(url: &Url, client: &'a Client) -> Self {
        let mut host = url.host_str().unwrap_or_default().to_owned();
        host.extend(url.port().map(|port| format!(":{port}")));
        Self {
            client,
            host,
            is_plain: url.scheme() == "http",
        }
    }
}

/// What an authorizer is made of.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) given: Option<Credentials>,
    pub(super) docker_config: Option<PathBuf>,
    pub(super) registry: String,
    pub(super) repository: String,
    pub(super) helper_patience: Duration,
    pub(super) stall: Duration,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl Authorizer {
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            given: identity.given,
            docker_config: identity.docker_config,
            registry: identity.registry,
            scope: format!("repository:{}:pull", identity.repository),
            helper_patience: identity.helper_patience,
            stall: identity.stall,
            state: Mutex::default(),
        }
    }

    /// One without credentials, for the same repository.
    pub(super) fn nobody(&self) -> Self {
        Self {
            given: None,
            docker_config: None,
            registry: String::new(),
            scope: self.scope.clone(),
            helper_patience: self.helper_patience,
            stall: self.stall,
            state: Mutex::default(),
        }
    }

    /// What to send now, and which one that is.
    pub(super) async fn current(&self) -> (u64, Option<HeaderValue>) {
        let state = self.state.lock().await;
        (state.generation, state.header.clone())
    }

    /// After a 401: gets something new to show, unless somebody has since `used`.
    pub(super) async fn renew(
        &self,
        place: &Place<'_>,
        used: u64,
        challenge: Option<Challenge>,
    ) -> std::result::Result<(), Failure> {
        let mut state = self.state.lock().await;
        if state.generation != used {
            return Ok(());
        }
        let refused = |reason: &str| unauthenticated(&place.host, reason);
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
                    realm,
                    service,
                    scope,
                };
                let token = self.token(place, &request, credentials.as_ref()).await?;
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
                docker_config::look_up(path, &self.registry, self.helper_patience).await?
            }
            None => None,
        };
        state.credentials = Some(found.clone());
        Ok(found)
    }

    /// Asks a token service (distribution: "Token Authentication Specification", and its OAuth2 form).
    async fn token(
        &self,
        place: &Place<'_>,
        request: &TokenRequest<'_>,
        credentials: Option<&Credentials>,
    ) -> std::result::Result<String, Failure> {
        let bad = |reason: &str| Error::BadAnswer {
            host: place.host.clone(),
            reason: reason.to_owned(),
        };
        let url = Url::parse(request.realm)
            .map_err(|_| bad("the address of its token service is none"))?;
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && place.is_plain);
        if !is_safe {
            return Err(bad("its token service is not reached by https").into());
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let http = request.http(place, url, credentials)?;
        let response = send(place.client, http, &host, self.stall).await?;
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
            serde_json::from_slice(&body).map_err(|_| bad("its token service sends no JSON"))?;
        let token = [token.token, token.access_token]
            .into_iter()
            .find(|token| !token.is_empty());
        token.ok_or_else(|| bad("its token service sends no token").into())
    }
}

struct TokenRequest<'a> {
    realm: &'a str,
    service: &'a str,
    scope: &'a str,
}

impl TokenRequest<'_> {
    fn http(
        &self,
        place: &Place<'_>,
        mut url: Url,
        credentials: Option<&Credentials>,
    ) -> std::result::Result<reqwest::Request, Failure> {
        let unusable = || unauthenticated(&place.host, "the credentials cannot be sent");
        let built = match credentials {
            Some(Credentials::IdentityToken(token)) => {
                let body = form(&[
                    ("grant_type", "refresh_token"),
                    ("service", self.service),
                    ("scope", self.scope),
                    ("client_id", "criscope"),
                    ("refresh_token", token),
                ]);
                let post = place.client.post(url);
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
                let get = place.client.get(url);
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

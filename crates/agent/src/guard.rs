//! Authentication by TokenReview and authorization by SubjectAccessReview, as in the kubelet and kube-rbac-proxy.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::{AUDIENCE, TOKEN_HEADER};

/// How long a permission counts without asking again.
const ALLOWED: Duration = Duration::from_secs(60);

/// How long a refusal counts: short, since a forgotten binding is added while a user waits for it.
const REFUSED: Duration = Duration::from_secs(10);

/// Most decisions in memory.
const MOST: usize = 256;

/// Most reviews at once.
const AT_ONCE: usize = 4;

/// Timeout of both reviews, with the wait for a slot.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest token, in bytes: longer than any header that a client may send.
const LONGEST: usize = 16 << 10;

/// What is asked for, as a non-resource URL of RBAC, always with the verb `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// `/metrics`
    Metrics,
    /// `/criscope/stories`
    Stories,
}

impl Permission {
    /// The path in a role.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Stories => "/criscope/stories",
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Without a token.
    #[error("a bearer token is required")]
    NoToken,
    /// The API server does not know the token, or it is for another audience.
    #[error("the token is not valid")]
    Unauthenticated,
    /// The user has no right.
    #[error("{user} may not get {path}")]
    Forbidden {
        /// The name.
        user: String,
        /// The non-resource URL.
        path: &'static str,
    },
    /// The API server could not be asked.
    #[error("the API server could not be asked")]
    Unavailable,
}

impl Refusal {
    /// The HTTP status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The hash of a token, its header and a permission. Tokens themselves are not kept.
type Key = [u8; 32];

type Decision = Result<(), Refusal>;

/// Asks the API server, and remembers for a short time.
pub struct Guard {
    client: kube::Client,
    decisions: Mutex<HashMap<Key, (Instant, Decision)>>,
    slots: Semaphore,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard that asks this API server.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            decisions: Mutex::default(),
            slots: Semaphore::new(AT_ONCE),
        }
    }

    /// Decides about a request with these headers.
    ///
    /// # Errors
    /// If it is to be refused.
    pub async fn admit(&self, headers: &HeaderMap, permission: Permission) -> Decision {
        let token = Token::of(headers).ok_or(Refusal::NoToken)?;
        if token.text.len() > LONGEST {
            return Err(Refusal::Unauthenticated);
        }
        let key = token.key(permission);
        if let Some(decision) = self.remembered(&key) {
            return decision;
        }
        let decision = match timeout(PATIENCE, self.ask(&token, permission)).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => {
                tracing::warn!(event = "agent.review", %error, "a review failed");
                // Not remembered: the next request asks again.
                return Err(Refusal::Unavailable);
            }
            Err(_) => return Err(Refusal::Unavailable),
        };
        self.remember(key, decision.clone());
        decision
    }

    async fn ask(&self, token: &Token<'_>, permission: Permission) -> kube::Result<Decision> {
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await;
        let Some(user) = self.who(token).await? else {
            return Ok(Err(Refusal::Unauthenticated));
        };
        Ok(match self.may(&user, permission).await? {
            true => Ok(()),
            false => Err(Refusal::Forbidden {
                user: user.username.unwrap_or_default(),
                path: permission.path(),
            }),
        })
    }

    /// The owner of a token.
    async fn who(&self, token: &Token<'_>) -> kube::Result<Option<UserInfo>> {
        let audiences = token.is_for_agents.then(|| vec![AUDIENCE.to_owned()]);
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.text.to_owned()),
                audiences,
            },
            ..TokenReview::default()
        };
        let api = Api::<TokenReview>::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        // An API server that ignores audiences returns none: such a token may be for any audience.
        let heard = status.audiences.unwrap_or_default();
        let is_meant = !token.is_for_agents || heard.iter().any(|it| it == AUDIENCE);
        let is_known = status.authenticated == Some(true) && is_meant;
        Ok(status.user.filter(|_| is_known))
    }

    async fn may(&self, user: &UserInfo, permission: Permission) -> kube::Result<bool> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: user.extra.clone(),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(permission.path().to_owned()),
                    verb: Some("get".to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }

    fn remembered(&self, key: &Key) -> Option<Decision> {
        let decisions = self.decisions.lock().ok()?;
        let (until, decision) = decisions.get(key)?;
        (Instant::now() < *until).then(|| decision.clone())
    }

    fn remember(&self, key: Key, decision: Decision) {
        let Ok(mut decisions) = self.decisions.lock() else {
            return;
        };
        let now = Instant::now();
        if decisions.len() >= MOST {
            decisions.retain(|_, (until, _)| now < *until);
        }
        // A client that sends ever new tokens costs reviews, and no memory.
        if decisions.len() >= MOST {
            decisions.clear();
        }
        let time = if decision.is_ok() { ALLOWED } else { REFUSED };
        decisions.insert(key, (now + time, decision));
    }
}

/// The token of a request.
struct Token<'a> {
    text: &'a str,
    /// Whether it was sent as one that is for agents only.
    is_for_agents: bool,
}

impl<'a> Token<'a> {
    fn of(headers: &'a HeaderMap) -> Option<Self> {
        if let Some(value) = headers.get(TOKEN_HEADER) {
            let text = value.to_str().ok()?;
            return (!text.is_empty()).then_some(Self {
                text,
                is_for_agents: true,
            });
        }
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, text) = value.split_once(' ')?;
        let text = text.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !text.is_empty()).then_some(Self {
            text,
            is_for_agents: false,
        })
    }

    fn key(&self, permission: Permission) -> Key {
        let mut hash = Sha256::new();
        hash.update([u8::from(self.is_for_agents)]);
        hash.update(permission.path());
        hash.update([0]);
        hash.update(self.text);
        hash.finalize().into()
    }
}

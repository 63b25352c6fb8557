//! Authentication by TokenReview and authorization by SubjectAccessReview, like the kubelet and kube-rbac-proxy.

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

/// How long a granted permission is cached.
const ALLOWED_CACHE_TIME: Duration = Duration::from_secs(60);

/// How long a refusal is cached. The time is short, since users retry right after they add a forgotten binding.
const REFUSED_CACHE_TIME: Duration = Duration::from_secs(10);

/// Upper bound of cached decisions.
const MAX_DECISIONS: usize = 256;

/// Upper bound of concurrent reviews.
const MAX_CONCURRENT_REVIEWS: usize = 4;

/// Timeout of both reviews, including the wait for a slot.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest token, in bytes. Headers of clients are shorter.
const MAX_TOKEN_LEN: usize = 16 << 10;

/// The permission that a request needs: a non-resource URL of RBAC, always with the verb `get`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentPermission {
    /// `/metrics`
    Metrics,
    /// `/criscope/stories`
    Stories,
}

impl AgentPermission {
    /// The path in a role.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Stories => "/criscope/stories",
        }
    }
}

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessRefusal {
    /// The request has no token.
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

impl AccessRefusal {
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
type DecisionKey = [u8; 32];

type AccessDecision = Result<(), AccessRefusal>;

/// Asks the API server, and remembers for a short time.
pub struct AccessGuard {
    client: kube::Client,
    decisions: Mutex<HashMap<DecisionKey, (Instant, AccessDecision)>>,
    slots: Semaphore,
}

impl fmt::Debug for AccessGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl AccessGuard {
    /// A guard that asks this API server.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            decisions: Mutex::default(),
            slots: Semaphore::new(MAX_CONCURRENT_REVIEWS),
        }
    }

    /// Decides about a request with these headers.
    ///
    /// # Errors
    /// If the request is refused.
    pub async fn admit(&self, headers: &HeaderMap, permission: AgentPermission) -> AccessDecision {
        let token = RequestToken::from_headers(headers).ok_or(AccessRefusal::NoToken)?;
        if token.text.len() > MAX_TOKEN_LEN {
            return Err(AccessRefusal::Unauthenticated);
        }
        let key = token.key(permission);
        if let Some(decision) = self.remembered(&key) {
            return decision;
        }
        let decision = match timeout(REVIEW_TIMEOUT, self.ask(&token, permission)).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => {
                tracing::warn!(event = "agent.review", %error, "a review failed");
                // Not remembered: the next request asks again.
                return Err(AccessRefusal::Unavailable);
            }
            Err(_) => return Err(AccessRefusal::Unavailable),
        };
        self.remember(key, decision.clone());
        decision
    }

    async fn ask(
        &self,
        token: &RequestToken<'_>,
        permission: AgentPermission,
    ) -> kube::Result<AccessDecision> {
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await;
        let Some(user) = self.authenticate(token).await? else {
            return Ok(Err(AccessRefusal::Unauthenticated));
        };
        Ok(if self.is_allowed(&user, permission).await? {
            Ok(())
        } else {
            Err(AccessRefusal::Forbidden {
                user: user.username.unwrap_or_default(),
                path: permission.path(),
            })
        })
    }

    /// Asks for the owner of a token.
    async fn authenticate(&self, token: &RequestToken<'_>) -> kube::Result<Option<UserInfo>> {
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
        let audiences = status.audiences.unwrap_or_default();
        let is_for_agents = audiences.iter().any(|audience| audience == AUDIENCE);
        let is_known =
            status.authenticated == Some(true) && (!token.is_for_agents || is_for_agents);
        Ok(status.user.filter(|_| is_known))
    }

    async fn is_allowed(&self, user: &UserInfo, permission: AgentPermission) -> kube::Result<bool> {
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

    fn remembered(&self, key: &DecisionKey) -> Option<AccessDecision> {
        let decisions = self.decisions.lock().ok()?;
        let (until, decision) = decisions.get(key)?;
        (Instant::now() < *until).then(|| decision.clone())
    }

    fn remember(&self, key: DecisionKey, decision: AccessDecision) {
        let Ok(mut decisions) = self.decisions.lock() else {
            return;
        };
        let now = Instant::now();
        if decisions.len() >= MAX_DECISIONS {
            decisions.retain(|_, (until, _)| now < *until);
        }
        // A client that sends ever new tokens costs reviews, but no memory.
        if decisions.len() >= MAX_DECISIONS {
            decisions.clear();
        }
        let time = if decision.is_ok() {
            ALLOWED_CACHE_TIME
        } else {
            REFUSED_CACHE_TIME
        };
        decisions.insert(key, (now + time, decision));
    }
}

/// The token of a request.
struct RequestToken<'a> {
    text: &'a str,
    /// Set if the client sent it as a token for agents only.
    is_for_agents: bool,
}

impl<'a> RequestToken<'a> {
    fn from_headers(headers: &'a HeaderMap) -> Option<Self> {
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

    fn key(&self, permission: AgentPermission) -> DecisionKey {
        let mut hash = Sha256::new();
        hash.update([u8::from(self.is_for_agents)]);
        hash.update(permission.path());
        hash.update([0]);
        hash.update(self.text);
        hash.finalize().into()
    }
}

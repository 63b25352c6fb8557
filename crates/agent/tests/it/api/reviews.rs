//! Whose a token is, what its owner may, and new tokens.

use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use serde_json::{Value, json};

use super::{OWN, Reply, State};
use crate::rbac::{Action, User};
use crate::support::parse;

impl State {
    pub(super) fn review_token(&self, mut review: TokenReview) -> Value {
        let tokens = self.tokens.lock().expect("tokens");
        let own = [OWN.to_owned()];
        let asked = review.spec.audiences.clone().unwrap_or_default();
        let asked = if asked.is_empty() {
            own.to_vec()
        } else {
            asked
        };
        let found = tokens.get(review.spec.token.as_deref().unwrap_or_default());
        let found = found.map(|(user, audiences)| {
            let common: Vec<_> = audiences
                .iter()
                .filter(|it| asked.contains(it))
                .cloned()
                .collect();
            (user, common)
        });
        review.status = Some(match found {
            Some((user, audiences)) if !audiences.is_empty() => parse(json!({
                "authenticated": true, "audiences": audiences,
                "user": {"username": user.name, "uid": "uid", "groups": user.groups},
            })),
            _ => parse(json!({"error": "invalid bearer token"})),
        });
        serde_json::to_value(review).expect("JSON")
    }

    pub(super) fn review_access(&self, mut review: SubjectAccessReview) -> Value {
        let spec = &review.spec;
        let user = User {
            name: spec.user.clone().unwrap_or_default(),
            groups: spec.groups.clone().unwrap_or_default(),
        };
        let url = spec
            .non_resource_attributes
            .clone()
            .expect("only URLs are asked for");
        let (verb, path) = (url.verb.unwrap_or_default(), url.path.unwrap_or_default());
        let allowed = self.rbac.allows(
            &user,
            Action::Url {
                verb: &verb,
                path: &path,
            },
        );
        review.status = Some(parse(json!({"allowed": allowed})));
        serde_json::to_value(review).expect("JSON")
    }

    pub(super) fn request_token(
        &self,
        namespace: &str,
        name: &str,
        mut request: TokenRequest,
    ) -> Reply {
        if request.spec.expiration_seconds.is_some_and(|it| it < 600) {
            let text = "spec.expirationSeconds: may not specify a duration less than 10 minutes";
            return Err((StatusCode::UNPROCESSABLE_ENTITY, text.to_owned()));
        }
        let mut tokens = self.tokens.lock().expect("tokens");
        let token = format!("minted-{}", tokens.len());
        let audiences = request.spec.audiences.clone();
        tokens.insert(token.clone(), (User::account(namespace, name), audiences));
        request.status = Some(parse(
            json!({"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"}),
        ));
        Ok((
            StatusCode::CREATED,
            serde_json::to_value(request).expect("JSON"),
        ))
    }
}

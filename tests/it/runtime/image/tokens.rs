//! Tokens of a registry, and `Retry-After`.

use criscope_image::{Auth, AuthFields};

use super::*;

/// Requires a token, and names the token service.
fn wants(registry: &Registry, good: &'static str, token: fn(&str) -> Option<&'static str>) {
    let realm = format!("http://{}/token", registry.address);
    registry.hook(move |asked| {
        if asked.path == "/token" {
            return Some(match token(&asked.body) {
                Some(answer) => status(200, answer),
                None => status(401, ""),
            });
        }
        let given = asked.headers.get("authorization");
        let challenge = format!("Bearer realm=\"{realm}\",service=\"s v\"");
        (given.is_none_or(|given| given != good))
            .then(|| with_header(status(401, ""), "www-authenticate", &challenge))
    });
}

#[tokio::test]
async fn an_identity_token_is_exchanged() {
    let (store, registry, name) = with_image().await;
    wants(&registry, "Bearer access", |body| {
        let wanted = "grant%5Ftype=refresh%5Ftoken&service=s%20v&scope=repository%3Aa%3Apull&client%5Fid=criscope&refresh%5Ftoken=my%2Fidentity";
        (body == wanted).then_some("{\"access_token\": \"access\"}")
    });
    let auth = |token: &str| {
        Auth::from_fields(&AuthFields {
            identity_token: token.to_owned(),
            ..AuthFields::default()
        })
    };
    let pulled = store.images.pull(&name, auth("my/identity"), None).await;
    pulled.expect("pull");
    let asked = registry.asked("/token");
    assert_eq!(asked.len(), 1);
    assert!(!asked[0].headers.contains_key("authorization"));
    assert_eq!(
        asked[0].headers["content-type"],
        "application/x-www-form-urlencoded"
    );
    let error = store.images.pull(&name, auth("other-identity"), None).await;
    let error = error.expect_err("another's");
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert!(!error.to_string().contains("other-identity"));
}

#[tokio::test]
async fn an_identity_token_of_docker_is_used_too() {
    let (store, registry, name) = with_image().await;
    wants(&registry, "Bearer t", |body| {
        body.ends_with("=kept").then_some("{\"token\": \"t\"}")
    });
    let host = registry.address.to_string();
    let config = json!({"auths": {host: {"identitytoken": "kept"}}});
    let path = store.dir.path().join("config.json");
    fs::write(path, config.to_string()).expect("write");
    store.pull(&name).await;
}

#[tokio::test]
async fn a_registry_token_is_sent_as_is() {
    let (store, registry, name) = with_image().await;
    wants(&registry, "Bearer mine", |_| None);
    let auth = |token: &str| {
        Auth::from_fields(&AuthFields {
            registry_token: token.to_owned(),
            ..AuthFields::default()
        })
    };
    let pulled = store.images.pull(&name, auth("mine"), None).await;
    pulled.expect("pull");
    assert!(
        registry.asked("/token").is_empty(),
        "no other token is requested"
    );
    let error = store.images.pull(&name, auth("not-mine"), None).await;
    let error = error.expect_err("another's");
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert!(!error.to_string().contains("not-mine"));
}

/// Requires `me:secret`, and redirects blobs to another registry.
fn leads(registry: &Registry, to: &Registry) {
    let to = to.address;
    registry.hook(move |asked| {
        let given = asked.headers.get("authorization");
        if given.is_none_or(|given| given != "Basic bWU6c2VjcmV0") {
            return Some(with_header(status(401, ""), "www-authenticate", "Basic"));
        }
        let there = format!("http://{to}{}?signature=s", asked.path);
        let is_blob = asked.path.contains("/blobs/");
        is_blob.then(|| with_header(status(307, ""), "location", &there))
    });
}

/// Like containerd: redirect targets are asked for an anonymous token, and never see credentials of the registry.
#[tokio::test]
async fn redirect_targets_may_require_their_own_token() {
    let (store, [registry, other]) = with_registries().await;
    let built = with_file(b"x");
    let name = registry.push("a", "1", &built);
    other.push("a", "1", &built);
    leads(&registry, &other);
    let realm = format!("http://{}/token", other.address);
    other.hook(move |asked| {
        if asked.path == "/token" {
            let is_anybody = asked.query == "service=cdn&scope=blobs%3Aa%3Apull";
            return Some(match is_anybody {
                true => status(200, &format!("{{\"token\": \"t{}\"}}", asked.before)),
                false => status(401, ""),
            });
        }
        let challenge = format!("Bearer realm=\"{realm}\",service=\"cdn\",scope=\"blobs:a:pull\"");
        let given = asked.headers.get("authorization");
        // Only the second one is valid: the first has expired meanwhile.
        (given.is_none_or(|given| given != "Bearer t1"))
            .then(|| with_header(status(401, ""), "www-authenticate", &challenge))
    });
    let auth = || Some(Auth::basic("me", "secret"));
    store.pull_as(&name, auth()).await;
    // The token is reused for the second blob.
    assert_eq!(other.asked("/token").len(), 2);
    let shown = |to: &Registry, start: &str| {
        let mut given = to.asked("").into_iter().filter_map(|asked| {
            let given = asked.headers.get("authorization")?;
            Some(given.to_str().expect("text").to_owned())
        });
        given.any(|given| given.starts_with(start))
    };
    assert!(!shown(&other, "Basic") && shown(&other, "Bearer t1"));
    assert!(!shown(&registry, "Bearer") && shown(&registry, "Basic"));
}

#[tokio::test]
async fn where_a_registry_leads_gets_no_password() {
    let (store, [registry, other]) = with_registries().await;
    let name = registry.push("a", "1", &with_file(b"x"));
    leads(&registry, &other);
    // Neither on a challenge, nor from the configuration of other registries, nor after tokens that are never accepted.
    let config = json!({"auths": {other.address.to_string(): {"auth": "bWU6c2VjcmV0"}}});
    let path = store.dir.path().join("config.json");
    fs::write(path, config.to_string()).expect("write");
    let realm = format!("http://{}/token", other.address);
    for challenge in ["Basic".to_owned(), format!("Bearer realm=\"{realm}\"")] {
        other.forget();
        other.hook(move |asked| {
            Some(match asked.path.as_str() {
                "/token" => status(200, &format!("{{\"token\": \"t{}\"}}", asked.before)),
                _ => with_header(status(401, ""), "www-authenticate", &challenge),
            })
        });
        let auth = Some(Auth::basic("me", "secret"));
        let error = store.images.pull(&name, auth, None).await;
        let error = error.expect_err("refused");
        assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&other.address.to_string()) && !text.contains("signature"),
            "{text}"
        );
        let asked = other.asked("");
        assert!((1..20).contains(&asked.len()), "{}", asked.len());
        let given = asked.iter().filter_map(|a| a.headers.get("authorization"));
        for given in given {
            assert!(given.to_str().expect("text").starts_with("Bearer t"));
        }
    }
}

#[tokio::test]
async fn retry_after_is_respected() {
    let store = Store::with(|config| config.timeouts.max_backoff = Duration::from_secs(20)).await;
    let registry = Registry::start().await;
    let name = registry.push("a", "1", &with_file(b"x"));
    registry.hook(|asked| {
        let first = asked.path.contains("/manifests/") && asked.before == 0;
        first.then(|| with_header(status(429, "slowly"), "retry-after", "1"))
    });
    let began = Instant::now();
    store.pull(&name).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "too early");
    // The requested delay is bounded.
    let store = Store::with(|config| config.timeouts.retries = 1).await;
    registry.hook(|_| Some(with_header(status(429, "slowly"), "retry-after", "86400")));
    let error = store.refuses(&name).await;
    assert!(
        matches!(error, Error::RegistryUnavailable { .. }),
        "{error}"
    );
}

/// The registry is not to blame for its token service, nor for a host that it redirects to.
#[tokio::test]
async fn errors_name_the_server_that_failed() {
    let (store, registry, name) = with_image().await;
    let own = registry.address.to_string();
    let refused = |error: Error, server: &str| {
        let text = error.to_string();
        assert!(text.contains(server), "{text}");
    };
    wants(&registry, "Bearer none", |_| None);
    let error = store.refuses(&name).await;
    refused(error, &format!("token service {own}: "));
    let away = Registry::start().await;
    let elsewhere = format!("http://{}/blob", away.address);
    away.hook(|_| Some(status(403, "")));
    registry.hook(move |asked| {
        let is_blob = asked.path.contains("/blobs/");
        is_blob.then(|| with_header(status(307, ""), "location", &elsewhere))
    });
    let error = store.refuses(&name).await;
    refused(
        error,
        &format!("{}, to which {own} redirects: ", away.address),
    );
    registry.hook(|asked| asked.path.contains("/blobs/").then(|| status(404, "")));
    let error = store.refuses(&name).await;
    refused(error, "blob sha256:");
}

/// A registry that leads to another address of the node, as its token service or by a redirect.
#[tokio::test]
async fn a_registry_leads_to_no_address_of_the_node() {
    let (store, registry, name) = with_image().await;
    for metadata_service in ["http://169.254.169.254/token", "http://127.0.0.2/token"] {
        let challenge = format!("Bearer realm=\"{metadata_service}\"");
        registry.hook(move |_| Some(with_header(status(401, ""), "www-authenticate", &challenge)));
        let error = store.refuses(&name).await;
        let error = error.to_string();
        assert!(
            error.contains("token service is an address of this node"),
            "{error}"
        );
        registry.hook(move |_| Some(with_header(status(307, ""), "location", metadata_service)));
        let error = store.refuses(&name).await;
        let error = error.to_string();
        assert!(
            error.contains("redirect to an address of this node"),
            "{error}"
        );
    }
}

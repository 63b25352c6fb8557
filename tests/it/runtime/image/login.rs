//! Registries with authentication, and mirrors.

use axum::response::Response;
use criscope_image::{Auth, AuthFields};

use super::*;

fn challenge(text: &str) -> Response {
    let mut response = status(
        401,
        "{\"errors\":[{\"code\":\"UNAUTHORIZED\",\"message\":\"who?\"}]}",
    );
    response
        .headers_mut()
        .insert("www-authenticate", text.parse().expect("a header"));
    response
}

/// Requires `me:secret`.
fn wants_password(registry: &Registry) {
    registry.hook(|asked| {
        let given = asked.headers.get("authorization");
        (given.is_none_or(|g| g != "Basic bWU6c2VjcmV0")).then(|| challenge("Basic realm=\"x\""))
    });
}

#[tokio::test]
async fn a_user_and_a_password() {
    let (store, registry, name) = with_image().await;
    wants_password(&registry);
    let error = store.refuses(&name).await;
    assert_eq!(error.code(), Code::Unauthenticated);
    let error = store
        .images
        .pull(&name, Some(Auth::basic("me", "wrong")), None)
        .await
        .expect_err("wrong");
    assert_eq!(error.code(), Code::Unauthenticated);
    assert!(!error.to_string().contains("wrong"));
    store
        .pull_as(&name, Some(Auth::basic("me", "secret")))
        .await;
}

#[tokio::test]
async fn credentials_of_docker() {
    let (store, registry, name) = with_image().await;
    wants_password(&registry);
    let host = registry.address.to_string();
    let path = store.dir.path().join("config.json");
    let config = json!({"auths": {format!("http://{host}/v2/"): {"auth": "bWU6c2VjcmV0"}}});
    fs::write(&path, config.to_string()).expect("write");
    store.pull(&name).await;
}

/// Requires a token from a token service; the first one expires soon.
fn wants_token(registry: &Registry) {
    let realm = format!("http://{}/token", registry.address);
    registry.hook(move |asked| {
        let given = asked
            .headers
            .get("authorization")
            .and_then(|g| g.to_str().ok());
        if asked.path == "/token" {
            let is_known = given == Some("Basic bWU6c2VjcmV0")
                && asked.query.contains("scope=repository%3Aa%3Apull");
            let token = format!("{{\"token\": \"t{}\"}}", asked.before);
            return Some(if is_known {
                status(200, &token)
            } else {
                status(401, "")
            });
        }
        let is_blob = asked.path.contains("/blobs/");
        let wanted = if is_blob { "Bearer t1" } else { "Bearer t0" };
        (given != Some(wanted)).then(|| {
            challenge(&format!(
                "Bearer realm=\"{realm}\",service=\"s\",scope=\"repository:a:pull\""
            ))
        })
    });
}

#[tokio::test]
async fn an_expired_token_is_replaced() {
    let (store, registry, name) = with_image().await;
    wants_token(&registry);
    let fields = AuthFields {
        username: "me".to_owned(),
        password: "secret".to_owned(),
        server_address: registry.address.to_string(),
        ..AuthFields::default()
    };
    store.pull_as(&name, Auth::from_fields(&fields)).await;
    assert_eq!(registry.asked("/token").len(), 2);
    let error = store.refuses(&name).await;
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
}

#[tokio::test]
async fn forbidden_and_missing_images() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let error = store.refuses(&registry.name("a:1")).await;
    assert_eq!(error.code(), Code::NotFound);
    registry.hook(|_| {
        Some(status(
            403,
            "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"not you\"}]}",
        ))
    });
    let error = store.refuses(&registry.name("a:1")).await;
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.to_string().contains("not you"));
}

#[tokio::test]
async fn mirrors_are_tried_first_and_get_no_credentials() {
    let (store, [dead, mirror, real]) = with_registries().await;
    let built = with_file(b"x");
    mirror.push("a", "1", &built);
    let upstream = real.push("a", "1", &built);
    dead.hook(|_| Some(status(500, "")));
    let text = format!(
        "server = \"http://{}\"\n[host.\"http://{}\"]\n[host.\"http://{}/v2\"]\nheader = {{x-key = \"k\"}}\n",
        real.address, dead.address, mirror.address
    );
    store.set_hosts("example.com:5000", &text);
    let auth = Auth::basic("me", "secret");
    store.pull_as("example.com:5000/a:1", Some(auth)).await;
    assert!(real.asked("").is_empty());
    let asked = mirror.asked("");
    assert!(!asked.is_empty());
    for asked in asked {
        assert_eq!(asked.query, "ns=example.com%3A5000");
        assert!(asked.headers["x-key"] == "k" && !asked.headers.contains_key("authorization"));
    }
    // Two attempts, then it is no longer tried first.
    assert_eq!(dead.asked("").len(), 2);
    let image = store.images.status("example.com:5000/a:1").expect("status");
    assert!(image.is_some() && store.images.status(&upstream).expect("status").is_none());
}

#[tokio::test]
async fn a_mirror_that_lacks_content_or_lies_is_skipped() {
    let (store, [mirror, real]) = with_registries().await;
    let built = with_file(b"x");
    mirror.push("a", "1", &built);
    real.push("a", "1", &built);
    mirror.hook(|asked| {
        let is_layer = asked.path.contains("/blobs/");
        is_layer.then(|| status(404, ""))
    });
    let text = format!(
        "server = \"http://{}\"\n[host.\"http://{}\"]\ncapabilities = [\"pull\"]\n",
        real.address, mirror.address
    );
    store.set_hosts("_default", &text);
    store.pull("example.com/a:1").await;
    // It may not resolve tags.
    assert!(mirror.asked("/manifests/").is_empty() && !mirror.asked("/blobs/").is_empty());
    assert_eq!(real.asked("/manifests/1").len(), 1);
}

#[tokio::test]
async fn a_helper_that_hangs_is_not_waited_for() {
    let store = Store::with(|config| config.timeouts.helper = Duration::from_millis(100)).await;
    let registry = Registry::start().await;
    let name = registry.push("a", "1", &with_file(b"x"));
    wants_password(&registry);
    let dir = store.dir.path();
    // Found by its full path, so that the PATH of the test program need not change.
    let helper = "docker-credential-criscope-test-hangs";
    let path = Path::new("/usr/local/bin").join(format!("{helper}-{}", std::process::id()));
    let gone = Remove(path.clone());
    executable(&path, "#!/bin/sh\nexec sleep 60\n");
    let short = path
        .file_name()
        .expect("a name")
        .to_str()
        .expect("text")
        .trim_start_matches("docker-credential-");
    let config = json!({"credsStore": short});
    fs::write(dir.join("config.json"), config.to_string()).expect("write");
    let error = store.refuses(&name).await;
    assert!(error.to_string().contains("no answer within"), "{error}");
    executable(
        &path,
        "#!/bin/sh\nread host\necho \"{\\\"Username\\\":\\\"me\\\",\\\"Secret\\\":\\\"secret\\\"}\"\n",
    );
    // It is run for each pull, and may be too slow more than once.
    until("a helper that responds in time", || async {
        match store.images.pull(&name, None, None).await {
            Ok(_) => Some(()),
            Err(error) => {
                assert!(error.to_string().contains("no answer within"), "{error}");
                None
            }
        }
    })
    .await;
    drop(gone);
}

struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

//! Servers that accept and say nothing, or almost nothing: every request has a time limit, and another server is asked.

use std::collections::HashSet;
use std::net::SocketAddr;

use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};

use super::*;

/// The time limit for silence in these tests.
const STALL: Duration = Duration::from_secs(1);

/// A store with a short time limit for silence, and the default number of retries.
async fn store() -> Store {
    Store::with(impatient).await
}

fn impatient(config: &mut ImageStoreConfig) {
    config.timeouts.stall = STALL;
    config.timeouts.connect = STALL;
}

/// An image with a layer of this size, which does not compress.
fn of_size(bytes: usize) -> Image {
    with_file(&noise(5, bytes))
}

/// Writes `hosts.toml` of a registry: its mirrors, with an address each.
fn mirrors(store: &Store, registry: SocketAddr, mirrors: &[String]) {
    let mirrors = mirrors
        .iter()
        .map(|mirror| format!("[host.\"{mirror}\"]\n"));
    store.set_hosts(&registry.to_string(), &mirrors.collect::<String>());
}

/// Pulls in vain. Returns the error, and how long it took.
async fn fails(store: &Store, name: &str) -> (Error, Duration) {
    let began = Instant::now();
    let pulled = soon("the end of a pull", store.images.pull(name, None, None)).await;
    (pulled.expect_err("a silent server"), began.elapsed())
}

/// The error names the server and what was waited for; a second attempt is the last.
fn assert_silent((error, took): (Error, Duration), server: &impl ToString, waited_for: &str) {
    let text = error.to_string();
    assert!(
        matches!(error, Error::RegistryUnavailable { .. }) && text.contains(&server.to_string()),
        "{text}"
    );
    assert!(text.contains(waited_for), "{text}");
    assert!(took >= STALL && took < 3 * STALL, "{took:?}: {text}");
}

#[tokio::test]
async fn a_registry_that_accepts_and_says_nothing() {
    let (store, silent) = (store().await, SilentServer::start().await);
    let name = format!("{}/a:1", silent.address);
    let failed = fails(&store, &name).await;
    assert_silent(failed, &silent.address, "no answer within 1 s");
    // With TLS, nobody answers the handshake.
    mirrors(
        &store,
        silent.address,
        &[format!("https://{}", silent.address)],
    );
    let (error, took) = fails(&store, &name).await;
    assert!(took < 4 * STALL, "{took:?}");
    assert!(error.to_string().contains("1 s"), "{error}");
    let own = silent.address.to_string();
    let server = format!("server = \"https://{own}\"\ndial_timeout = \"300ms\"");
    store.set_hosts(&own, &server);
    let (error, took) = fails(&store, &name).await;
    let text = error.to_string();
    assert!(text.contains("no connection within 0.3 s"), "{text}");
    assert!(took < STALL, "{took:?}");
    assert!(store.images.pulls().is_empty());
}

#[tokio::test]
async fn a_silent_token_service_is_waited_for_once_and_not_for_each_request() {
    let (store, registry) = (store().await, Registry::start().await);
    let silent = SilentServer::start().await;
    let name = registry.push("a", "1", &of_size(10));
    let realm = format!("http://{}/token", silent.address);
    registry.hook(move |_| {
        let mut answer = status(401, "");
        let challenge = format!("Bearer realm=\"{realm}\"")
            .parse()
            .expect("a header");
        answer.headers_mut().insert("www-authenticate", challenge);
        Some(answer)
    });
    let service = format!("token service {}", silent.address);
    assert_silent(fails(&store, &name).await, &service, "no answer within 1 s");
}

/// All layers of an image need a token, and wait for it together.
#[tokio::test]
async fn layers_wait_together_for_a_silent_token_service() {
    let (store, registry) = (store().await, Registry::start().await);
    let silent = SilentServer::start().await;
    let layers: Vec<_> = (1..6)
        .map(|seed| layer().file("f", &noise(seed, 1000)).end())
        .collect();
    let image = gzipped(&layers);
    let config = Digest::sha256(&image.config).to_string();
    let name = registry.push("a", "1", &image);
    let realm = format!("http://{}/token", silent.address);
    registry.hook(move |asked| {
        let is_layer = asked.path.contains("/blobs/") && !asked.path.ends_with(&config);
        is_layer.then(|| {
            let mut answer = status(401, "");
            let challenge = format!("Bearer realm=\"{realm}\"")
                .parse()
                .expect("a header");
            answer.headers_mut().insert("www-authenticate", challenge);
            answer
        })
    });
    let failed = fails(&store, &name).await;
    assert_silent(failed, &silent.address, "no answer within 1 s");
}

/// Several pulls wait for the same layer: none of them waits once more after the others.
#[tokio::test]
async fn pulls_of_one_layer_end_together() {
    let (store, registry) = (store().await, Registry::start().await);
    let image = of_size(1000);
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    let names = ["1", "2", "3", "4"].map(|tag| registry.push("a", tag, &image));
    registry.hook(move |asked| {
        let is_layer = asked.path.ends_with(digest.as_str());
        is_layer.then(|| stall(&blob, 10))
    });
    let pulls = names.each_ref().map(|name| fails(&store, name));
    for failed in futures_util::future::join_all(pulls).await {
        assert_silent(failed, &registry.address, "less than 1024");
    }
}

#[tokio::test]
async fn the_next_mirror_is_asked() {
    let (store, registry) = (store().await, Registry::start().await);
    let (silent, stalls) = (SilentServer::start().await, Registry::start().await);
    let image = of_size(3_000_000);
    let name = registry.push("a", "1", &image);
    stalls.push("a", "1", &image);
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    let own = digest.clone();
    // This one has the manifest, and the first half of the layer.
    stalls.hook(move |asked| {
        let is_layer = asked.path.ends_with(own.as_str());
        is_layer.then(|| stall(&blob, 1_500_000))
    });
    let all = [silent.address, stalls.address].map(|address| format!("http://{address}"));
    mirrors(&store, registry.address, &all);
    let began = Instant::now();
    store.pull(&name).await;
    // Each of the two was waited for once.
    let took = began.elapsed();
    assert!(took >= 2 * STALL && took < 3 * STALL, "{took:?}");
    assert_eq!(stalls.asked(digest.as_str()).len(), 1);
    let resumed = registry.asked(digest.as_str());
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].headers["range"], "bytes=1500000-");
}

/// A body of one byte every 300 ms.
fn drip(bytes: &[u8]) -> Response {
    let pieces: Vec<_> = bytes
        .iter()
        .map(|byte| Bytes::copy_from_slice(&[*byte]))
        .collect();
    let slow = stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, std::io::Error>(piece)
    });
    let answer = Response::builder().header("content-length", bytes.len());
    answer.body(Body::from_stream(slow)).expect("an answer")
}

#[tokio::test]
async fn a_server_that_drips_is_silent_and_a_slow_line_is_not() {
    let (store, registry) = (store().await, Registry::start().await);
    let image = of_size(60_000);
    let name = registry.push("a", "1", &image);
    let manifest = image.manifest.clone();
    registry.hook(move |asked| asked.path.ends_with("manifests/1").then(|| drip(&manifest)));
    assert_silent(
        fails(&store, &name).await,
        &registry.address,
        "bytes in 1 s, less than 1024",
    );
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    let own = digest.clone();
    registry.hook(move |asked| asked.path.ends_with(own.as_str()).then(|| drip(&blob)));
    assert_silent(
        fails(&store, &name).await,
        &registry.address,
        "bytes in 1 s, less than 1024",
    );
    // 20 KB/s, for three times as long as silence is waited for.
    let blob = image.layers[0].clone();
    registry.hook(move |asked| {
        let is_layer = asked.path.ends_with(digest.as_str());
        is_layer.then(|| trickle(&blob, 100, 2_000))
    });
    let began = Instant::now();
    store.pull(&name).await;
    assert!(began.elapsed() > 2 * STALL, "{:?}", began.elapsed());
}

/// The rate that a download must have is a setting.
#[tokio::test]
async fn the_least_rate_is_that_of_the_settings() {
    let store = Store::with(|config| {
        impatient(config);
        config.timeouts.least_rate = 100_000;
    });
    let (store, registry) = (store.await, Registry::start().await);
    let image = of_size(200_000);
    let name = registry.push("a", "1", &image);
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    registry.hook(move |asked| {
        let is_layer = asked.path.ends_with(digest.as_str());
        is_layer.then(|| trickle(&blob, 100, 2_000))
    });
    assert_silent(
        fails(&store, &name).await,
        &registry.address,
        "less than 100000",
    );
}

/// Another connection of a large layer gets no answer: the first one fetches everything.
#[tokio::test]
async fn a_part_of_a_layer_that_is_not_answered_is_fetched_by_the_first_connection() {
    let store = Store::with(|config| {
        impatient(config);
        config.piece_bytes = 100_000;
    });
    let (store, registry) = (store.await, Registry::start().await);
    let image = of_size(1_500_000);
    let name = registry.push("a", "1", &image);
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    let own = digest.clone();
    registry.hook(move |asked| {
        if !asked.path.ends_with(own.as_str()) {
            return None;
        }
        let mut answer = match asked.headers.contains_key("range") {
            true => stall(&blob, 0),
            false => trickle(&blob, 150_000, 200_000),
        };
        let bytes = "bytes".parse().expect("a header");
        answer.headers_mut().insert("accept-ranges", bytes);
        if let Some(range) = asked.headers.get("range") {
            let range = range.to_str().expect("text").replace('=', " ");
            let range = format!("{range}/{}", blob.len()).parse().expect("a header");
            answer.headers_mut().insert("content-range", range);
            answer.headers_mut().remove("content-length");
            *answer.status_mut() = axum::http::StatusCode::PARTIAL_CONTENT;
        }
        Some(answer)
    });
    let began = Instant::now();
    store.pull(&name).await;
    let took = began.elapsed();
    assert!(took < 3 * STALL, "{took:?}");
    let parts = registry.asked(digest.as_str());
    let parts = parts.iter().filter_map(|asked| asked.headers.get("range"));
    let parts: Vec<_> = parts.collect();
    let distinct: HashSet<_> = parts.iter().collect();
    // None is asked for again.
    assert!(
        !parts.is_empty() && distinct.len() == parts.len(),
        "{parts:?}"
    );
}

/// The body of an error may be waited for, but not for long: the status says the most.
#[tokio::test]
async fn an_error_whose_body_stalls() {
    let (store, registry) = (store().await, Registry::start().await);
    let name = registry.push("a", "1", &of_size(10));
    registry.hook(|_| {
        let mut answer = stall(&[b'x'; 1000], 10);
        *answer.status_mut() = axum::http::StatusCode::FORBIDDEN;
        Some(answer)
    });
    let (error, took) = fails(&store, &name).await;
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error}");
    assert!(took < 2 * STALL, "{took:?}");
}

/// Where a layer comes from if the registry does not have it.
#[tokio::test]
async fn a_silent_address_of_a_layer() {
    let (store, registry) = (store().await, Registry::start().await);
    let silent = SilentServer::start().await;
    let mut image = of_size(10);
    let mut manifest: Value = serde_json::from_slice(&image.manifest).expect("JSON");
    manifest["layers"][0]["urls"] = json!([format!("http://{}/x", silent.address)]);
    image.manifest = manifest.to_string().into_bytes();
    image.layers.clear();
    let name = registry.push("a", "1", &image);
    let (error, took) = fails(&store, &name).await;
    assert!(
        error.to_string().contains(&silent.address.to_string()),
        "{error}"
    );
    assert!(took < 3 * STALL, "{took:?}");
}

/// A connection that breaks again and again is resumed as often as before.
#[tokio::test]
async fn what_breaks_is_not_what_is_silent() {
    let (store, registry) = (store().await, Registry::start().await);
    let image = of_size(500_000);
    let name = registry.push("a", "1", &image);
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    let own = digest.clone();
    registry.hook(move |asked| {
        let is_layer = asked.path.ends_with(own.as_str());
        (is_layer && asked.before < 4).then(|| cut(&blob, 1000))
    });
    store.pull(&name).await;
    assert_eq!(registry.asked(digest.as_str()).len(), 5);
}

/// Nobody waits for the pull any more.
#[tokio::test]
async fn a_pull_ends_with_its_caller() {
    let store = Store::with(|config| config.timeouts.stall = Duration::from_secs(600)).await;
    let silent = SilentServer::start().await;
    let name = format!("{}/a:1", silent.address);
    let images = store.images.clone();
    let pull = tokio::spawn(async move { images.pull(&name, None, None).await });
    until_true("the pull", async || store.images.pulls().len() == 1).await;
    pull.abort();
    let _ = pull.await;
    assert!(store.images.pulls().is_empty());
}

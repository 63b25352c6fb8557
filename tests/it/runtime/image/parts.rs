//! Large layers, which are fetched over several connections.

use std::collections::HashSet;
use std::ops::Range;

use axum::http::{HeaderValue, header};
use axum::response::Response;

use super::*;

const PIECE: usize = 100_000;
const LENGTH: usize = 1_500_000;

fn small_pieces(config: &mut ImageStoreConfig) {
    config.piece_bytes = PIECE as u64;
}

fn content() -> Vec<u8> {
    noise(3, LENGTH)
}

/// An image with one layer that does not compress.
fn large() -> Image {
    with_file(&content())
}

/// The layer as its registry should have it.
async fn assert_pulled(store: &Store, name: &str) {
    let pull = store.images.pull(name, None, None);
    let id = soon("the pull", pull).await.expect("pull");
    let layers = store.images.layers(id.as_str()).expect("layers");
    let file = fs::read(layers.paths()[0].join("f")).expect("read");
    assert!(file == content());
}

fn accepting(mut response: Response) -> Response {
    let bytes = HeaderValue::from_static("bytes");
    response.headers_mut().insert(header::ACCEPT_RANGES, bytes);
    response
}

/// The range that a request asks for; the end of an open one is that of the blob.
fn range(asked: &Asked, length: usize) -> Option<Range<usize>> {
    let text = asked.headers.get("range")?.to_str().expect("text");
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let end = last.parse().map_or(length, |last: usize| last + 1);
    Some(first.parse().expect("a number")..end)
}

/// The requests for the layer, which end before the pull does.
fn ranges(registry: &Registry, image: &Image) -> Vec<Option<Range<usize>>> {
    let blob = &image.layers[0];
    let asked = registry.asked(Digest::sha256(blob).as_str());
    asked.iter().map(|it| range(it, blob.len())).collect()
}

#[tokio::test]
async fn a_large_layer_is_fetched_over_several_connections() {
    let (store, registry) = (Store::with(small_pieces).await, Registry::start().await);
    let image = large();
    let name = registry.push("a", "1", &image);
    let blob = image.layers[0].clone();
    let digest = Digest::sha256(&blob);
    registry.hook(move |asked| {
        let is_first = asked.path.ends_with(digest.as_str()) && asked.before == 0;
        // For everything, this connection would take 15 s.
        is_first.then(|| accepting(trickle(&blob, 150_000, 10_000)))
    });
    assert_pulled(&store, &name).await;
    let asked = ranges(&registry, &image);
    assert_eq!(asked[0], None, "the server may not know parts");
    let mut parts: Vec<_> = asked[1..].iter().flatten().cloned().collect();
    assert_eq!(parts.len(), asked.len() - 1);
    assert!(parts.len() > 5, "{parts:?}");
    parts.sort_by_key(|part| part.start);
    assert!(parts.iter().all(|part| part.len() <= PIECE), "{parts:?}");
    let overlap = parts.windows(2).any(|two| two[0].end > two[1].start);
    assert!(!overlap, "{parts:?}");
    // The first connection fetched what comes before, and nothing after it.
    assert_eq!(parts.last().expect("one").end, image.layers[0].len());
    assert!(parts[0].start >= PIECE, "{parts:?}");
    assert!(store.images.remove(&name).await.expect("remove"));
    store.assert_empty().await;
}

/// Whatever a server does with the requests of further connections, the first one gets everything.
#[tokio::test]
async fn a_server_that_sends_no_parts_is_believed() {
    let image = large();
    let answers: [fn(&[u8]) -> Response; 4] = [
        |whole| accepting(cut(whole, whole.len())),
        |_| status(404, "{}"),
        |_| status(416, "{}"),
        |whole| {
            let mut other = cut(whole, 7);
            *other.status_mut() = axum::http::StatusCode::PARTIAL_CONTENT;
            let range = HeaderValue::from_static("bytes 0-6/7");
            other.headers_mut().insert(header::CONTENT_RANGE, range);
            other
        },
    ];
    for answer in answers {
        let (store, registry) = (Store::with(small_pieces).await, Registry::start().await);
        let name = registry.push("a", "1", &image);
        let blob = image.layers[0].clone();
        let digest = Digest::sha256(&blob);
        registry.hook(move |asked| {
            let is_blob = asked.path.ends_with(digest.as_str());
            is_blob.then(|| match range(asked, blob.len()) {
                None => accepting(trickle(&blob, 150_000, 200_000)),
                Some(_) => answer(&blob),
            })
        });
        assert_pulled(&store, &name).await;
        let asked = ranges(&registry, &image);
        assert_eq!(asked.iter().filter(|range| range.is_none()).count(), 1);
        // With retries, all for the same part.
        let parts: HashSet<_> = asked.iter().flatten().collect();
        assert_eq!(parts.len(), 1, "{asked:?}");
    }
}

/// What was fetched ahead of the rest is given up: the next pull goes on where the first byte is missing.
#[tokio::test]
async fn a_pull_that_is_abandoned_goes_on_in_order() {
    let store = Store::with(|config| {
        small_pieces(config);
        config.keep_unused = Duration::from_secs(3600);
    });
    let (store, registry) = (store.await, Registry::start().await);
    let image = large();
    let name = registry.push("a", "1", &image);
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    registry.hook(move |asked| {
        let is_first = asked.path.ends_with(digest.as_str()) && asked.before == 0;
        is_first.then(|| accepting(stall(&blob, PIECE / 2)))
    });
    let (images, own) = (store.images.clone(), name.clone());
    let pull = tokio::spawn(async move { images.pull(&own, None, None).await });
    let all_but_half_a_piece = (image.layers[0].len() - PIECE / 2) as u64;
    until("all that others fetch", || async {
        let view = store.images.pulls().into_iter().next()?;
        (view.bytes_done == all_but_half_a_piece).then_some(())
    })
    .await;
    pull.abort();
    let _ = pull.await;
    let partial = store.dir.path().join("store/partial");
    until("the part in order", || async {
        let file = fs::read_dir(&partial).expect("a folder").next()?;
        let length = file.ok()?.metadata().ok()?.len();
        (length == PIECE as u64 / 2).then_some(())
    })
    .await;
    registry.behave();
    registry.forget();
    assert_pulled(&store, &name).await;
    let asked = ranges(&registry, &image);
    let first = asked[0].clone().expect("a range");
    assert_eq!(first, PIECE / 2..image.layers[0].len());
}

//! What a registry answers for some repositories.

use std::io;

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use futures_util::stream;

use crate::harness::image::{INDEX, Image, OCI, digest, gzipped, image_for, layer, noise};
use crate::harness::registry::{status, trickle};
use crate::prelude::*;

/// Repositories, and in how many pieces, ten a second, their last layer arrives.
const REPOSITORIES: [(&str, usize); 15] = [
    ("good", 0),
    ("slow", 30),
    ("slow-loop", 30),
    ("usual", 22),
    ("first", 40),
    ("second", 0),
    ("again-first", 40),
    ("again-second", 0),
    ("stalled", 300),
    ("corrupt", 0),
    ("partial", 0),
    ("cut", 0),
    ("stored-away", 0),
    ("vulnerable", 0),
    ("unjudged", 0),
];

/// Fills the registry: the name of a repository says what becomes of its pulls.
pub(super) fn fill(registry: &Registry) {
    let plain = registry.address;
    let mut layers = HashMap::new();
    for (seed, (repository, pieces)) in (1..).zip(REPOSITORIES) {
        // A layer that no other image has, so that it is fetched.
        let own = layer().file("own", &noise(seed, 512 << 10)).end();
        let image = gzipped(&[busybox::layer(), own]);
        registry.push(repository, "1", &image);
        let own = image.layers[1].clone();
        layers.insert(digest(&own).as_str().to_owned(), (pieces, own));
    }
    let foreign = image_for("s390x", &[(b"x".to_vec(), b"x".to_vec())]);
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [{
        "mediaType": OCI, "digest": digest(&foreign.manifest).as_str(), "size": foreign.manifest.len(),
        "platform": {"os": "linux", "architecture": "s390x"}}]});
    registry.push("foreign", "1", &foreign);
    registry.put_manifest("foreign", "1", INDEX, index.to_string().as_bytes());
    let large = layer().file("large", &vec![0; 64 << 20]).end();
    registry.push("large", "1", &gzipped(&[busybox::layer(), large]));
    registry.push("no-archive", "1", &no_archive());
    registry.push("sealed", "1", &sealed());
    registry.hook(move |asked| {
        let (repository, rest) = asked.path.strip_prefix("/v2/")?.split_once('/')?;
        let layer = || layers.get(rest.strip_prefix("blobs/")?);
        match repository {
            "private" => Some(challenge()),
            "limited" => Some(status(
                429,
                r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}"#,
            )),
            // To itself, which does not speak TLS.
            "moved" => Some(redirect(&format!("https://{plain}{}", asked.path))),
            "partial" if layer().is_some() => Some(status(404, "")),
            "portal" => Some(page()),
            "cut" => Some(cut(&layer()?.1)),
            "stored-away" if layer().is_some() => Some(redirect("http://127.0.0.1:19/blob")),
            "tokens" => Some(bearer("http://127.0.0.1:19/token")),
            "failing" => Some(status(503, "upstream connect error")),
            "corrupt" => {
                let (_, mut bytes) = layer()?.clone();
                bytes[4096] ^= 1;
                Some(trickle(&bytes, bytes.len(), 1))
            }
            _ => match layer()? {
                (0, _) => None,
                (pieces, bytes) => Some(trickle(bytes, 1 << 10, bytes.len() / pieces)),
            },
        }
    });
}

fn challenge() -> Response {
    let mut answer = status(
        401,
        r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#,
    );
    let basic = "Basic realm=\"registry\"".parse().expect("a value");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
    answer
}

/// Sends for a token.
fn bearer(realm: &str) -> Response {
    let mut answer = status(401, "");
    let bearer = format!("Bearer realm=\"{realm}\",service=\"registry\"");
    let bearer = bearer.parse().expect("a value");
    answer
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, bearer);
    answer
}

/// What a portal sends in place of everything.
fn page() -> Response {
    let mut answer = status(200, "<html>Log in first</html>");
    let html = "text/html".parse().expect("a value");
    answer.headers_mut().insert(header::CONTENT_TYPE, html);
    answer
}

/// The first half; then the connection breaks.
fn cut(bytes: &[u8]) -> Response {
    let half = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
    let broken = Err(io::Error::other("the connection breaks"));
    let body = Body::from_stream(stream::iter([Ok(half), broken]));
    let answer = Response::builder().header(header::CONTENT_LENGTH, bytes.len());
    answer.body(body).expect("an answer")
}

/// An image with a layer that is no archive, as its manifest says.
fn no_archive() -> Image {
    let mut image = gzipped(&[busybox::layer(), layer().file("own", b"own").end()]);
    let was = image.layers[1].clone();
    let is = b"no archive, but a text".to_vec();
    let manifest = String::from_utf8(image.manifest).expect("JSON");
    let manifest = manifest
        .replace(digest(&was).as_str(), digest(&is).as_str())
        .replace(
            &format!("\"size\":{}", was.len()),
            &format!("\"size\":{}", is.len()),
        );
    image.manifest = manifest.into_bytes();
    image.layers[1] = is;
    image
}

/// An image with a layer that is encrypted, as its manifest says; the key is wrapped for a key provider.
fn sealed() -> Image {
    let mut image = gzipped(&[busybox::layer(), layer().file("own", b"sealed").end()]);
    let mut manifest: Value = serde_json::from_slice(&image.manifest).expect("JSON");
    let layer = &mut manifest["layers"][1];
    let media_type = layer["mediaType"].as_str().expect("text");
    layer["mediaType"] = format!("{media_type}+encrypted").into();
    layer["annotations"] = json!({"org.opencontainers.image.enc.keys.provider.kms": "a2V5"});
    image.manifest = manifest.to_string().into_bytes();
    image
}

fn redirect(to: &str) -> Response {
    let mut answer = status(307, "");
    let to = to.parse().expect("a value");
    answer.headers_mut().insert(header::LOCATION, to);
    answer
}

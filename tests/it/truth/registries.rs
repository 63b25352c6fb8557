//! What a registry answers for some repositories.

use std::collections::HashMap;

use axum::http::header;
use axum::response::Response;

use crate::harness::busybox;
use crate::harness::image::{INDEX, OCI, digest, gzipped, image_for, layer, noise};
use crate::harness::registry::{Registry, status, trickle};

/// Repositories, and in how many pieces, ten a second, their last layer arrives.
const REPOSITORIES: [(&str, usize); 9] = [
    ("good", 0),
    ("slow", 30),
    ("usual", 22),
    ("first", 40),
    ("second", 0),
    ("again-first", 40),
    ("again-second", 0),
    ("stalled", 300),
    ("corrupt", 0),
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
    let index = serde_json::json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [{
        "mediaType": OCI, "digest": digest(&foreign.manifest).as_str(), "size": foreign.manifest.len(),
        "platform": {"os": "linux", "architecture": "s390x"}}]});
    registry.push("foreign", "1", &foreign);
    registry.put_manifest("foreign", "1", INDEX, index.to_string().as_bytes());
    let large = layer().file("large", &vec![0; 64 << 20]).end();
    registry.push("large", "1", &gzipped(&[busybox::layer(), large]));
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

fn redirect(to: &str) -> Response {
    let mut answer = status(307, "");
    let to = to.parse().expect("a value");
    answer.headers_mut().insert(header::LOCATION, to);
    answer
}

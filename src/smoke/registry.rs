//! A read-only registry for the smoke images: the pull half of the OCI distribution specification 1.1, over plain HTTP on
//! loopback, which containerd and docker accept without configuration.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use oci_spec::image::MediaType;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::image::{CanaryImage, DigestedBlob, IMAGE_TAG};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// The content. It is complete from the start, so a request is a lookup.
#[derive(Debug, Default)]
struct RegistryContent {
    /// By `repository/manifests/reference`.
    manifests: HashMap<String, DigestedBlob>,
    /// By `repository/blobs/digest`.
    blobs: HashMap<String, DigestedBlob>,
    /// Requests so far.
    requests: AtomicU64,
    /// How long a request for a tag waits.
    delay: Duration,
}

impl RegistryContent {
    fn new(images: &[CanaryImage], delay: Duration) -> Self {
        let mut content = Self {
            delay,
            ..Self::default()
        };
        for image in images {
            let repository = image.repository;
            for reference in [IMAGE_TAG, &image.manifest.digest] {
                let path = format!("{repository}/manifests/{reference}");
                content.manifests.insert(path, image.manifest.clone());
            }
            for blob in [&image.config, &image.layer] {
                let path = format!("{repository}/blobs/{}", blob.digest);
                content.blobs.insert(path, blob.clone());
            }
        }
        content
    }
}

/// A running registry. Dropping it stops it.
#[derive(Debug)]
pub struct CanaryRegistry {
    address: SocketAddr,
    content: Arc<RegistryContent>,
    server: JoinHandle<io::Result<()>>,
}

impl CanaryRegistry {
    /// Binds `listen` (port 0 for any free one) and serves `images` there. A request for a tag is answered after `delay`.
    pub async fn serve(
        listen: SocketAddr,
        images: &[CanaryImage],
        delay: Duration,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = reachable(listener.local_addr()?);
        let content = Arc::new(RegistryContent::new(images, delay));
        let app = router(Arc::clone(&content));
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self {
            address,
            content,
            server,
        })
    }

    /// Address of the registry on this host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The full reference of an image, `127.0.0.1:PORT/repository:1`.
    pub fn reference(&self, repository: &str) -> String {
        format!("{}/{repository}:{IMAGE_TAG}", self.address)
    }

    /// Number of requests: zero after a failed pull means that the runtime never reached it.
    pub fn requests(&self) -> &AtomicU64 {
        &self.content.requests
    }
}

impl Drop for CanaryRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// An address to connect to: loopback if bound to all.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

fn router(content: Arc<RegistryContent>) -> Router {
    Router::new()
        .route("/v2/", get(version))
        .route("/v2/{*path}", get(object))
        .with_state(content)
}

/// End-1 of the specification: is this a registry at all?
async fn version(State(content): State<Arc<RegistryContent>>) -> Response {
    content.requests.fetch_add(1, Ordering::Relaxed);
    ([(API_VERSION, "registry/2.0")], Json(json!({}))).into_response()
}

/// End-2 and end-3: blobs and manifests. axum answers HEAD with the same handler, without the body.
async fn object(State(content): State<Arc<RegistryContent>>, Path(path): Path<String>) -> Response {
    content.requests.fetch_add(1, Ordering::Relaxed);
    if let Some(manifest) = content.manifests.get(&path) {
        if path.ends_with(&format!("/{IMAGE_TAG}")) {
            tokio::time::sleep(content.delay).await;
        }
        return found(manifest, MediaType::ImageManifest.as_ref());
    }
    if let Some(blob) = content.blobs.get(&path) {
        return found(blob, "application/octet-stream");
    }
    missing(&path)
}

fn found(blob: &DigestedBlob, media_type: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (CONTENT_DIGEST, blob.digest.clone()),
    ];
    (headers, Bytes::clone(&blob.bytes)).into_response()
}

fn missing(path: &str) -> Response {
    let (code, message) = if path.contains("/blobs/") {
        ("BLOB_UNKNOWN", "blob unknown to this registry")
    } else if path.contains("/manifests/") {
        ("MANIFEST_UNKNOWN", "manifest unknown to this registry")
    } else {
        ("UNSUPPORTED", "only pulls are supported")
    };
    let body = json!({"errors": [{"code": code, "message": message}]});
    (StatusCode::NOT_FOUND, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Method, Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::super::image::tests::example;
    use super::*;

    async fn ask(method: Method, path: &str) -> (StatusCode, http::HeaderMap, Bytes) {
        let app = router(Arc::new(RegistryContent::new(&example(), Duration::ZERO)));
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).expect("request");
        let response = app.oneshot(request).await.expect("answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("body").to_bytes();
        (parts.status, parts.headers, body)
    }

    #[tokio::test]
    async fn all_objects_of_a_pull_are_served() {
        let (status, headers, _) = ask(Method::GET, "/v2/").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers[API_VERSION], "registry/2.0");

        for image in example() {
            let by_tag = format!("/v2/{}/manifests/1", image.repository);
            let (status, headers, body) = ask(Method::GET, &by_tag).await;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(
                headers[header::CONTENT_TYPE],
                "application/vnd.oci.image.manifest.v1+json"
            );
            assert_eq!(headers[CONTENT_DIGEST], image.manifest.digest);
            assert_eq!(body, image.manifest.bytes);

            let by_digest = format!(
                "/v2/{}/manifests/{}",
                image.repository, image.manifest.digest
            );
            assert_eq!(ask(Method::GET, &by_digest).await.2, image.manifest.bytes);
            for blob in [&image.config, &image.layer] {
                let path = format!("/v2/{}/blobs/{}", image.repository, blob.digest);
                assert_eq!(ask(Method::GET, &path).await.2, blob.bytes);
            }
        }
    }

    #[tokio::test]
    async fn head_has_the_length_without_the_body() {
        let [smoke, _] = example();
        let path = format!("/v2/{}/blobs/{}", smoke.repository, smoke.layer.digest);
        let (status, headers, body) = ask(Method::HEAD, &path).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            headers[header::CONTENT_LENGTH],
            smoke.layer.bytes.len().to_string()
        );
        assert!(body.is_empty());
    }

    #[tokio::test]
    async fn missing_objects_have_the_specified_errors() {
        for (path, code) in [
            ("/v2/criscope/smoke/manifests/2", "MANIFEST_UNKNOWN"),
            ("/v2/criscope/other/manifests/1", "MANIFEST_UNKNOWN"),
            ("/v2/criscope/smoke/blobs/sha256:00", "BLOB_UNKNOWN"),
            ("/v2/criscope/smoke/tags/list", "UNSUPPORTED"),
        ] {
            let (status, _, body) = ask(Method::GET, path).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
            let body: serde_json::Value = serde_json::from_slice(&body).expect("json");
            assert_eq!(body["errors"][0]["code"], code, "{path}");
        }
    }

    #[tokio::test]
    async fn writes_are_refused() {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let (status, ..) = ask(method, "/v2/criscope/smoke/blobs/uploads/").await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
        }
    }

    #[tokio::test]
    async fn it_listens_and_counts_requests() {
        let registry = CanaryRegistry::serve(
            SocketAddr::from(([127, 0, 0, 1], 0)),
            &example(),
            Duration::ZERO,
        )
        .await
        .expect("bind");
        let address = registry.address();
        assert_eq!(
            registry.reference("criscope/smoke"),
            format!("{address}/criscope/smoke:1")
        );
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("connect");
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .expect("handshake");
        let connection = tokio::spawn(connection);
        let request = Request::get("/v2/").body(Body::empty()).expect("request");
        let response = sender.send_request(request).await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(registry.requests().load(Ordering::Relaxed), 1);
        drop(registry);
        drop(sender);
        let _ = connection.await;
    }

    #[test]
    fn a_wildcard_address_is_reached_on_loopback() {
        let any = SocketAddr::from(([0, 0, 0, 0], 80));
        assert_eq!(reachable(any), SocketAddr::from(([127, 0, 0, 1], 80)));
    }
}

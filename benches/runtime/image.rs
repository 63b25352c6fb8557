//! The one image of all pods, made of the machine's static busybox: as a directory for the bare calls, and in a registry
//! on loopback for the runtimes.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::Builder;
use tokio::net::TcpListener;

use crate::error::{IoContext, Result};
use crate::process::find;

/// What runs in it.
const COMMAND: [&str; 3] = ["/bin/busybox", "sleep", "1000000"];
/// Its repository: the containers'.
const APP: &str = "criscope-bench/app";
/// Its other one: that of containerd's sandbox container.
const PAUSE: &str = "criscope-bench/pause";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The image.
pub(crate) struct Image {
    /// Its one layer.
    pub(crate) layer: PathBuf,
    /// Its name for containers.
    pub(crate) app: String,
    /// Its name for sandboxes.
    pub(crate) pause: String,
    /// Where runtimes read how to reach the registry.
    pub(crate) certs: PathBuf,
}

/// What is at a path of the registry, and of which type.
type Content = Arc<HashMap<String, (&'static str, Bytes)>>;

impl Image {
    /// Makes it below `folder`, and serves it as long as the runtime lives.
    ///
    /// # Errors
    /// When busybox is not installed, something cannot be written, or there is no port.
    pub(crate) async fn make(folder: &Path) -> Result<Self> {
        let busybox = match std::env::var_os("CRISCOPE_BUSYBOX") {
            Some(path) => path.into(),
            None => find("busybox", "busybox-static")?,
        };
        let layer = folder.join("layer");
        let make = || {
            for dir in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
                fs::create_dir_all(layer.join(dir))?;
            }
            fs::copy(&busybox, layer.join("bin/busybox"))?;
            symlink("busybox", layer.join("bin/sh"))?;
            let mut tar = Builder::new(Vec::new());
            tar.follow_symlinks(false);
            tar.append_dir_all(".", &layer)?;
            tar.into_inner()
        };
        let tar = make().during(|| format!("making an image in {}", folder.display()))?;
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.during(|| "serving the image".to_owned())?;
        let address = listener.local_addr();
        let address = address.during(|| "serving the image".to_owned())?;
        let registry = Router::new()
            .fallback(serve)
            .with_state(content(&tar.into()));
        tokio::spawn(async move { axum::serve(listener, registry).await });
        let certs = folder.join("certs.d");
        let hosts = certs.join(address.to_string()).join("hosts.toml");
        let server = format!("server = \"http://{address}\"\n");
        let there = hosts.parent().map_or(Ok(()), fs::create_dir_all);
        there
            .and_then(|()| fs::write(&hosts, server))
            .during(|| format!("writing {}", hosts.display()))?;
        Ok(Self {
            layer,
            app: format!("{address}/{APP}:1"),
            pause: format!("{address}/{PAUSE}:1"),
            certs,
        })
    }
}

/// The registry: both repositories hold the same.
fn content(layer: &Bytes) -> Content {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": COMMAND, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created_by": "benchmark"}],
    });
    let config = Bytes::from(config.to_string());
    let part = |kind: &str, bytes: &Bytes| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": part(CONFIG, &config),
        "layers": [part(LAYER, layer)],
    });
    let manifest = Bytes::from(manifest.to_string());
    let mut content = HashMap::from([("/v2/".to_owned(), ("application/json", Bytes::from("{}")))]);
    for repository in [APP, PAUSE] {
        for tag in ["1".to_owned(), digest(&manifest)] {
            let path = format!("/v2/{repository}/manifests/{tag}");
            content.insert(path, (MANIFEST, manifest.clone()));
        }
        for blob in [&config, layer] {
            let path = format!("/v2/{repository}/blobs/{}", digest(blob));
            content.insert(path, ("application/octet-stream", blob.clone()));
        }
    }
    Arc::new(content)
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

async fn serve(State(content): State<Content>, uri: Uri) -> Response {
    match content.get(uri.path()) {
        Some((kind, bytes)) => {
            let digest = digest(bytes);
            let headers = [
                (header::CONTENT_TYPE.as_str(), *kind),
                ("docker-content-digest", &digest),
            ];
            (headers, bytes.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

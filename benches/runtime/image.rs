//! The one image of all pods, busybox: as a directory for the bare calls, and in a registry on loopback for the runtimes.

use std::fs;
use std::path::{Path, PathBuf};

use criscope_testkit::registry::Registry;
use criscope_testkit::{busybox, image};
use serde_json::json;

use crate::error::{IoContext, Result};

/// The command of its containers.
const COMMAND: [&str; 3] = ["/bin/busybox", "sleep", "1000000"];
/// The repository for containers.
const APP: &str = "criscope-bench/app";
/// The repository for containerd's sandbox containers.
const PAUSE: &str = "criscope-bench/pause";

/// The image, served until dropped.
pub(crate) struct Image {
    /// Its one layer, unpacked.
    pub(crate) layer: PathBuf,
    /// Its name for containers.
    pub(crate) app: String,
    /// Its name for sandboxes.
    pub(crate) pause: String,
    /// The directory of `hosts.toml` files.
    pub(crate) certs: PathBuf,
    /// The registry that has it.
    pub(crate) registry: Registry,
}

impl Image {
    /// Creates it below `folder` and serves it.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) async fn make(folder: &Path) -> Result<Self> {
        let tar = busybox::layer();
        let layer = folder.join("layer");
        tar::Archive::new(&*tar)
            .unpack(&layer)
            .during(|| format!("unpacking the image into {}", layer.display()))?;
        let run = json!({"Entrypoint": COMMAND, "Env": ["PATH=/bin"]});
        let image = image::uncompressed(&run, tar);
        let registry = Registry::start().await;
        let certs = folder.join("certs.d");
        let host = certs.join(registry.address.to_string());
        let server = format!("server = \"http://{}\"\n", registry.address);
        fs::create_dir_all(&host)
            .and_then(|()| fs::write(host.join("hosts.toml"), server))
            .during(|| format!("writing to {}", host.display()))?;
        Ok(Self {
            layer,
            app: registry.push(APP, "1", &image),
            pause: registry.push(PAUSE, "1", &image),
            certs,
            registry,
        })
    }
}

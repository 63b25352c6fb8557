//! Debian's docker-registry with all images, and nginx in front of it, which limits the rate of each connection.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use criscope_testkit::docker_registry::{DockerRegistry, skopeo};
use criscope_testkit::proxy::free_port;

use crate::error::{IoContext, Result};
use crate::process::{Process, find};
use crate::shapes::Image;

/// Both registries, until dropped.
pub(crate) struct Registries {
    /// Hosts and ports.
    pub(crate) fast: String,
    pub(crate) slow: String,
    /// The directory of `hosts.toml` files.
    pub(crate) certs: PathBuf,
    _nginx: Process,
    _registry: DockerRegistry,
}

impl Registries {
    /// Starts both and pushes the images.
    ///
    /// # Errors
    /// If a program is not installed or a file cannot be written.
    pub(crate) async fn start(dir: &Path, images: &[Image], rate: usize) -> Result<Self> {
        fs::create_dir_all(dir).during(|| format!("making {}", dir.display()))?;
        let registry = DockerRegistry::start(dir).await;
        let fast = registry.address();
        for image in images {
            let from = format!("oci:{}:1", image.layout.display());
            skopeo(&[&from, &format!("docker://{fast}/{}:1", image.repository)]);
        }
        let slow = format!("127.0.0.1:{}", free_port());
        let config = dir.join("nginx.conf");
        fs::write(&config, limited(&slow, &fast, rate, dir))
            .during(|| format!("writing {}", config.display()))?;
        let mut command = Command::new(find("nginx", "nginx-light")?);
        command.arg("-c").arg(&config).arg("-p").arg(dir);
        let nginx = Process::spawn_bound("nginx", &command, dir.join("nginx.log"))?;
        let certs = dir.join("certs.d");
        for host in [&fast, &slow] {
            let dir = certs.join(host);
            fs::create_dir_all(&dir)
                .and_then(|()| {
                    fs::write(
                        dir.join("hosts.toml"),
                        format!("server = \"http://{host}\"\n"),
                    )
                })
                .during(|| format!("writing to {}", dir.display()))?;
        }
        Ok(Self {
            fast,
            slow,
            certs,
            _nginx: nginx,
            _registry: registry,
        })
    }
}

fn limited(listen: &str, registry: &str, rate: usize, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.err; worker_processes 1;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/temp;\n\
         server {{ listen {listen}; location / {{\n\
         proxy_pass http://{registry}; proxy_http_version 1.1; proxy_set_header Host $http_host;\n\
         proxy_max_temp_file_size 0; limit_rate {rate};\n}} }} }}\n"
    )
}

//! Debian's `docker-registry`, filled by `skopeo`, and a slow proxy in front of it.

use std::fs;
use std::net::TcpListener as StdListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::busybox;
use crate::packages::program;
use crate::process::Process;
use crate::proxy::free_port;
use crate::until;

/// A `docker-registry` on loopback. Dropping it stops it.
pub struct DockerRegistry {
    dir: PathBuf,
    port: u16,
    _process: Process,
}

impl DockerRegistry {
    /// Starts a registry with its files in `dir`.
    pub async fn start(dir: &Path) -> Self {
        Self::with(dir, "").await
    }

    /// Starts a registry with additional settings in the section `http`, each after a comma.
    pub async fn with(dir: &Path, http: &str) -> Self {
        let port = free_port();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"127.0.0.1:{port}\"{http}}}\n",
            dir.join("registry").display()
        );
        let path = dir.join("registry.yml");
        fs::write(&path, config).expect("write");
        let mut command = Command::new(program("docker-registry", "docker-registry"));
        command.arg("serve").arg(&path);
        let process = Process::spawn("docker-registry", &mut command, dir.join("registry.log"));
        let registry = Self {
            dir: dir.to_owned(),
            port,
            _process: process.expect("start docker-registry"),
        };
        until("docker-registry", || async {
            TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        registry
    }

    /// Host and port, as in an image name.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Pushes the busybox image under this name and tag.
    pub fn push(&self, name: &str) {
        let archive = self.dir.join("image.tar");
        busybox::write(&archive, "registry.example/any:1");
        let from = format!("docker-archive:{}", archive.display());
        skopeo(&[&from, &format!("docker://{}/{name}", self.address())]);
    }

    /// Starts a proxy that delays each chunk of a response.
    pub fn slowly(&self, delay: Duration) -> SlowRegistry {
        let bound = StdListener::bind(("127.0.0.1", free_port())).expect("bind");
        bound.set_nonblocking(true).expect("non-blocking");
        let port = bound.local_addr().expect("address").port();
        let listener = TcpListener::from_std(bound).expect("listener");
        let target = self.port;
        let task = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(forward(caller, target, delay));
            }
        });
        SlowRegistry { port, task }
    }
}

/// Runs `skopeo copy` with these arguments.
pub fn skopeo(arguments: &[&str]) {
    let output = Command::new(program("skopeo", "skopeo"))
        .args(["--insecure-policy", "copy", "--quiet"])
        .args(["--src-tls-verify=false", "--dest-tls-verify=false"])
        .args(arguments)
        .output()
        .expect("start skopeo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "skopeo {arguments:?}: {errors}");
}

/// See [`DockerRegistry::slowly`].
pub struct SlowRegistry {
    port: u16,
    task: JoinHandle<()>,
}

impl SlowRegistry {
    /// The full name of an image in it.
    pub fn image(&self, name: &str) -> String {
        format!("127.0.0.1:{}/{name}", self.port)
    }
}

impl Drop for SlowRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(caller: TcpStream, target: u16, delay: Duration) {
    let Ok(registry) = TcpStream::connect(("127.0.0.1", target)).await else {
        return;
    };
    let (mut from_caller, mut to_caller) = caller.into_split();
    let (mut from_registry, mut to_registry) = registry.into_split();
    let up = async {
        let _ = tokio::io::copy(&mut from_caller, &mut to_registry).await;
        let _ = to_registry.shutdown().await;
    };
    let down = async {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(n @ 1..) = from_registry.read(&mut buffer).await {
            tokio::time::sleep(delay).await;
            if to_caller.write_all(&buffer[..n]).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(up, down);
}

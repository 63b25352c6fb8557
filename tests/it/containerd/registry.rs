//! A real registry, and a way to it that can be slow.

use std::fs::File;
use std::net::TcpListener as StdListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::image;
use crate::harness::packages::program;
use crate::harness::proxy::free_port;
use crate::harness::until;

/// Debian's docker-registry on loopback. Dropping it ends it.
pub(super) struct Registry {
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let port = free_port();
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/data}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n",
            dir.path().display()
        );
        let path = dir.path().join("config.yml");
        std::fs::write(&path, config).expect("config");
        let log = File::create(dir.path().join("log")).expect("log");
        let child = Command::new(program("docker-registry", "docker-registry"))
            .arg("serve")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start docker-registry");
        let registry = Self { dir, port, child };
        until("the registry", || async {
            TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        registry
    }

    /// Puts the image of the tests there under this name and tag.
    pub(super) fn push(&self, name: &str) {
        let archive = self.dir.path().join("image.tar");
        image::write(&archive, "registry.example/any:1");
        let output = Command::new(program("skopeo", "skopeo"))
            .args([
                "copy",
                "--quiet",
                "--insecure-policy",
                "--dest-tls-verify=false",
            ])
            .arg(format!("docker-archive:{}", archive.display()))
            .arg(format!("docker://127.0.0.1:{}/{name}", self.port))
            .output()
            .expect("start skopeo");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "skopeo copy: {said}");
    }

    /// A way to it on which every answer waits so long.
    pub(super) async fn slowly(&self, delay: Duration) -> Slow {
        let bound = StdListener::bind(("127.0.0.1", free_port())).expect("bind");
        bound.set_nonblocking(true).expect("non-blocking");
        let port = bound.local_addr().expect("address").port();
        let listener = TcpListener::from_std(bound).expect("listener");
        let target = self.port;
        let task = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(carry(caller, target, delay));
            }
        });
        Slow { port, task }
    }
}

/// See [`Registry::slowly`].
pub(super) struct Slow {
    port: u16,
    task: JoinHandle<()>,
}

impl Slow {
    /// The name of an image there.
    pub(super) fn image(&self, name: &str) -> String {
        format!("127.0.0.1:{}/{name}", self.port)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes bytes on; those of an answer wait.
async fn carry(caller: TcpStream, target: u16, delay: Duration) {
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

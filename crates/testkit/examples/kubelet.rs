//! A stand-in for the kubelet in the virtual machine of `tests/v2/install.sh`: it reads flags, `--config` and `--config-dir` with the
//! kubelet's precedence, ends if the runtime does not answer at its start, then asks it once a second and answers `/healthz`.
//!
//! `/run/kubelet-longest-gap` has the longest time between two answers in milliseconds, since that file was last removed.
//! A file `/etc/kubelet-rejects` with an endpoint makes it end with that endpoint.

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use criscope::client;
use criscope::cri::v1;
use serde::Deserialize;

const LONGEST_GAP: &str = "/run/kubelet-longest-gap";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    container_runtime_endpoint: Option<String>,
}

fn flag(name: &str) -> Option<String> {
    let arguments: Vec<_> = std::env::args().collect();
    let mut found = None;
    for (at, argument) in arguments.iter().enumerate() {
        if argument == name {
            found = arguments.get(at + 1).cloned();
        } else if let Some(value) = argument.strip_prefix(name) {
            found = value.strip_prefix('=').map(str::to_owned).or(found);
        }
    }
    found
}

fn of_file(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let configuration: Configuration = serde_saphyr::from_str(&text).ok()?;
    let endpoint = configuration.container_runtime_endpoint;
    endpoint.filter(|endpoint| !endpoint.is_empty())
}

fn endpoint() -> String {
    let mut files: Vec<PathBuf> = flag("--config").into_iter().map(PathBuf::from).collect();
    if let Some(entries) = flag("--config-dir").and_then(|directory| fs::read_dir(directory).ok()) {
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        names.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "conf")
        });
        names.sort();
        files.extend(names);
    }
    let configured = files.iter().rev().find_map(|path| of_file(path));
    flag("--container-runtime-endpoint")
        .or(configured)
        .unwrap_or_else(|| "unix:///run/containerd/containerd.sock".to_owned())
}

fn healthz() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:10248")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nok");
        }
    });
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = endpoint();
    let rejects = fs::read_to_string("/etc/kubelet-rejects").unwrap_or_default();
    if rejects.trim() == endpoint {
        return Err("this kubelet cannot work with that runtime".into());
    }
    let channel = client::connect(&client::socket_path(&endpoint)?, Duration::from_secs(5)).await?;
    let mut runtime = client::runtime(channel);
    runtime.version(v1::VersionRequest::default()).await?;
    healthz()?;
    let mut answered = Instant::now();
    loop {
        let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default());
        // A real kubelet waits two minutes, and longer than the connection lasts.
        let pods = tokio::time::timeout(Duration::from_secs(2), pods).await;
        let pause = if let Ok(Ok(_)) = pods {
            let gap = answered.elapsed().as_millis();
            answered = Instant::now();
            let longest = fs::read_to_string(LONGEST_GAP).ok();
            let longest = longest.and_then(|text| text.parse().ok());
            if longest.is_none_or(|longest: u128| longest < gap) {
                fs::write(LONGEST_GAP, gap.to_string())?;
            }
            Duration::from_secs(1)
        } else {
            Duration::from_millis(200)
        };
        tokio::time::sleep(pause).await;
    }
}

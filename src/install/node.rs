//! The real node: systemctl, the runtime's socket, the kubelet's health port, `/proc`.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime;
use tokio::time::timeout;

use super::machine::{NodeOperations, RuntimeReadiness};
use super::sockdiag::served;
use crate::client;
use crate::cri::v1;

/// Timeout of every question.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The kubelet's default `healthzPort`.
const KUBELET_HEALTHZ_PORT: u16 = 10248;

/// This machine.
#[derive(Debug, Default)]
pub struct LocalNode {
    interrupted: Arc<AtomicBool>,
}

impl LocalNode {
    /// This machine; setting the flag interrupts an installation.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        Self { interrupted }
    }
}

impl NodeOperations for LocalNode {
    fn systemctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("systemctl")
            .args(arguments)
            .env("SYSTEMD_COLORS", "0")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text: Vec<_> = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect();
            return Err(if text.is_empty() {
                output.status.to_string()
            } else {
                text.join(" ")
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn runtime(&self, socket: &Path) -> Result<RuntimeReadiness, String> {
        let status = ask(async {
            let channel = client::connect(socket, QUESTION_TIMEOUT).await;
            let channel = channel.map_err(|error| error.to_string())?;
            let request = v1::StatusRequest::default();
            let answer = client::runtime(channel).status(request).await;
            answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()))
        })?;
        let status = status.into_inner().status.unwrap_or_default();
        let [runtime, network] = ["RuntimeReady", "NetworkReady"].map(|name| {
            let mut conditions = status.conditions.iter();
            conditions.any(|condition| condition.r#type == name && condition.status)
        });
        Ok(RuntimeReadiness { runtime, network })
    }

    fn pods(&self, socket: &Path) -> Result<usize, String> {
        let answer = ask(async {
            let channel = client::connect(socket, QUESTION_TIMEOUT).await;
            let channel = channel.map_err(|error| error.to_string())?;
            let request = v1::ListPodSandboxRequest::default();
            let answer = client::runtime(channel).list_pod_sandbox(request).await;
            answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()))
        })?;
        Ok(answer.into_inner().items.len())
    }

    fn healthz(&self) -> bool {
        healthz().unwrap_or(false)
    }

    fn connected(&self, unit: &str, socket: &Path) -> bool {
        let Ok(served) = served() else {
            return false;
        };
        let connections = served.iter().filter(|connection| connection.is_at(socket));
        let clients: HashSet<_> = connections.map(|connection| connection.client).collect();
        !clients.is_empty() && processes(unit).iter().any(|pid| has_socket(*pid, &clients))
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn ask<T>(question: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let answer = runtime.block_on(async { timeout(QUESTION_TIMEOUT, question).await });
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", QUESTION_TIMEOUT.as_secs())))
}

fn healthz() -> std::io::Result<bool> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, KUBELET_HEALTHZ_PORT));
    let mut stream = TcpStream::connect_timeout(&address, QUESTION_TIMEOUT)?;
    stream.set_read_timeout(Some(QUESTION_TIMEOUT))?;
    stream.set_write_timeout(Some(QUESTION_TIMEOUT))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer)?;
    let line = answer
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    Ok(line.ends_with(b" 200 OK"))
}

/// The processes in the cgroup of a unit.
fn processes(unit: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        text.split(['/', '\n']).any(|part| part == unit)
    })
    .collect()
}

fn has_socket(pid: i32, inodes: &HashSet<u32>) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        let inode = link.to_str().and_then(|link| link.strip_prefix("socket:["));
        let inode = inode.and_then(|rest| rest.strip_suffix(']')?.parse().ok());
        inode.is_some_and(|inode| inodes.contains(&inode))
    })
}

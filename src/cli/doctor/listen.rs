//! Checks criscope's own sockets.

use std::path::Path;

use nix::unistd::{AccessFlags, eaccess};

use super::super::output::ReportFinding;
use super::process::NodeFiles;
use super::socket::{SocketState, probe};

const TOPIC: &str = "listen";

/// Checks the path that is set by `key`. Also returns the process id of a criscope that listens on it.
pub(super) async fn check(
    key: &str,
    path: &Path,
    node: &NodeFiles,
) -> (Vec<ReportFinding>, Option<i32>) {
    let mut findings = vec![directory(key, path)];
    let (finding, holder) = occupant(key, path, node).await;
    findings.push(finding);
    (findings, holder)
}

fn directory(key: &str, path: &Path) -> ReportFinding {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let shown = directory.display();
    // The directory in which `serve` would create the missing ones.
    let mut above = directory.ancestors();
    let there = above.find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    if !there.is_dir() {
        return ReportFinding::fail(TOPIC, format!("{} is not a directory", there.display()));
    }
    match eaccess(there, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) if there == directory => ReportFinding::ok(TOPIC, format!("{shown} is writable")),
        Ok(()) => ReportFinding::ok(
            TOPIC,
            format!("{shown} does not exist yet; serve creates it"),
        ),
        Err(errno) => {
            let text = format!("{} is not writable: {}", there.display(), errno.desc());
            ReportFinding::fail(TOPIC, text).hint(format!(
                "run criscope as root, or set {key} to another directory"
            ))
        }
    }
}

async fn occupant(key: &str, path: &Path, node: &NodeFiles) -> (ReportFinding, Option<i32>) {
    let shown = path.display();
    let finding = match probe(path).await {
        SocketState::Absent => ReportFinding::ok(TOPIC, format!("{shown} is free")),
        SocketState::Stale => {
            ReportFinding::warn(TOPIC, format!("{shown} is stale: no process listens on it"))
                .hint("nothing to do: serve replaces it")
        }
        SocketState::OtherFile => {
            ReportFinding::fail(TOPIC, format!("{shown} exists and is not a socket"))
                .hint(format!("move it away, or set {key} to another path"))
        }
        SocketState::Denied => {
            ReportFinding::fail(TOPIC, format!("no permission to inspect {shown}"))
                .hint("run the doctor as root")
        }
        SocketState::Broken(error) => ReportFinding::fail(TOPIC, format!("{shown}: {error}")),
        SocketState::Live(None) => {
            ReportFinding::fail(TOPIC, format!("another process already listens on {shown}"))
        }
        // With socket activation systemd keeps listening while criscope is down.
        SocketState::Live(Some(1)) => {
            ReportFinding::ok(TOPIC, format!("systemd holds {shown} for criscope"))
        }
        SocketState::Live(Some(pid)) if node.comm(pid).as_deref() == Some("criscope") => {
            let text = format!("{} serves {shown}", node.describe(pid));
            return (ReportFinding::ok(TOPIC, text), Some(pid));
        }
        SocketState::Live(Some(pid)) => {
            let text = format!("{} already listens on {shown}", node.describe(pid));
            ReportFinding::fail(TOPIC, text).hint(format!("stop it, or set {key} to another path"))
        }
    };
    (finding, None)
}

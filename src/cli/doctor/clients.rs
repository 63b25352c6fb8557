//! Lists the clients of criscope's socket, and of the runtimes' sockets directly.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process;

use super::super::output::ReportFinding;
use super::process::NodeFiles;
use super::upstreams;
use crate::call::Client;
use crate::config::Config;
use crate::install::{ServerConnection, served};

const TOPIC: &str = "clients";

pub(super) fn check(config: &Config, node: &NodeFiles) -> Vec<ReportFinding> {
    let served = match served() {
        Ok(served) => served,
        Err(error) => {
            let text = format!("the clients of the sockets are unknown: {error}");
            return vec![ReportFinding::warn(TOPIC, text)];
        }
    };
    let owners = owners(node, &served);
    let mut findings = vec![ours(&config.server.listen, &served, &owners, node)];
    let second = config.containerd_socket();
    findings.extend(second.map(|path| ours(path, &served, &owners, node)));
    for (name, endpoint) in upstreams(config) {
        findings.extend(past_us(name, endpoint, &served, &owners, node));
    }
    findings
}

/// Programs by name, and the number of connections whose process this user may not inspect.
#[derive(Debug, Default, PartialEq, Eq)]
struct ConnectedPrograms {
    programs: BTreeMap<i32, String>,
    unknown: usize,
}

impl ConnectedPrograms {
    fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.unknown == 0
    }

    fn words(&self, node: &NodeFiles) -> String {
        let pids = self.programs.keys();
        let mut words: Vec<_> = pids.map(|pid| node.describe(*pid)).collect();
        if self.unknown > 0 {
            words.push(format!("{} more that only root can name", self.unknown));
        }
        words.join(", ")
    }

    fn has(&self, client: Client) -> bool {
        let mut names = self.programs.values();
        names.any(|comm| Client::from_comm(comm) == client)
    }
}

fn connected(
    path: &Path,
    served: &[ServerConnection],
    owners: &HashMap<u32, (i32, String)>,
) -> ConnectedPrograms {
    let mut connected = ConnectedPrograms::default();
    for connection in served.iter().filter(|served| served.is_at(path)) {
        match owners.get(&connection.client) {
            Some((pid, comm)) => {
                connected.programs.insert(*pid, comm.clone());
            }
            None => connected.unknown += 1,
        }
    }
    connected
}

fn ours(
    listen: &Path,
    served: &[ServerConnection],
    owners: &HashMap<u32, (i32, String)>,
    node: &NodeFiles,
) -> ReportFinding {
    let connected = connected(listen, served, owners);
    let shown = listen.display();
    if connected.is_empty() {
        return ReportFinding::ok(TOPIC, format!("no client is connected to {shown}"));
    }
    ReportFinding::ok(
        TOPIC,
        format!("connected to {shown}: {}", connected.words(node)),
    )
}

fn past_us(
    name: &str,
    endpoint: &Path,
    served: &[ServerConnection],
    owners: &HashMap<u32, (i32, String)>,
    node: &NodeFiles,
) -> Option<ReportFinding> {
    let mut connected = connected(endpoint, served, owners);
    let own = i32::try_from(process::id()).unwrap_or_default();
    connected
        .programs
        .retain(|pid, comm| *pid != own && comm != "criscope");
    if connected.is_empty() {
        return None;
    }
    let text = format!(
        "also connected to {name}, not through criscope: {}",
        connected.words(node)
    );
    let finding = ReportFinding::ok(TOPIC, text);
    if connected.has(Client::Kubelet) {
        return Some(finding.hint(
            "a kubelet's cAdvisor always asks the runtime itself, outside the CRI; see kubelet above for where its CRI calls go",
        ));
    }
    Some(finding)
}

/// The programs that have each of these sockets open.
fn owners(node: &NodeFiles, served: &[ServerConnection]) -> HashMap<u32, (i32, String)> {
    let wanted: HashSet<u32> = served.iter().map(|served| served.client).collect();
    let mut owners = HashMap::new();
    for pid in node.pids() {
        // No permission, or it has exited.
        let Ok(entries) = fs::read_dir(node.0.path(format!("/proc/{pid}/fd"))) else {
            continue;
        };
        for entry in entries.flatten() {
            let inode = fs::read_link(entry.path())
                .ok()
                .and_then(|link| inode(&link));
            if let Some(inode) = inode.filter(|inode| wanted.contains(inode)) {
                let comm = node.comm(pid).unwrap_or_default();
                owners.insert(inode, (pid, comm));
            }
        }
    }
    owners
}

/// The number in `socket:[123]`.
fn inode(link: &Path) -> Option<u32> {
    let text = link.to_str()?.strip_prefix("socket:[")?;
    text.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::testing::until;

    #[test]
    fn our_own_connection_is_found_and_left_out_of_the_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        let _client = UnixStream::connect(&path).expect("connected");
        let _server = listener.accept().expect("accepted");

        let node = NodeFiles::default();
        let own = i32::try_from(process::id()).expect("fits");
        // A child of a concurrent test has our sockets too, until its `exec`.
        let (served, owners) = until("a look at ourselves alone", || {
            let served = served().expect("answered");
            let owners = owners(&node, &served);
            let found = connected(&path, &served, &owners);
            let programs: Vec<_> = found.programs.into_keys().collect();
            (found.unknown == 0 && programs == [own]).then_some((served, owners))
        });
        assert_eq!(past_us("x", &path, &served, &owners, &node), None);
        let finding = ours(&path, &served, &owners, &node);
        assert!(finding.text.contains(&node.describe(own)), "{finding:?}");
    }

    #[test]
    fn what_only_root_can_name_is_counted() {
        let served = [ServerConnection {
            path: "/run/c.sock".into(),
            file: None,
            client: 7,
        }];
        let found = connected(Path::new("/var/run/c.sock"), &served, &HashMap::new());
        assert_eq!(
            found.words(&NodeFiles::default()),
            "1 more that only root can name"
        );
    }

    #[test]
    fn only_sockets_have_an_inode_here() {
        assert_eq!(inode(Path::new("socket:[123]")), Some(123));
        assert_eq!(inode(Path::new("pipe:[123]")), None);
        assert_eq!(inode(Path::new("/dev/null")), None);
    }
}

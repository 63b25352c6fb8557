//! Finds what is left of pods on a node, and removes it after a failed test.

use super::node::{Node, Witness};
use crate::prelude::*;

/// Asserts that only the witness's objects are left.
pub(super) async fn nothing_but(node: &Node, witness: &Witness, when: &str) {
    check(
        node,
        &[&witness.life.sandbox, &witness.life.container],
        when,
    )
    .await;
}

/// Asserts that nothing is left.
pub(super) async fn nothing(node: &Node, when: &str) {
    check(node, &[], when).await;
}

/// Waits, because the kernel removes a link some time after its namespace, and namespaces one after another.
async fn check(node: &Node, ids: &[&str], when: &str) {
    let end = Instant::now() + PATIENCE;
    until_true(when, async || {
        let found = find(node, ids);
        assert!(Instant::now() < end, "{when}: left: {found:#?}");
        found.is_empty()
    })
    .await;
}

/// Everything that does not belong to these ids.
pub(super) fn find(node: &Node, ids: &[&str]) -> Vec<String> {
    let pods = ids.len() / 2;
    let ours = |text: &str| ids.iter().any(|id| text.contains(id));
    let mut found = Vec::new();
    let mounts = leaks::mounts(node.name())
        .into_iter()
        .map(|mount| format!("mount {mount}"));
    found.extend(mounts.filter(|mount| !ours(mount)));
    let cgroups = leaks::cgroups(node.name()).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() == 64 && !ours(&name)
    });
    found.extend(cgroups.map(|path| format!("cgroup {}", path.display())));
    let processes = processes(node).into_iter();
    let processes = processes.filter(|(_, what)| !ours(what));
    found.extend(processes.map(|(pid, what)| format!("process {pid}: {what}")));
    for dir in [
        "root/sandboxes",
        "root/containers",
        "root/broken",
        "root/cni/results",
        "root/images/tmp",
        "state/pods",
        "state/ns",
        "state/oci/runc",
    ] {
        let entries = names(&node.path(dir))
            .into_iter()
            .filter(|name| !ours(name));
        found.extend(entries.map(|name| format!("file {dir}/{name}")));
    }
    let leases = names(&node.path("ipam").join(node.name()));
    let leases: Vec<_> = leases
        .into_iter()
        .filter(|name| name.starts_with("10."))
        .collect();
    if leases.len() != pods {
        found.push(format!("addresses {leases:?} for {pods} pods"));
    }
    let links = links(node);
    if links.len() > pods {
        found.push(format!("links {links:?} for {pods} pods"));
    }
    found.extend(rules(node));
    found
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Shims, plugins and runtimes by their arguments and environment, and their children by cgroup. Each with its cgroup,
/// which names its container.
pub(super) fn processes(node: &Node) -> Vec<(i32, String)> {
    let dir = node.path("").display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // It may exit meanwhile.
        let read = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let (arguments, cgroup) = (read("cmdline"), read("cgroup"));
        let inside = cgroup.contains(&format!("{}/", node.cgroup()));
        let tools = read("environ").contains(&format!("CNI_NETNS={dir}"));
        if (arguments.contains(&dir) || inside || tools) && !arguments.is_empty() {
            found.push((pid, format!("{arguments} in {}", cgroup.replace('\n', " "))));
        }
    }
    found
}

/// The node's ends of the pods' veth pairs.
fn links(node: &Node) -> Vec<String> {
    let output = node
        .inside(&program("ip", "iproute2"))
        .args(["-o", "link", "show", "type", "veth"])
        .output();
    let text = String::from_utf8(output.expect("ip").stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

/// Rules that contain the network's name, as those of portmap do.
fn rules(node: &Node) -> Vec<String> {
    let output = node.inside(&program("iptables-save", "iptables")).output();
    let text = String::from_utf8(output.expect("iptables-save").stdout).expect("text");
    let ours = text.lines().filter(|line| line.contains(node.name()));
    ours.map(|line| format!("rule {line}")).collect()
}

/// Kills and unmounts everything of a node, like a power failure.
pub(super) fn power_off(node: &Node) {
    leaks::end(|| processes(node));
    leaks::unmount(&leaks::mounts(node.name()));
    leaks::remove_cgroups(node.name());
}

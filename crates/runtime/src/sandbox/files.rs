//! The files of a pod that are mounted into its containers: `hostname`, `hosts`, `resolv.conf`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use criscope_cri::v1::{DnsConfig, PodSandboxConfig};

/// The host name of a pod: the configured one, or the node's if that is empty or the pod has no UTS namespace.
pub(crate) fn hostname(config: &PodSandboxConfig, own: bool) -> String {
    if config.hostname.is_empty() || !own {
        let node = nix::unistd::gethostname();
        return node.map_or_else(
            |_| String::new(),
            |name| name.to_string_lossy().into_owned(),
        );
    }
    config.hostname.clone()
}

const HOSTNAME: &str = "hostname";
const HOSTS: &str = "hosts";
const RESOLV_CONF: &str = "resolv.conf";

/// The files in a sandbox directory. Containers can write them, and so make them as large as they like.
pub(crate) fn paths(dir: &Path) -> Vec<PathBuf> {
    let names = [HOSTNAME, HOSTS, RESOLV_CONF];
    names.map(|name| dir.join(name)).to_vec()
}

/// Every user of a container can read them, regardless of the daemon's umask.
const FILE_MODE: u32 = 0o644;

/// Writes the files into the sandbox directory, owned by the pod's root user and group.
pub(super) fn write(
    dir: &Path,
    config: &PodSandboxConfig,
    hostname: &str,
    owner: (u32, u32),
) -> Result<()> {
    let text = format!("{hostname}\n");
    write_owned(&dir.join(HOSTNAME), text.as_bytes(), owner)?;
    write_owned(&dir.join(HOSTS), &host_file("/etc/hosts")?, owner)?;
    let resolv = match &config.dns_config {
        None => host_file("/etc/resolv.conf")?,
        Some(dns) => resolv_conf(dns).into_bytes(),
    };
    write_owned(&dir.join(RESOLV_CONF), &resolv, owner)
}

fn write_owned(path: &Path, content: &[u8], (uid, gid): (u32, u32)) -> Result<()> {
    fs::write(path, content)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(FILE_MODE)))
        .and_then(|()| chown(path, Some(uid), Some(gid)))
        .map_err(|e| Error::io("write", path, e))
}

/// Reads a file of the node; empty if it does not exist.
fn host_file(path: &str) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|e| Error::io("read", Path::new(path), e)),
    }
}

/// Renders a `resolv.conf` (resolv.conf(5)). An empty DNS config yields an empty file, not the node's.
fn resolv_conf(dns: &DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::testing::with_umask;

    #[test]
    fn dns_options_are_rendered_in_order() {
        let dns = DnsConfig {
            servers: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
            searches: vec!["a.b".to_owned(), "c".to_owned()],
            options: vec!["ndots:5".to_owned()],
        };
        assert_eq!(
            resolv_conf(&dns),
            "search a.b c\nnameserver 10.0.0.1\nnameserver fd00::1\noptions ndots:5\n"
        );
        assert_eq!(resolv_conf(&DnsConfig::default()), "");
    }

    #[test]
    fn a_pod_without_dns_config_uses_the_nodes_files() {
        let dir = tempfile::tempdir().expect("valid");
        write(dir.path(), &PodSandboxConfig::default(), "pod", (0, 0)).expect("valid");
        let read = |name: &str| fs::read(dir.path().join(name)).expect("valid");
        assert_eq!(read("hostname"), b"pod\n");
        assert_eq!(
            read("resolv.conf"),
            host_file("/etc/resolv.conf").expect("valid")
        );
        let empty = PodSandboxConfig {
            dns_config: Some(DnsConfig::default()),
            ..PodSandboxConfig::default()
        };
        write(dir.path(), &empty, "pod", (7, 8)).expect("valid");
        let owner = fs::metadata(dir.path().join("hosts")).expect("valid");
        assert_eq!((owner.uid(), owner.gid()), (7, 8));
        assert_eq!(read("resolv.conf"), b"");
    }

    #[test]
    fn every_user_of_a_container_reads_the_files_whatever_the_umask() {
        for umask in [0o000, 0o777] {
            let dir = tempfile::tempdir().expect("valid");
            let config = PodSandboxConfig::default();
            with_umask(umask, || write(dir.path(), &config, "pod", (0, 0))).expect("valid");
            for name in ["hostname", "hosts", "resolv.conf"] {
                let file = fs::metadata(dir.path().join(name)).expect("valid");
                assert_eq!(file.mode() & 0o7777, 0o644, "{name}, {umask:o}");
            }
        }
    }
}

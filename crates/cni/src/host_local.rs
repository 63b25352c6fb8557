//! Releases addresses of the plugin `host-local` without it: one file for each address, in a directory for each network, with the
//! container and the interface in it.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::conf::Plugin;

/// Its type.
pub(crate) const HOST_LOCAL: &str = "host-local";

/// Where it keeps its files without a `dataDir`.
const DATA_DIR: &str = "/var/lib/cni/networks";

/// [`DATA_DIR`].
pub(crate) fn default_data_dir() -> PathBuf {
    PathBuf::from(DATA_DIR)
}

/// A longer file is none of an address.
const MAX_FILE: u64 = 4096;

/// How long to wait for the lock of a network, which the plugin holds for some milliseconds.
const LOCKED_WITHIN: Duration = Duration::from_secs(5);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// The type of the IPAM plugin that a plugin calls.
pub(crate) fn ipam_type(plugin: &Plugin) -> Option<&str> {
    let kind = plugin.conf.get("ipam")?.get("type")?.as_str()?;
    (!kind.is_empty() && kind != "." && kind != ".." && !kind.contains(['/', '\0'])).then_some(kind)
}

/// The directory of the addresses that a plugin gets from host-local; `None` if it gets none.
pub(crate) fn data_dir(plugin: &Plugin) -> Option<PathBuf> {
    ipam_type(plugin).filter(|kind| *kind == HOST_LOCAL)?;
    let named = plugin.conf.get("ipam").and_then(|ipam| ipam.get("dataDir"));
    let named = named.and_then(Value::as_str).filter(|dir| !dir.is_empty());
    Some(PathBuf::from(named.unwrap_or(DATA_DIR)))
}

/// Releases the addresses of a container in a network, or in all; with an interface those of that alone. Returns how many there
/// were.
///
/// # Errors
/// The first failure; the others are still released.
pub(crate) fn release(
    data_dir: &Path,
    network: Option<&str>,
    container: &str,
    interface: Option<&str>,
) -> io::Result<usize> {
    let networks = match network {
        Some(network) => vec![data_dir.join(network)],
        None => entries(data_dir)?,
    };
    let (mut released, mut result) = (0, Ok(()));
    for network in networks.into_iter().filter(|dir| dir.is_dir()) {
        for file in entries(&network)? {
            if !is_held(&file, container, interface) {
                continue;
            }
            let lock = lock(&network);
            // The plugin may have released it, and given it to another container.
            if is_held(&file, container, interface) {
                match fs::remove_file(&file) {
                    Ok(()) => released += 1,
                    Err(error) => result = result.and(Err(error)),
                }
            }
            drop(lock);
        }
    }
    result.map(|()| released)
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns whether a file is that of an address of a container. Old versions of the plugin wrote no interface.
fn is_held(file: &Path, container: &str, interface: Option<&str>) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    if name.is_none_or(|name| name.parse::<IpAddr>().is_err()) {
        return false;
    }
    let is_small =
        fs::symlink_metadata(file).is_ok_and(|found| found.is_file() && found.len() <= MAX_FILE);
    let text = is_small.then(|| fs::read_to_string(file).unwrap_or_default());
    let text = text.unwrap_or_default();
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(container)
        && match (lines.next(), interface) {
            (Some(held), Some(interface)) => held == interface,
            _ => true,
        }
}

/// Locks a network as the plugin does. Without the lock an address is released all the same.
fn lock(network: &Path) -> Option<fs::File> {
    let file = fs::File::create(network.join("lock")).ok()?;
    let end = Instant::now() + LOCKED_WITHIN;
    while file.try_lock().is_err() {
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOCK_AGAIN);
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_container_are_released() {
        let dir = tempfile::tempdir().expect("dir");
        for (network, file, text) in [
            ("a", "10.0.0.2", "c1\r\neth0"),
            ("a", "10.0.0.3", "c2\r\neth0"),
            ("a", "10.0.0.4", "c1\r\neth1"),
            ("a", "fd00::2", "c1\r\neth0"),
            ("a", "last_reserved_ip.0", "c1"),
            ("b", "10.1.0.2", "c1"),
            ("b", "10.1.0.3", "c11\r\neth0"),
        ] {
            fs::create_dir_all(dir.path().join(network)).expect("network");
            fs::write(dir.path().join(network).join(file), text).expect("address");
        }
        let release = |network, interface| release(dir.path(), network, "c1", interface);
        assert_eq!(release(Some("a"), Some("eth0")).expect("released"), 2);
        assert_eq!(release(Some("none"), None).expect("released"), 0);
        assert_eq!(release(None, None).expect("released"), 2);
        let left: Vec<_> = ["a/10.0.0.3", "a/last_reserved_ip.0", "b/10.1.0.3"]
            .iter()
            .filter(|file| dir.path().join(file).exists())
            .collect();
        assert_eq!(left.len(), 3);
        let none = dir.path().join("none");
        assert_eq!(super::release(&none, None, "c1", None).expect("nothing"), 0);
    }
}

//! Plugins that are installed on the node. The runtime starts them with one end of a socket pair as descriptor 3.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::plugin::check_index;

/// The descriptor of the socket in the plugin.
const PLUGIN_SOCKET_FD: i32 = 3;

/// The longest configuration of a plugin.
const MAX_CONFIG: u64 = 1 << 20;

/// The first bytes of a WebAssembly module.
const WASM_MAGIC: [u8; 4] = *b"\0asm";

/// The problem of a file whose name has no index.
const NO_INDEX: &str = "its name does not begin with two digits and a dash";

/// An installed plugin.
#[derive(Debug)]
pub(crate) struct InstalledPlugin {
    /// The file name, `NN-name`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) config: String,
}

/// The process of a plugin. Killed, with its process group, when this is dropped.
#[derive(Debug)]
pub(crate) struct PluginProcess {
    child: Option<Child>,
    group: Option<Pid>,
}

/// Finds the installed plugins, in the order of their names. Files that are not executable are ignored. Unusable files are
/// returned as problems, with the path of each.
pub(crate) fn discover(
    dir: &Path,
    config_dir: &Path,
) -> (Vec<InstalledPlugin>, Vec<(PathBuf, String)>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (found, problems),
        Err(error) => return (found, vec![(dir.to_owned(), error.to_string())]),
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            continue;
        }
        match installed(&path, config_dir) {
            Ok(plugin) => found.push(plugin),
            Err(problem) => problems.push((path, problem)),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    (found, problems)
}

fn installed(path: &Path, config_dir: &Path) -> Result<InstalledPlugin, String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("its name is not text")?;
    let (index, base) = name.split_once('-').ok_or(NO_INDEX)?;
    check_index(index)?;
    if is_wasm(path).map_err(|error| error.to_string())? {
        return Err("WebAssembly plugins are not supported".to_owned());
    }
    Ok(InstalledPlugin {
        config: config(config_dir, name, base)?,
        name: name.to_owned(),
        path: path.to_owned(),
    })
}

fn is_wasm(path: &Path) -> io::Result<bool> {
    use std::io::Read as _;
    let mut head = Vec::new();
    fs::File::open(path)?.take(4).read_to_end(&mut head)?;
    Ok(head == WASM_MAGIC)
}

/// The configuration of a plugin: `NN-name.conf`, else `name.conf`, else empty.
fn config(dir: &Path, name: &str, base: &str) -> Result<String, String> {
    for name in [name, base] {
        let path = dir.join(format!("{name}.conf"));
        let text = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > MAX_CONFIG => Err(io::Error::other("too large")),
            Ok(_) => fs::read_to_string(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Err(error),
        };
        return text.map_err(|error| format!("{}: {error}", path.display()));
    }
    Ok(String::new())
}

/// Starts an installed plugin and returns the other end of its socket.
pub(crate) fn launch(plugin: &InstalledPlugin) -> io::Result<(UnixStream, PluginProcess)> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs.into_std()?);
    // The socket pair is non-blocking, and the Go library sets that flag itself.
    rustix::fs::fcntl_setfl(&theirs, rustix::fs::OFlags::empty())?;
    let (index, base) = plugin.name.split_once('-').unwrap_or_default();
    let mut command = Command::new(&plugin.path);
    command
        .env_clear()
        .env("NRI_PLUGIN_NAME", base)
        .env("NRI_PLUGIN_IDX", index)
        .env("NRI_PLUGIN_SOCKET", PLUGIN_SOCKET_FD.to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let socket = theirs.as_raw_fd();
    #[allow(unsafe_code)]
    // SAFETY: the closure calls only dup2, fcntl and prctl, which are async-signal-safe; the descriptors stay open until exec.
    unsafe {
        command.pre_exec(move || {
            let socket = BorrowedFd::borrow_raw(socket);
            inherit(socket)?;
            // No plugin outlives the daemon, however it ends.
            Ok(rustix::process::set_parent_process_death_signal(Some(
                Signal::TERM,
            ))?)
        });
    }
    let child = command.spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id as i32));
    let process = PluginProcess {
        child: Some(child),
        group,
    };
    Ok((ours, process))
}

/// Moves a descriptor to the number that the plugin expects.
fn inherit(socket: BorrowedFd<'_>) -> io::Result<()> {
    if socket.as_raw_fd() == PLUGIN_SOCKET_FD {
        return Ok(rustix::io::fcntl_setfd(
            socket,
            rustix::io::FdFlags::empty(),
        )?);
    }
    #[allow(unsafe_code)]
    // SAFETY: the descriptor is only replaced, and left to the program that is executed.
    let mut place = std::mem::ManuallyDrop::new(unsafe {
        <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(PLUGIN_SOCKET_FD)
    });
    Ok(rustix::io::dup2(socket, &mut place)?)
}

impl PluginProcess {
    /// The process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // The process was not waited for yet, so its id is still in use.
        if let (Some(group), Some(_)) = (self.group, self.pid()) {
            let _ended = rustix::process::kill_process_group(group, Signal::KILL);
        }
        if let (Some(mut child), Ok(runtime)) =
            (self.child.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move { child.wait().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, content: &[u8], mode: u32) {
        let path = dir.join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn installed_plugins_are_found_with_their_configurations() {
        let (plugins, configs) = (
            tempfile::tempdir().expect("a"),
            tempfile::tempdir().expect("b"),
        );
        file(plugins.path(), "20-b", b"#!/bin/sh", 0o755);
        file(plugins.path(), "10-a", b"#!/bin/sh", 0o755);
        file(plugins.path(), "README", b"text", 0o644);
        file(plugins.path(), "nonsense", b"#!/bin/sh", 0o755);
        file(plugins.path(), "30-w", b"\0asm\x01\0\0\0", 0o755);
        file(configs.path(), "a.conf", b"general", 0o600);
        file(configs.path(), "20-b.conf", b"own", 0o600);
        file(configs.path(), "b.conf", b"general", 0o600);
        let (found, problems) = discover(plugins.path(), configs.path());
        let found: Vec<_> = found.iter().map(|p| (&*p.name, &*p.config)).collect();
        assert_eq!(found, [("10-a", "general"), ("20-b", "own")]);
        let mut problems = problems;
        problems.sort();
        let wasm = "WebAssembly plugins are not supported".to_owned();
        assert_eq!(
            problems,
            [
                (plugins.path().join("30-w"), wasm),
                (plugins.path().join("nonsense"), NO_INDEX.to_owned())
            ]
        );
        let (none, problems) = discover(&plugins.path().join("missing"), configs.path());
        assert!(none.is_empty() && problems.is_empty());
    }
}

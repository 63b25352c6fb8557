//! The part of `criscope-agent install` that happens in the mount namespace of the node.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use criscope::install::{FilesystemRoot, is_installed};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Directory of the programs on the node while they are needed: `criscope install` copies them to their place, so that a failed
/// installation leaves none, and `criscope uninstall` removes them.
const STAGE_DIR: &str = "/var/lib/criscope-stage";

/// The programs, `criscope` first.
const PROGRAMS: [&str; 2] = ["criscope", "criscope-shim"];

/// Copy the programs to the node and run one of them there: the part that happens in the node's mount namespace
#[derive(Clone, Debug, clap::Args)]
pub struct EnterArgs {
    /// Restore the node as it was, instead
    #[arg(long)]
    pub(super) uninstall: bool,
    /// Directory of the programs in the image
    #[arg(long, value_name = "DIR", default_value = "/usr/bin")]
    pub(super) from: PathBuf,
    /// A process in the mount namespace of the node
    #[arg(long, value_name = "PID", default_value_t = 1)]
    pub(super) pid: u32,
    /// Further arguments of criscope install
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(super) more: Vec<String>,
}

/// The reason why the program of the node cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct EnterError(String, io::Error);

/// Enters the node and executes the program there. Returns only with an error, or if there is nothing to uninstall.
///
/// # Errors
/// If the namespace cannot be entered, or a program not be written or started. Call it in a process of one thread.
pub fn enter(what: &EnterArgs) -> Result<(), EnterError> {
    // The programs are read first: the image is not visible from the node.
    let programs = PROGRAMS.map(|name| (name, fs::read(what.from.join(name))));
    let path = format!("/proc/{}/ns/mnt", what.pid);
    let namespace = File::open(&path).map_err(named(&path))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| EnterError(path, error.into()))?;
    // A node whose installation has failed is as it was.
    if what.uninstall && !is_installed(&FilesystemRoot::default()) {
        return Ok(());
    }
    let stage = Path::new(STAGE_DIR);
    fs::create_dir_all(stage).map_err(named(STAGE_DIR))?;
    for (name, bytes) in programs {
        let placed = bytes.and_then(|bytes| place(&stage.join(name), &bytes));
        placed.map_err(named(name))?;
    }
    // The agent of this node reads a socket of the daemon.
    let verb: &[&str] = if what.uninstall {
        &["uninstall"]
    } else {
        &["install", "--agent"]
    };
    let program = stage.join(PROGRAMS[0]);
    let failed = Command::new(&program).args(verb).args(&what.more).exec();
    Err(EnterError(program.display().to_string(), failed))
}

/// Removes the programs that are no longer needed. `root` is the node's root directory.
///
/// # Errors
/// If they cannot be removed.
pub(super) fn remove_stage(root: &Path) -> io::Result<()> {
    let stage = root.join(STAGE_DIR.trim_start_matches('/'));
    match fs::remove_dir_all(stage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a program atomically, unless the node has it already.
fn place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut there = Vec::new();
    let found = File::open(path).and_then(|mut file| file.read_to_end(&mut there));
    if found.is_ok() && there == bytes {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&new)?;
    file.write_all(bytes)?;
    // A file that an earlier attempt has left may have another mode.
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn named(what: &str) -> impl FnOnce(io::Error) -> EnterError {
    let what = what.to_owned();
    move |error| EnterError(what, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_replaced_whole_or_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("criscope");
        place(&path, b"one").expect("placed");
        let first = fs::metadata(&path)
            .expect("there")
            .modified()
            .expect("a time");
        place(&path, b"one").expect("the same");
        assert_eq!(
            first,
            fs::metadata(&path)
                .expect("there")
                .modified()
                .expect("a time")
        );
        place(&path, b"two").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(
            (
                mode & 0o777,
                fs::read_dir(dir.path()).expect("read").count()
            ),
            (0o755, 1)
        );
    }
}

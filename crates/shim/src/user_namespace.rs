//! Creates a user namespace and namespaces owned by it for the daemon, which cannot because it is multithreaded.

use std::io::{self, Read as _, Write as _};

use nix::sched::{CloneFlags, unshare};

/// Creates the named namespaces, reports it on stdout and waits for the end of stdin: until then the daemon finds them in
/// `/proc/PID/ns`. It ends with the daemon in any case.
pub(super) fn make(kinds: impl Iterator<Item = String>) -> io::Result<()> {
    let mut flags = CloneFlags::CLONE_NEWUSER;
    for kind in kinds {
        flags |= match kind.as_str() {
            "net" => CloneFlags::CLONE_NEWNET,
            "ipc" => CloneFlags::CLONE_NEWIPC,
            "uts" => CloneFlags::CLONE_NEWUTS,
            _ => return Err(io::Error::other(format!("unknown namespace {kind}"))),
        };
    }
    // In one call: the kernel creates the user namespace first, and the others in it.
    unshare(flags)?;
    println!("ready");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

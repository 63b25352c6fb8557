//! A user namespace and others that belong to it, for the daemon, which has too many threads to make one.

use std::io::{self, Read as _, Write as _};

use nix::sched::{CloneFlags, unshare};

/// Makes the namespaces named, says so on stdout and waits for the end of stdin: until then the daemon finds them in
/// `/proc/PID/ns`. It ends with the daemon too, whatever ends that.
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
    // In one call: the kernel makes the user namespace first, and the others its own.
    unshare(flags)?;
    println!("ready");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

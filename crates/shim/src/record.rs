//! The records of a container that outlive its shim: its init process and its exit, one small JSON file each.

use std::fs::{self, File};
use std::io::{self, Write as _};

use super::protocol::Exit;
use super::stat::Stat;

/// Suffix of the record of an init process.
pub const INIT: &str = "init";

/// Suffix of the record of an exit.
pub const EXIT: &str = "exit";

/// Returns whether a name can be part of a file name: letters, digits, `_`, `-` and `.`, not starting with `.`.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with(['.', '-'])
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// Returns the start time of a process in clock ticks since boot: together with the pid it identifies a process
/// uniquely. `None` if there is no such process, or it is a zombie.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = Stat::read(pid).filter(|stat| !stat.has_ended())?;
    Some(stat.started)
}

pub(super) fn write_init(id: &str, pid: u32) -> io::Result<()> {
    let start = start_time(pid).unwrap_or(0);
    write(
        id,
        INIT,
        &format!("{{\"v\":1,\"pid\":{pid},\"start_time\":{start}}}\n"),
    )
}

pub(super) fn write_exit(exit: &Exit) -> io::Result<()> {
    let Exit {
        pid,
        code,
        signal,
        oom_kills,
        at,
        target,
        ..
    } = exit;
    let text = format!(
        "{{\"v\":1,\"pid\":{pid},\"code\":{code},\"signal\":{signal},\"oom_kills\":{oom_kills},\"at\":{at}}}\n"
    );
    write(&target.container, EXIT, &text)
}

pub(super) fn remove(id: &str) {
    for suffix in [INIT, EXIT] {
        let _ = fs::remove_file(format!("{id}.{suffix}"));
    }
}

/// Writes the file atomically and durably.
fn write(id: &str, suffix: &str, text: &str) -> io::Result<()> {
    let draft = format!(".{id}.{suffix}.new");
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    fs::rename(draft, format!("{id}.{suffix}"))
}

//! The exit records of the containers of a shim that is gone.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use criscope_shim::record::{EXIT, INIT, is_name, start_time};

/// The last known state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitFate {
    /// The process exited, and the shim recorded the exit.
    Ended {
        /// 128 + n for signal n.
        code: i32,
        /// The signal, or 0.
        signal: i32,
        /// OOM kills in its cgroup.
        oom_kills: u64,
        /// Nanoseconds since 1970.
        at: u64,
    },
    /// The init process is still running, but its output and its exit are not observed.
    Abandoned {
        /// The init process.
        pid: u32,
        /// Start time of the init process, in clock ticks since boot.
        start_time: u64,
    },
    /// The process exited with an unknown exit code.
    Unknown,
    /// The record cannot be read, for this reason.
    Damaged(String),
}

/// The supported version of the records. Within a version, fields are only added; other changes increment it.
const VERSION: u32 = 1;

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Deserialize)]
struct Init {
    pid: u32,
    start_time: u64,
}

#[derive(Deserialize)]
struct Ended {
    code: i32,
    signal: i32,
    oom_kills: u64,
    at: u64,
}

/// Reads the records of a pod's directory. Only for a pod whose shim is gone: a live shim has newer state.
///
/// # Errors
/// If the directory cannot be read. A damaged record is [`ExitFate::Damaged`] and does not affect others.
pub fn exit_records(dir: &Path) -> io::Result<BTreeMap<String, ExitFate>> {
    let mut fates = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(id) = name
            .to_str()
            .and_then(|name| name.strip_suffix(&format!(".{INIT}")))
        else {
            continue;
        };
        if is_name(id) {
            fates.insert(
                id.to_owned(),
                fate(dir, id).unwrap_or_else(|e| ExitFate::Damaged(e.to_string())),
            );
        }
    }
    Ok(fates)
}

fn fate(dir: &Path, id: &str) -> io::Result<ExitFate> {
    match fs::read(dir.join(format!("{id}.{EXIT}"))) {
        Ok(text) => {
            let Ended {
                code,
                signal,
                oom_kills,
                at,
            } = parse(&text)?;
            return Ok(ExitFate::Ended {
                code,
                signal,
                oom_kills,
                at,
            });
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let init: Init = parse(&fs::read(dir.join(format!("{id}.{INIT}")))?)?;
    Ok(match start_time(init.pid) {
        Some(now) if now == init.start_time => ExitFate::Abandoned {
            pid: init.pid,
            start_time: now,
        },
        _ => ExitFate::Unknown,
    })
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> io::Result<T> {
    let Version { v } = serde_json::from_slice(text)?;
    if v != VERSION {
        return Err(io::Error::other(format!(
            "its exit record has version {v}, and this criscope reads version {VERSION}"
        )));
    }
    Ok(serde_json::from_slice(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account_for(init: &str, exit: Option<&str>) -> ExitFate {
        let dir = tempfile::tempdir().expect("dir");
        fs::write(dir.path().join("web.init"), init).expect("init");
        if let Some(exit) = exit {
            fs::write(dir.path().join("web.exit"), exit).expect("exit");
        }
        exit_records(dir.path()).expect("readable")["web"].clone()
    }

    const INIT: &str = "{\"v\":1,\"pid\":4194305,\"start_time\":17}\n";

    /// In the form written by the first shims, and with fields that a newer one may add.
    #[test]
    fn records_of_version_1_are_read() {
        let ended = ExitFate::Ended {
            code: 137,
            signal: 9,
            oom_kills: 2,
            at: 1_700_000_000_123_456_789,
        };
        for more in ["", ",\"core\":true"] {
            let exit = format!(
                "{{\"v\":1,\"pid\":4711,\"code\":137,\"signal\":9,\"oom_kills\":2,\"at\":1700000000123456789{more}}}\n"
            );
            assert_eq!(account_for(INIT, Some(&exit)), ended);
        }
        assert_eq!(account_for(INIT, None), ExitFate::Unknown);
    }

    #[test]
    fn a_record_of_another_version_is_reported() {
        let exit = "{\"v\":2,\"code\":\"none\"}";
        let ExitFate::Damaged(why) = account_for(INIT, Some(exit)) else {
            panic!("it was read");
        };
        assert!(why.contains("version 2"), "{why}");
    }
}

//! The capabilities of the daemon, from `/proc/self/status`.

use std::str::FromStr as _;

use oci_spec::runtime::Capability;

use super::NodeError;
use super::files::Files;

/// Names by number, as in `linux/capability.h`.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];
const SYS_RESOURCE: usize = 24;

const STATUS_FILE: &str = "proc/self/status";

/// The capabilities that the daemon has and can pass on.
#[derive(Debug)]
pub(super) struct Own {
    effective: u64,
    bounding: u64,
}

/// Reads a set of capabilities from the status of a process.
fn mask(status: &str, name: &str) -> Result<u64, NodeError> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .ok_or_else(|| NodeError::File {
            path: STATUS_FILE,
            reason: format!("there is no {name}"),
        })
}

impl Own {
    pub(super) fn read(files: &Files) -> Result<Self, NodeError> {
        let status = files.need(STATUS_FILE)?;
        Ok(Self {
            effective: mask(&status, "CapEff")?,
            bounding: mask(&status, "CapBnd")?,
        })
    }

    /// The capabilities in the bounding set, which limits every child process. Those newer than the list are
    /// omitted: no specification can name them.
    pub(super) fn bounding(&self) -> Vec<Capability> {
        let names = NAMES.iter().enumerate();
        names
            .filter(|(number, _)| self.bounding >> number & 1 == 1)
            .filter_map(|(_, name)| Capability::from_str(name).ok())
            .collect()
    }

    pub(super) fn may_lower_oom_score_adj(&self) -> bool {
        self.effective >> SYS_RESOURCE & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_has_its_number() {
        let all = Own {
            effective: 0,
            bounding: u64::MAX,
        };
        assert_eq!(
            all.bounding().len(),
            41,
            "one has no name in the specification"
        );
        let docker = Own {
            effective: 1 << 24,
            bounding: 0xa804_25fb,
        };
        let mut found = docker.bounding();
        let mut expected = criscope_settings::value::default_capabilities();
        found.sort_unstable_by_key(ToString::to_string);
        expected.sort_unstable_by_key(ToString::to_string);
        assert_eq!(found, expected);
        assert!(docker.may_lower_oom_score_adj() && !all.may_lower_oom_score_adj());
    }
}

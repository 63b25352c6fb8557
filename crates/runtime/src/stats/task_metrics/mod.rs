//! Decodes the metrics of shims of containerd: the messages of its library for cgroups, in the structure of a cgroup's usage.
//!
//! A number that is 0 is not in the encoding, so 0 is also what a shim does not know:
//! gVisor's reports processor time, memory and processes, and zeros for all else.

mod v1;
mod v2;

use prost::{DecodeError, Message as _};

use criscope_linux::cgroup::usage::{Pids, Usage, limited};
use criscope_wire::cgroups::{self, PidsStat};

/// Why metrics cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The metrics have another type, such as the one for Windows.
    #[error("metrics of the unknown type {0:.128}")]
    Unknown(String),
    /// The metrics cannot be decoded.
    #[error("malformed metrics: {0}")]
    Malformed(#[from] DecodeError),
}

/// Decodes metrics of the type that a URL names, with or without a prefix such as `types.containerd.io/`. `None` if they contain
/// neither processor time nor memory: every container that runs uses both, and zeros would be taken for an idle one.
///
/// # Errors
/// If their type is unknown, or they are malformed.
pub fn usage(type_url: &str, value: &[u8]) -> Result<Option<Usage>, Error> {
    let name = type_url.rsplit('/').next().unwrap_or_default();
    let usage = match name {
        "io.containerd.cgroups.v1.Metrics" => v1::usage(cgroups::v1::Metrics::decode(value)?),
        "io.containerd.cgroups.v2.Metrics" => v2::usage(cgroups::v2::Metrics::decode(value)?),
        _ => return Err(Error::Unknown(type_url.to_owned())),
    };
    Ok(Some(usage).filter(is_used))
}

fn is_used(usage: &Usage) -> bool {
    let time = usage.cpu.as_ref().map_or(0, |cpu| cpu.usage);
    let memory = usage.memory.as_ref().map_or(0, |memory| memory.usage);
    time > 0 || memory > 0
}

/// A limit; 0 and the largest numbers mean that there is none, or that it is not known.
fn limit(value: u64) -> Option<u64> {
    known(value).and_then(limited)
}

/// A number that is not 0.
fn known(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value > 0)
}

fn pids(pids: PidsStat) -> Pids {
    Pids {
        current: pids.current,
        limit: limit(pids.limit),
    }
}

/// Fuzz target: arbitrary bytes as metrics of either version.
pub fn fuzz(bytes: &[u8]) {
    for version in ["v1", "v2"] {
        let read = usage(&format!("io.containerd.cgroups.{version}.Metrics"), bytes);
        if let Ok(Some(usage)) = read {
            let memory = usage.memory.unwrap_or_default();
            assert!(memory.working_set <= memory.usage);
            assert!(memory.limit != Some(0));
        }
    }
}

#[cfg(test)]
mod tests;

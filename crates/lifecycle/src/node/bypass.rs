//! The files in which `criscope-bypass.service` says that the kubelet's calls reach the runtime without criscope. systemd writes them,
//! so that they tell of a bypass even if criscope never ran again.

use std::fs;
use std::path::{Path, PathBuf};

use criscope_cri::units::times::UnixMicros;

use super::{NodeFact, NodeFactKind};

/// Directory of the files. Pods of criscope-agent mount it.
const BYPASS_DIRECTORY: &str = "/run/criscope/agent";

/// File with the Unix time at which the current bypass began; it exists while criscope is bypassed.
pub const BYPASS_SINCE_FILE: &str = "bypass.since";

/// File with the Unix times of begin and end of the last bypass that ended.
pub const LAST_BYPASS_FILE: &str = "bypass.last";

/// The files of the bypass, on a tmpfs.
#[derive(Clone, Debug)]
pub struct BypassFiles {
    directory: PathBuf,
}

impl Default for BypassFiles {
    fn default() -> Self {
        Self::at(Path::new(BYPASS_DIRECTORY))
    }
}

impl BypassFiles {
    /// The files in a directory.
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// The time since which criscope is bypassed; `None` if it is not.
    pub fn since(&self) -> Option<UnixMicros> {
        self.times(BYPASS_SINCE_FILE)?.first().copied()
    }

    /// The last bypass that ended, if it ended after `from`.
    pub(crate) fn ended_after(&self, from: UnixMicros) -> Option<NodeFact> {
        let times = self.times(LAST_BYPASS_FILE)?;
        let &[begin, end] = &times[..] else {
            return None;
        };
        (begin <= end && end > from).then(|| NodeFact {
            to: Some(end),
            ..NodeFact::new(NodeFactKind::CriscopeBypassed, begin, "")
        })
    }

    fn times(&self, file: &str) -> Option<Vec<UnixMicros>> {
        let text = fs::read_to_string(self.directory.join(file)).ok()?;
        let seconds = text.split_ascii_whitespace().map(str::parse::<u32>);
        let times = seconds.map(|s| s.map(|s| UnixMicros::new(u64::from(s) * 1_000_000)));
        times.collect::<Result<_, _>>().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_unit_writes_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = BypassFiles::at(dir.path());
        let write = |file, text| fs::write(dir.path().join(file), text).expect("written");
        assert_eq!(files.since(), None);
        write(BYPASS_SINCE_FILE, "");
        assert_eq!(files.since(), None, "while it is written");
        write(BYPASS_SINCE_FILE, "1767268800\n");
        assert_eq!(files.since(), Some(UnixMicros::new(1_767_268_800_000_000)));
        write(LAST_BYPASS_FILE, "1767268800 1767268923\n");
        let fact = files.ended_after(UnixMicros::EPOCH).expect("a bypass");
        assert_eq!(
            fact.sentence(UnixMicros::MAX),
            "criscope was bypassed from 12:00:00 to 12:02:03 UTC and saw no calls then"
        );
        assert_eq!(
            files.ended_after(UnixMicros::new(1_767_268_923_000_000)),
            None
        );
        for damaged in ["", "1767268800", "soon", "5 4", "1 2 3"] {
            write(LAST_BYPASS_FILE, damaged);
            assert_eq!(files.ended_after(UnixMicros::EPOCH), None, "{damaged}");
        }
    }
}

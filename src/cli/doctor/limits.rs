//! Checks the limit of open files.

use nix::sys::resource::{Resource, getrlimit};

use super::super::output::ReportFinding;
use super::process::NodeFiles;

const TOPIC: &str = "limits";

/// Each caller takes one descriptor, each stream may take one more, and a misbehaving client may hold hundreds open.
const MIN_FILE_DESCRIPTORS: u64 = 4096;

/// The limit of the running criscope, else that of this shell, which a criscope started from it would inherit.
pub(super) fn check(running: Option<i32>, node: &NodeFiles) -> ReportFinding {
    let of_process = running.and_then(|pid| {
        let limit = open_files(&node.proc(pid, "limits")?)?;
        Some((limit, node.describe(pid)))
    });
    let (limit, whose) = match of_process {
        Some(found) => found,
        None => match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((soft, _)) => (soft, "a criscope started from here".to_owned()),
            Err(errno) => {
                let text = format!("the limit of open files is unknown: {}", errno.desc());
                return ReportFinding::warn(TOPIC, text);
            }
        },
    };
    let text = format!("{whose} may have {limit} files open");
    if limit < MIN_FILE_DESCRIPTORS {
        ReportFinding::warn(TOPIC, text).hint(format!(
            "raise it to {MIN_FILE_DESCRIPTORS} or more: LimitNOFILE= in the unit, or ulimit -n"
        ))
    } else {
        ReportFinding::ok(TOPIC, text)
    }
}

/// The soft limit in `/proc/PID/limits` (proc_pid_limits(5)).
fn open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_whitespace().next()?;
    if soft == "unlimited" {
        return Some(u64::MAX);
    }
    soft.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             100                  100                  processes \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files("Max open files   unlimited  unlimited  files"),
            Some(u64::MAX)
        );
        assert_eq!(open_files(""), None);
    }
}

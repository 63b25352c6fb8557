//! Changes of the request's confinement and mounts, for the log.

use super::FinishedSpec;
use super::confinement::{
    changed_namespaces, field_of, has_requested_cgroup, has_requested_seccomp,
};
use super::mounts::replaced;

/// The names of the fields, and of mounts the paths.
pub(super) fn list(finished: &FinishedSpec<'_>) -> Vec<String> {
    let namespaces = changed_namespaces(finished).into_iter();
    let mut all: Vec<_> = namespaces.map(field_of).collect();
    if !has_requested_seccomp(finished) {
        all.push("linux.seccomp".to_owned());
    }
    if !has_requested_cgroup(finished) {
        all.push("linux.cgroupsPath".to_owned());
    }
    all.extend(replaced(finished).map(|path| format!("mount at {}", path.display())));
    all
}

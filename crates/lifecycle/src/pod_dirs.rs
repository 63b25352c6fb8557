//! The directories of pods in the kubelet's directory. The kubelet makes one before it first calls the runtime for a pod, and
//! removes it some seconds after the pod is deleted. A missing directory proves nothing by itself: crictl makes none.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Pods by uid, and whether each has a directory.
pub(super) type FoundPodDirs = Vec<(Box<str>, bool)>;

/// The pods whose directory was seen.
#[derive(Debug, Default)]
pub(super) struct KnownPodDirs(HashSet<Box<str>>);

impl KnownPodDirs {
    /// Takes in which pods have a directory now. Returns the pods whose directory is gone.
    pub(super) fn update(&mut self, found: FoundPodDirs) -> Vec<Box<str>> {
        let mut gone = Vec::new();
        let mut seen = HashSet::new();
        for (uid, is_there) in found {
            match (is_there, self.0.contains(&uid)) {
                (true, _) => {
                    seen.insert(uid);
                }
                (false, true) => gone.push(uid),
                (false, false) => {}
            }
        }
        self.0 = seen;
        gone
    }

    /// Forgets all pods.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Checks which of these pods have a directory, and leaves out the pods for which the check fails. Blocks.
pub(super) fn find(kubelet_dir: &Path, uids: &[Box<str>]) -> FoundPodDirs {
    let pods = kubelet_dir.join("pods");
    if !pods.is_dir() {
        return FoundPodDirs::new();
    }
    let found = uids.iter().filter(|uid| is_name(uid)).filter_map(|uid| {
        let is_there = match fs::symlink_metadata(pods.join(&**uid)) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(_) => return None,
        };
        Some((uid.clone(), is_there))
    });
    found.collect()
}

/// Returns whether a uid, which a caller of the CRI may choose, is the name of a file in a directory.
fn is_name(uid: &str) -> bool {
    let mut bytes = uid.bytes();
    !uid.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_seen_and_is_gone_tells_of_a_deletion() {
        let dir = tempfile::tempdir().expect("dir");
        let uids = ["uid-a", "uid-b", "../x"].map(Box::from);
        let mut dirs = KnownPodDirs::default();
        assert_eq!(find(dir.path(), &uids), FoundPodDirs::new(), "no kubelet");
        fs::create_dir_all(dir.path().join("pods/uid-a")).expect("made");
        fs::create_dir_all(dir.path().join("x")).expect("made");
        let found = find(dir.path(), &uids);
        assert_eq!(found, [("uid-a".into(), true), ("uid-b".into(), false)]);
        assert_eq!(dirs.update(found), [""; 0].map(Box::from));
        fs::remove_dir(dir.path().join("pods/uid-a")).expect("removed");
        let gone = dirs.update(find(dir.path(), &uids));
        assert_eq!(gone, ["uid-a".into()]);
        let told = dirs.update(find(dir.path(), &uids));
        assert_eq!(told, [""; 0].map(Box::from));
    }
}

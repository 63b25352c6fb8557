//! The directories of pods below that of the kubelet. The kubelet makes one before it first calls the runtime for a pod, and removes it some
//! seconds after the pod is deleted. A pod without one says nothing: crictl makes none.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Whether there is a directory, by the uid of the pod.
pub(super) type Found = Vec<(Box<str>, bool)>;

/// The pods whose directory was seen.
#[derive(Debug, Default)]
pub(super) struct PodDirs(HashSet<Box<str>>);

impl PodDirs {
    /// Takes in what was found of all pods that matter. Returns those whose directory is gone.
    pub(super) fn note(&mut self, found: Found) -> Vec<Box<str>> {
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

    /// No pod matters.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Which of these pods have a directory; nothing about those of which that is not known. Blocks.
pub(super) fn look(kubelet_dir: &Path, uids: &[Box<str>]) -> Found {
    let pods = kubelet_dir.join("pods");
    if !pods.is_dir() {
        return Found::new();
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
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !uid.is_empty() && uid.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_seen_and_is_gone_tells_of_a_deletion() {
        let dir = tempfile::tempdir().expect("dir");
        let uids = ["uid-a", "uid-b", "../x"].map(Box::from);
        let mut dirs = PodDirs::default();
        assert_eq!(look(dir.path(), &uids), Found::new(), "no kubelet");
        fs::create_dir_all(dir.path().join("pods/uid-a")).expect("made");
        fs::create_dir_all(dir.path().join("x")).expect("made");
        let found = look(dir.path(), &uids);
        assert_eq!(found, [("uid-a".into(), true), ("uid-b".into(), false)]);
        assert_eq!(dirs.note(found), [""; 0].map(Box::from));
        fs::remove_dir(dir.path().join("pods/uid-a")).expect("removed");
        let gone = dirs.note(look(dir.path(), &uids));
        assert_eq!(gone, ["uid-a".into()]);
        let told = dirs.note(look(dir.path(), &uids));
        assert_eq!(told, [""; 0].map(Box::from));
    }
}

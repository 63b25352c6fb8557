//! SELinux: the labels of each pod.
//!
//! The distribution's policy defines the labels of containers (`lxc_contexts`); pods are separated by a unique pair of categories
//! in the level. The pairs in use are read from the records of the pods, so no other state needs to survive a restart.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use super::error::{Error, Result};
use criscope_cri::v1::SeLinuxOption;

/// The file that names the policy: `SELINUXTYPE=targeted`.
const CONFIG: &str = "etc/selinux/config";
/// A write of a label succeeds if it is valid in the loaded policy, and fails with EINVAL otherwise (`selinuxfs`, `security_check_context(3)`).
const KNOWN: &str = "sys/fs/selinux/context";

/// A pair of categories, the smaller one first.
type Pair = (u16, u16);

/// Allocates the labels of pods.
#[derive(Debug)]
pub(super) struct Labels {
    root: PathBuf,
    contexts: Contexts,
    /// The number of categories.
    range: u16,
    /// The pairs of pods that are being created and have no record yet.
    making: Arc<Mutex<HashSet<Pair>>>,
}

/// The labels of containers in the distribution's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contexts {
    process: String,
    file: String,
}

/// The labels of a pod that is being created. While this exists, no other pod gets its categories.
#[derive(Debug)]
pub(super) struct Lease {
    /// The label of its processes.
    pub(super) process: String,
    /// The label of its files.
    pub(super) file: String,
    taken: Option<(Pair, Arc<Mutex<HashSet<Pair>>>)>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((pair, making)) = &self.taken {
            lock(making).remove(pair);
        }
    }
}

fn lock(making: &Mutex<HashSet<Pair>>) -> std::sync::MutexGuard<'_, HashSet<Pair>> {
    making.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Labels {
    /// Reads the container labels of the policy below `root`.
    ///
    /// # Errors
    /// If the policy has no labels for containers. Each pod would fail.
    pub(super) fn open(root: &Path, range: u16) -> io::Result<Self> {
        let config = fs::read_to_string(root.join(CONFIG))?;
        let policy = setting(&config, "SELINUXTYPE").unwrap_or_else(|| "targeted".to_owned());
        let path = format!("etc/selinux/{policy}/contexts/lxc_contexts");
        let text = fs::read_to_string(root.join(&path))?;
        let both = setting(&text, "process").zip(setting(&text, "file"));
        let (process, file) =
            both.ok_or_else(|| io::Error::other(format!("/{path} names no process and no file")))?;
        for label in [&process, &file] {
            check(root, label).map_err(|error| {
                io::Error::other(format!(
                    "{label}, the label of containers in /{path}: {error}; is its policy for containers installed?"
                ))
            })?;
        }
        Ok(Self {
            root: root.to_owned(),
            contexts: Contexts { process, file },
            range,
            making: Arc::default(),
        })
    }

    /// Leases the labels of a pod: those of the policy, with the parts that the pod specifies replaced, and with categories that
    /// none of the labels in `others` has, unless the pod specifies a level.
    pub(super) fn lease(
        &self,
        options: Option<&SeLinuxOption>,
        others: impl Iterator<Item = String>,
    ) -> Result<Lease> {
        let mut lease = Lease {
            process: self.contexts.process.clone(),
            file: self.contexts.file.clone(),
            taken: None,
        };
        if options.is_none_or(|options| options.level.is_empty()) {
            let used: HashSet<_> = others.filter_map(|label| pair_of(&label)).collect();
            let mut making = lock(&self.making);
            let free = pair_from(self.range, random()?, |pair| {
                !used.contains(pair) && !making.contains(pair)
            });
            let pair = free.ok_or_else(|| {
                Error::Exhausted("every pair of SELinux categories is taken".to_owned())
            })?;
            making.insert(pair);
            lease.taken = Some((pair, Arc::clone(&self.making)));
            let level = format!("s0:c{},c{}", pair.0, pair.1);
            lease.process = with_level(&lease.process, &level);
            lease.file = with_level(&lease.file, &level);
        }
        if let Some(options) = options {
            lease.process = named(&lease.process, options, true);
            lease.file = named(&lease.file, options, false);
            for label in [&lease.process, &lease.file] {
                self.require(label)?;
            }
        }
        Ok(lease)
    }

    /// Refuses a label of a request that the loaded policy does not know.
    pub(super) fn require(&self, label: &str) -> Result<()> {
        check(&self.root, label)
            .map_err(|error| Error::invalid(format!("SELinux label {label}: {error}")))
    }
}

/// Checks that a label is valid in the loaded policy.
fn check(root: &Path, label: &str) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).open(root.join(KNOWN)) {
        Ok(mut known) => known
            .write_all(label.as_bytes())
            .map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => {
                    io::Error::other("the loaded policy does not know it")
                }
                _ => error,
            }),
        // Without selinuxfs there is no policy to ask.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The label of a container's files: the pod's, with the user and level that the container specifies.
pub(super) fn files_of(pod: Option<&str>, options: Option<&SeLinuxOption>) -> Option<String> {
    let pod = pod?;
    Some(options.map_or_else(|| pod.to_owned(), |options| named(pod, options, false)))
}

/// Replaces the specified parts of a label. Type and role apply to processes only: files keep theirs.
fn named(label: &str, options: &SeLinuxOption, process: bool) -> String {
    let parts: Vec<_> = label.splitn(4, ':').collect();
    let [user, role, kind, level] = parts[..] else {
        return label.to_owned();
    };
    let (new_role, new_kind) = if process {
        (options.role.as_str(), options.r#type.as_str())
    } else {
        (role, kind)
    };
    [
        (options.user.as_str(), user),
        (new_role, role),
        (new_kind, kind),
        (options.level.as_str(), level),
    ]
    .map(|(new, own)| if new.is_empty() { own } else { new })
    .join(":")
}

fn with_level(label: &str, level: &str) -> String {
    let parts: Vec<_> = label.splitn(4, ':').take(3).collect();
    format!("{}:{level}", parts.join(":"))
}

/// Returns the first free pair, starting at a random position.
fn pair_from(range: u16, start: u64, free: impl Fn(&Pair) -> bool) -> Option<Pair> {
    let all = u64::from(range) * u64::from(range.saturating_sub(1)) / 2;
    let mut pairs = (0..all).map(|step| pair_at((start % all.max(1) + step) % all));
    pairs.find(free)
}

/// The enumeration of all pairs: (0,1), (0,2), (1,2), (0,3), ...
fn pair_at(number: u64) -> Pair {
    let mut larger = (number * 2).isqrt();
    while larger * (larger + 1) / 2 <= number {
        larger += 1;
    }
    while larger * (larger - 1) / 2 > number {
        larger -= 1;
    }
    let smaller = number - larger * (larger - 1) / 2;
    [smaller, larger]
        .map(|category| u16::try_from(category).unwrap_or(u16::MAX))
        .into()
}

/// The pair in a label such as `system_u:system_r:container_t:s0:c1,c2`.
fn pair_of(label: &str) -> Option<Pair> {
    let level = label.splitn(4, ':').nth(3)?;
    let (one, two) = level.strip_prefix("s0:")?.split_once(',')?;
    let (one, two) = (category(one)?, category(two)?);
    Some((one.min(two), one.max(two)))
}

fn category(text: &str) -> Option<u16> {
    text.strip_prefix('c')?.parse().ok()
}

/// Parses `KEY = "value"` or `KEY=value`, the formats of both files.
fn setting(text: &str, key: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let mut found = pairs.filter(|(name, _)| name.trim() == key);
    let value = found.next()?.1.trim().trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::Internal(format!("random numbers: {error}")))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(range: u16) -> Labels {
        let dir = tempfile::tempdir().expect("dir");
        let policy = dir.path().join("etc/selinux/own/contexts");
        fs::create_dir_all(&policy).expect("dir");
        let put = |path: &Path, text: &str| fs::write(path, text).expect("write");
        put(
            &dir.path().join(CONFIG),
            "SELINUX=enforcing\n# a\nSELINUXTYPE=own\n",
        );
        let text = "process = \"system_u:system_r:container_t:s0\"\ncontent = \"x\"\nfile = \"system_u:object_r:container_file_t:s0\"\n";
        put(&policy.join("lxc_contexts"), text);
        Labels::open(dir.path(), range).expect("labels")
    }

    /// `/dev/full` refuses all writes.
    #[test]
    fn a_label_that_the_policy_does_not_know_is_refused() {
        let dir = tempfile::tempdir().expect("dir");
        let known = dir.path().join(KNOWN);
        assert!(check(dir.path(), "u:r:t:s0").is_ok());
        fs::create_dir_all(known.parent().expect("below")).expect("dir");
        std::os::unix::fs::symlink("/dev/full", &known).expect("link");
        check(dir.path(), "u:r:t:s0").expect_err("refused");
        let known_to_no_policy = Labels {
            root: dir.path().to_owned(),
            ..labels(3)
        };
        let error = known_to_no_policy.require("u:r:t:s0").expect_err("refused");
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        assert!(error.to_string().contains("u:r:t:s0"), "{error}");
        fs::remove_file(&known).expect("present");
        std::os::unix::fs::symlink("/dev/null", &known).expect("link");
        check(dir.path(), "u:r:t:s0").expect("known");
    }

    #[test]
    fn every_pod_has_unique_categories_until_none_are_left() {
        let labels = labels(3);
        let none = || std::iter::empty();
        let one = labels.lease(None, none()).expect("free");
        let two = labels.lease(None, none()).expect("free");
        assert_ne!(one.process, two.process);
        let third = [one.process.clone(), two.process.clone()];
        assert!(
            one.process
                .starts_with("system_u:system_r:container_t:s0:c")
        );
        assert_eq!(
            one.file.rsplit_once(":s0:").expect("level").1,
            one.process.rsplit_once(":s0:").expect("level").1
        );
        // A pair in a record is as taken as one of a pod that is being created.
        drop((one, two));
        let three = labels.lease(None, third.into_iter()).expect("free");
        let all = (0..3)
            .map(pair_at)
            .map(|(a, b)| format!("u:r:t:s0:c{a},c{b}"));
        let error = labels.lease(None, all).expect_err("none is left");
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        drop(three);
        assert!(labels.lease(None, none()).is_ok());
    }

    #[test]
    fn specified_parts_replace_those_of_the_policy() {
        let labels = labels(1024);
        let options = SeLinuxOption {
            user: "u".to_owned(),
            role: "r".to_owned(),
            r#type: "t".to_owned(),
            level: "s0:c4,c5".to_owned(),
        };
        let lease = labels
            .lease(Some(&options), std::iter::empty())
            .expect("labels");
        assert_eq!(lease.process, "u:r:t:s0:c4,c5");
        assert_eq!(lease.file, "u:object_r:container_file_t:s0:c4,c5");
        let container = SeLinuxOption {
            level: "s0:c6".to_owned(),
            ..SeLinuxOption::default()
        };
        assert_eq!(
            files_of(Some(&lease.file), Some(&container)).as_deref(),
            Some("u:object_r:container_file_t:s0:c6")
        );
        assert_eq!(files_of(None, Some(&container)), None);
    }

    #[test]
    fn pairs_are_enumerated_without_gaps() {
        let pairs: Vec<_> = (0..6).map(pair_at).collect();
        assert_eq!(pairs, [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]);
        let last = 1024 * 1023 / 2 - 1;
        assert_eq!(pair_at(last), (1022, 1023));
        assert_eq!(pair_of("a:b:c:s0:c9,c3"), Some((3, 9)));
        assert_eq!(pair_of("a:b:c:s0"), None);
        assert_eq!(pair_from(2, u64::MAX, |_| true), Some((0, 1)));
        assert_eq!(pair_from(2, 7, |_| false), None);
    }
}

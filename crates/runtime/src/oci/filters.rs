//! A cache of seccomp filters compiled by the OCI runtime.
//!
//! Compiling a profile takes two thirds of a `create`, and nearly all containers of a node have the same few profiles. crun
//! stores the compiled filter in the state directory of the container, as `seccomp.bpf`, and accepts the same bytes in the
//! annotation `run.oci.seccomp_bpf_data` (crun(1)). Its own cache needs a library that some distributions, such as Debian, build
//! it without. runc has no such feature.
//!
//! The cache is not persistent: a filter is valid only for the kernel, the library and the runtime that it was compiled with.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_spec::runtime::{LinuxSeccomp, Spec};
use sha2::{Digest as _, Sha256};

use super::version::Version;

/// The annotation from which crun takes a compiled filter, in base64.
const ANNOTATION: &str = "run.oci.seccomp_bpf_data";
/// The name of the compiled filter in crun's state directory of a container.
const COMPILED: &str = "seccomp.bpf";
/// Maximum number of cached filters. A node usually has one profile, with a few variants by capabilities.
const MAX_CACHED_FILTERS: usize = 64;
/// Size of an instruction (`struct sock_filter`), in bytes.
const INSTRUCTION: usize = 8;
/// The kernel's limit on instructions (`BPF_MAXINSNS`).
const MOST_INSTRUCTIONS: usize = 4096;

/// SHA-256 of a profile.
type Profile = [u8; 32];

/// Compiled filters, by profile.
#[derive(Debug, Default)]
pub struct Filters {
    known: Mutex<HashMap<Profile, String>>,
}

impl Filters {
    /// Returns whether the OCI runtime accepts compiled filters.
    pub fn supported_by(version: &Version) -> bool {
        version.name == "crun"
    }

    /// Adds the compiled filter of its profile to a specification, if it is cached. An existing annotation is kept.
    pub fn fill(&self, spec: &mut Spec) {
        let Some(profile) = profile(spec) else {
            return;
        };
        let Some(filter) = self.known().get(&profile).cloned() else {
            return;
        };
        let mut annotations = spec.annotations().clone().unwrap_or_default();
        annotations.entry(ANNOTATION.to_owned()).or_insert(filter);
        spec.set_annotations(Some(annotations));
    }

    /// Caches the filter that was compiled for a created container. `spec` is the path of its specification, `state` the
    /// container's state directory of the runtime. A missing or invalid filter is ignored.
    pub fn learn(&self, spec: &Path, state: &Path) {
        if self.known().len() >= MAX_CACHED_FILTERS {
            return;
        }
        let Some(profile) = read(spec).as_ref().and_then(profile) else {
            return;
        };
        if let Some(filter) = compiled(&state.join(COMPILED)) {
            let filter = STANDARD.encode(filter);
            self.known().entry(profile).or_insert(filter);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Profile, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cache key of a specification. `None` if it has no profile, already has the annotation, or the profile has a listener
/// (`SCMP_ACT_NOTIFY`), which a filter alone does not set up.
fn profile(spec: &Spec) -> Option<Profile> {
    let annotations = spec.annotations().as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(ANNOTATION)) {
        return None;
    }
    let seccomp: &LinuxSeccomp = spec.linux().as_ref()?.seccomp().as_ref()?;
    if seccomp.listener_path().is_some() {
        return None;
    }
    let text = serde_json::to_vec(seccomp).ok()?;
    Some(Sha256::digest(text).into())
}

/// Reads a specification, unless it has the annotation.
fn read(spec: &Path) -> Option<Spec> {
    let text = fs::read_to_string(spec).ok()?;
    // Cheaper than parsing the file first.
    let annotated = text.contains(ANNOTATION);
    (!annotated)
        .then(|| serde_json::from_str(&text).ok())
        .flatten()
}

/// Reads a compiled filter: one or more whole instructions.
fn compiled(path: &Path) -> Option<Vec<u8>> {
    let most = INSTRUCTION * MOST_INSTRUCTIONS;
    let mut filter = Vec::new();
    let file = File::open(path).ok()?;
    file.take(most as u64 + 1).read_to_end(&mut filter).ok()?;
    let whole = !filter.is_empty() && filter.len() <= most && filter.len() % INSTRUCTION == 0;
    whole.then_some(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes and returns a specification with this profile.
    fn spec(dir: &Path, seccomp: &str) -> Spec {
        let text = format!(r#"{{"ociVersion": "1.0.2", "linux": {{"seccomp": {seccomp}}}}}"#);
        fs::write(dir.join("config.json"), &text).expect("write");
        serde_json::from_str(&text).expect("specification")
    }

    fn annotation(spec: &Spec) -> Option<&str> {
        let annotations = spec.annotations().as_ref()?;
        annotations.get(ANNOTATION).map(String::as_str)
    }

    const ALLOW: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#;
    const ERRNO: &str = r#"{"defaultAction": "SCMP_ACT_ERRNO"}"#;
    const LISTENED: &str = r#"{"defaultAction": "SCMP_ACT_NOTIFY", "listenerPath": "/run/x"}"#;

    #[test]
    fn a_compiled_filter_is_reused_for_the_same_profile_only() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("config.json");
        let filters = Filters::default();
        let mut first = spec(dir.path(), ALLOW);
        filters.fill(&mut first);
        assert_eq!(annotation(&first), None, "nothing is cached yet");
        fs::write(dir.path().join(COMPILED), [6; 16]).expect("filter");
        filters.learn(&path, dir.path());

        let mut same = spec(dir.path(), ALLOW);
        filters.fill(&mut same);
        assert_eq!(annotation(&same), Some(&*STANDARD.encode([6; 16])));
        let mut other = spec(dir.path(), ERRNO);
        filters.fill(&mut other);
        assert_eq!(annotation(&other), None);
        let mut own = spec(dir.path(), ALLOW);
        own.set_annotations(Some([(ANNOTATION.to_owned(), "AA".to_owned())].into()));
        filters.fill(&mut own);
        assert_eq!(
            annotation(&own),
            Some("AA"),
            "an existing annotation is kept"
        );
    }

    #[test]
    fn invalid_filters_and_profiles_with_a_listener_are_not_cached() {
        for (seccomp, filter) in [
            (ALLOW, vec![]),
            (ALLOW, vec![6; 15]),
            (ALLOW, vec![6; INSTRUCTION * (MOST_INSTRUCTIONS + 1)]),
            (LISTENED, vec![6; 16]),
        ] {
            let dir = tempfile::tempdir().expect("dir");
            let mut next = spec(dir.path(), seccomp);
            fs::write(dir.path().join(COMPILED), filter).expect("filter");
            let filters = Filters::default();
            filters.learn(&dir.path().join("config.json"), dir.path());
            filters.fill(&mut next);
            assert_eq!(annotation(&next), None, "{seccomp}");
        }
    }

    #[test]
    fn only_crun_accepts_compiled_filters() {
        let version = |name: &str| Version {
            name: name.to_owned(),
            ..Version::default()
        };
        assert!(Filters::supported_by(&version("crun")));
        assert!(!Filters::supported_by(&version("runc")));
    }
}

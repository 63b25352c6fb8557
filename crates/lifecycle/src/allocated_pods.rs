//! Names of a pod's containers, from the kubelet's checkpoint of allocated resources.
//!
//! The CRI neither says how many containers a pod has, nor marks init containers. The kubelet (1.33 to 1.36, by
//! default) writes an entry to `allocated_pods_state` in its directory when it admits a pod, before it calls the runtime. The
//! entry has the containers that can be resized: all containers and sidecars, and ordinary init containers too if
//! `InPlacePodVerticalScalingInitContainers` is on, as in 1.36 (`IsResizableContainer` in pkg/kubelet/allocation). So a container that is
//! in it may be an init container. Ephemeral containers are never in it. Only the names are read; a file in another format, such as that
//! of later kubelets, tells nothing.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Name of the checkpoint in the kubelet's directory.
const CHECKPOINT_FILE: &str = "allocated_pods_state";
/// Largest file that is read. An entry has some hundred bytes.
const MAX_CHECKPOINT_BYTES: u64 = 4 << 20;
/// Most containers of a pod.
const MAX_CONTAINERS_PER_POD: usize = 64;

/// Container names, in some kubelets without ordinary init containers, by pod uid.
pub(super) type PodContainers = HashMap<Box<str>, Arc<[Box<str>]>>;

#[derive(Deserialize)]
struct KubeletCheckpoint {
    data: String,
}

#[derive(Deserialize)]
struct CheckpointData {
    entries: HashMap<Box<str>, CheckpointEntry>,
}

#[derive(Deserialize)]
struct CheckpointEntry {
    #[serde(rename = "ContainerResources")]
    containers: HashMap<Box<str>, IgnoredAny>,
}

/// The containers of these pods, if they are in the checkpoint in the kubelet's directory. Blocks.
pub(super) fn read(kubelet_dir: &Path, uids: &[Box<str>]) -> PodContainers {
    let mut text = Vec::new();
    let file = File::open(kubelet_dir.join(CHECKPOINT_FILE));
    let read = file.and_then(|file| file.take(MAX_CHECKPOINT_BYTES).read_to_end(&mut text));
    match read {
        Ok(_) => parse(&text, uids).unwrap_or_default(),
        Err(_) => PodContainers::new(),
    }
}

fn parse(text: &[u8], uids: &[Box<str>]) -> Option<PodContainers> {
    let checkpoint: KubeletCheckpoint = serde_json::from_slice(text).ok()?;
    let mut data: CheckpointData = serde_json::from_str(&checkpoint.data).ok()?;
    let pods = uids.iter().filter_map(|uid| {
        let names = data.entries.remove(uid)?.containers.into_keys();
        let mut names: Vec<_> = names.take(MAX_CONTAINERS_PER_POD).collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| (uid.clone(), names.into()))
    });
    Some(pods.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kubelet 1.36 writes it.
    const CHECKPOINT: &str = r#"{"data":"{\"entries\":{\"uid-a\":{\"ContainerResources\":{\"web\":{\"requests\":{\"cpu\":\"1\"}},\"proxy\":{}}},\"uid-b\":{\"ContainerResources\":{}}}}","checksum":7}"#;

    #[test]
    fn only_the_names_of_the_wanted_pods_are_read() {
        let dir = tempfile::tempdir().expect("dir");
        let wanted = ["uid-a", "uid-b", "uid-c"].map(Box::from);
        assert_eq!(read(dir.path(), &wanted), PodContainers::new(), "no file");
        std::fs::write(dir.path().join(CHECKPOINT_FILE), CHECKPOINT).expect("written");
        let names: Arc<[Box<str>]> = Arc::new(["proxy".into(), "web".into()]);
        let expected = PodContainers::from([("uid-a".into(), names)]);
        assert_eq!(read(dir.path(), &wanted), expected);
        assert_eq!(read(dir.path(), &[]), PodContainers::new());
    }

    #[test]
    fn another_format_tells_nothing() {
        for text in [
            "",
            "{}",
            r#"{"data":"{}"}"#,
            r#"{"data":"{\"entries\":[]}"}"#,
            r#"{"version":2,"data":{"podList":[]}}"#,
        ] {
            assert_eq!(parse(text.as_bytes(), &["uid-a".into()]), None, "{text}");
        }
    }
}

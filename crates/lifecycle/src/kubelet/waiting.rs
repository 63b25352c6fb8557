//! Pods that the kubelet works on before it first calls the runtime. It makes a directory for such a pod, mounts its volumes there
//! and asks for a sandbox only then. No call shows a pod whose volume cannot be mounted; its directory does.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::allocated_pods;
use criscope_cri::units::spoken;
use criscope_cri::units::times::UnixMicros;

/// A pod is told to wait once its directory is this old: the kubelet makes most sandboxes within a second or two of it.
pub(crate) const PODS_WAIT_AFTER: Duration = Duration::from_secs(5);

/// Most pods that are told to wait.
const MAX_WAITING_PODS: usize = 64;
/// Most volumes of a pod that are read.
const MAX_VOLUMES: usize = 64;
/// Longest namespace, a DNS label, in bytes.
const MAX_NAMESPACE_LEN: u64 = 63;

/// Everything that the kubelet does between the directory of a pod and its first call, or before the directory while its volume manager
/// has made it (`Kubelet.SyncPod` in `pkg/kubelet/kubelet.go`, `SyncPod` and `createPodSandbox` in `pkg/kubelet/kuberuntime`, 1.36):
///
/// | step | source |
/// |---|---|
/// | admission of the node | `canRunPod` |
/// | network not ready | `runtimeState.networkErrors`; a fact of the node here |
/// | cgroups of the pod | `pcm.EnsureExists` |
/// | volumes, with their Secrets and ConfigMaps | `volumeManager.WaitForAttachAndMount` |
/// | resource claims | `PrepareDynamicResources` |
/// | user namespace, sysctls, `resolvConf`, log directory | `generatePodSandboxConfig`, `createPodSandbox` |
const BEFORE_FIRST_CALL: &str = "a volume, a resource claim or admission holds it, or a fault of the kubelet (cgroups, resolvConf, log directory)";

/// Directories in which a pod leaves traces.
#[derive(Clone, Debug)]
pub(crate) struct PodDirectories {
    /// The kubelet's directory.
    pub(crate) kubelet: PathBuf,
    /// The directory of container logs. The kubelet makes one for each pod just before it asks for the sandbox.
    pub(crate) logs: PathBuf,
    /// The mounts that the kubelet's mounts appear in.
    pub(crate) mountinfo: PathBuf,
}

impl PodDirectories {
    /// The directories on a node, with the kubelet's default directory of logs.
    pub(crate) fn new(kubelet: &Path) -> Self {
        Self {
            kubelet: kubelet.to_owned(),
            logs: Path::new("/var/log/pods").to_owned(),
            mountinfo: Path::new("/proc/self/mountinfo").to_owned(),
        }
    }
}

/// A pod that the kubelet works on and has not asked a sandbox for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingPod {
    pub(crate) uid: Box<str>,
    /// The namespace, if a volume of the pod tells it. The name is nowhere in its directory.
    pub(crate) namespace: Option<Box<str>>,
    /// The time at which its directory was made.
    pub(crate) since: UnixMicros,
    pub(crate) volumes: PodVolumes,
}

/// The volumes of a pod, as far as the kubelet has begun with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodVolumes {
    /// Number of volumes that are ready.
    pub(crate) ready: usize,
    /// Volumes that are begun and not mounted, as `NAME (PLUGIN)`.
    pub(crate) begun: Vec<Box<str>>,
}

impl WaitingPod {
    /// The sentence on the pod, with what its volumes show.
    pub(crate) fn sentence(&self, now: UnixMicros) -> String {
        let since = spoken(now.since(self.since));
        let known =
            format!("the kubelet has known the pod for {since} and has not asked for a sandbox");
        let PodVolumes { ready, begun } = &self.volumes;
        let mounted = match ready {
            0 => String::new(),
            1 => " (1 other is ready)".to_owned(),
            n => format!(" ({n} others are ready)"),
        };
        match &begun[..] {
            [] => format!("{known}: {BEFORE_FIRST_CALL}"),
            [volume] => format!("{known}: volume {volume} is not mounted{mounted}"),
            several => format!(
                "{known}: volumes {} are not mounted{mounted}",
                several.join(", ")
            ),
        }
    }
}

/// Stands for a namespace that is not known.
pub(crate) const UNKNOWN_NAMESPACE: &str = "-";

/// Finds the pods without a sandbox among the directories of pods. `known`: uids of pods that calls have named. `watched`: since when
/// every call was seen. Blocks.
///
/// # Errors
/// If the directory of pods cannot be read.
pub(crate) fn find(
    dirs: &PodDirectories,
    known: &HashSet<Box<str>>,
    watched: UnixMicros,
    now: UnixMicros,
) -> io::Result<Vec<WaitingPod>> {
    let (mut uids, mut young) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dirs.kubelet.join("pods"))? {
        let entry = entry?;
        let Some(uid) = uid_of(&entry) else { continue };
        if !known.contains(&uid) && !has_had_container(&entry.path()) {
            young.push((uid.clone(), entry.path()));
        }
        uids.push(uid);
    }
    if young.is_empty() {
        return Ok(Vec::new());
    }
    let admitted = allocated_pods::read(&dirs.kubelet, &uids);
    let logs = pods_with_logs(&dirs.logs);
    let mounts = fs::read_to_string(&dirs.mountinfo).unwrap_or_default();
    let mounts: HashSet<_> = mounts.lines().filter_map(mount_point).collect();
    let waiting = young.into_iter().filter_map(|(uid, path)| {
        // The kubelet drops a pod that has ended from its checkpoint. Its directory may stay, with a volume that cannot be unmounted.
        let is_left_over = !admitted.is_empty() && !admitted.contains_key(&uid);
        let since = made_at(&path)?;
        // An older pod may have a sandbox that no call has named since.
        let may_have_sandbox = match &logs {
            Some(logs) => logs.contains(&*uid),
            None => since < watched,
        };
        let is_due = since + PODS_WAIT_AFTER <= now;
        (!is_left_over && !may_have_sandbox && is_due).then(|| WaitingPod {
            namespace: namespace(&path),
            volumes: volumes(&path, &mounts),
            since,
            uid,
        })
    });
    let mut waiting: Vec<_> = waiting.collect();
    waiting.sort_by_key(|pod| std::cmp::Reverse(pod.since));
    waiting.truncate(MAX_WAITING_PODS);
    Ok(waiting)
}

/// The uid that an entry of the directory of pods is named after.
fn uid_of(entry: &DirEntry) -> Option<Box<str>> {
    let name = entry.file_name().into_string().ok()?;
    let is_uid = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
    (is_uid && is_dir).then(|| name.into())
}

/// Returns whether a container of the pod was created once: it has a file for its termination message, and hosts.
fn has_had_container(pod: &Path) -> bool {
    ["containers", "etc-hosts"]
        .iter()
        .any(|name| fs::symlink_metadata(pod.join(name)).is_ok())
}

/// The uids of pods with a directory of logs, `NAMESPACE_NAME_UID`; `None` if they are kept elsewhere.
fn pods_with_logs(dir: &Path) -> Option<HashSet<String>> {
    let names = fs::read_dir(dir).ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.rsplit_once('_').map(|(_, uid)| uid.to_owned())
    });
    Some(names.collect())
}

/// The time at which a directory was made; that of its oldest part where the filesystem does not tell it.
fn made_at(pod: &Path) -> Option<UnixMicros> {
    let made = fs::symlink_metadata(pod).ok()?;
    let parts = ["volumes", "plugins"].iter().filter_map(|part| {
        let part = fs::symlink_metadata(pod.join(part)).ok()?;
        part.modified().ok()
    });
    let oldest: Option<SystemTime> = parts.chain(made.modified()).min();
    made.created().ok().or(oldest).map(UnixMicros::from)
}

/// The namespace that the volume of the service account's token has beside the token, which is not read.
fn namespace(pod: &Path) -> Option<Box<str>> {
    let projected = fs::read_dir(pod.join("volumes/kubernetes.io~projected")).ok()?;
    projected.take(MAX_VOLUMES).find_map(|volume| {
        let file = volume.ok()?.path().join("namespace");
        let is_short = fs::metadata(&file).is_ok_and(|file| file.len() <= MAX_NAMESPACE_LEN);
        let name = fs::read_to_string(file).ok().filter(|_| is_short)?;
        let is_label = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        (is_label && !name.is_empty()).then(|| name.into())
    })
}

/// The mount point in a line of mountinfo.
fn mount_point(line: &str) -> Option<&str> {
    line.split_ascii_whitespace().nth(4)
}

/// The volumes below `volumes/PLUGIN/NAME`.
fn volumes(pod: &Path, mounts: &HashSet<&str>) -> PodVolumes {
    let mut found = PodVolumes::default();
    let plugins = fs::read_dir(pod.join("volumes")).into_iter().flatten();
    for plugin in plugins.flatten().take(MAX_VOLUMES) {
        let names = fs::read_dir(plugin.path()).into_iter().flatten();
        for volume in names.flatten().take(MAX_VOLUMES) {
            let plugin = plugin.file_name().to_string_lossy().replace('~', "/");
            if is_ready(&plugin, &volume.path(), mounts) {
                found.ready += 1;
            } else if found.begun.len() < MAX_VOLUMES {
                let name = volume.file_name().to_string_lossy().into_owned();
                let plugin = plugin.strip_prefix("kubernetes.io/").unwrap_or(&plugin);
                found.begun.push(format!("{name} ({plugin})").into());
            }
        }
    }
    found.begun.sort_unstable();
    found
}

/// Returns whether a volume is ready: mounted, or written if the kubelet itself writes its files.
fn is_ready(plugin: &str, volume: &Path, mounts: &HashSet<&str>) -> bool {
    match plugin {
        "kubernetes.io/empty-dir" | "kubernetes.io/git-repo" => true,
        "kubernetes.io/configmap"
        | "kubernetes.io/downward-api"
        | "kubernetes.io/secret"
        | "kubernetes.io/projected" => fs::symlink_metadata(volume.join("..data")).is_ok(),
        // A CSI volume is mounted below its directory, which also has a file about it. One of raw blocks is elsewhere.
        "kubernetes.io/csi" => is_mounted(&volume.join("mount"), mounts),
        _ => is_mounted(volume, mounts),
    }
}

fn is_mounted(path: &Path, mounts: &HashSet<&str>) -> bool {
    path.to_str().is_some_and(|path| mounts.contains(path))
}

#[cfg(test)]
mod tests;

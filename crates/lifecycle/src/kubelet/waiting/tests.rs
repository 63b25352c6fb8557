//! Directories of pods, as a kubelet makes them.

use super::*;

struct Node {
    _dir: tempfile::TempDir,
    dirs: PodDirectories,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let dirs = PodDirectories {
            kubelet: dir.path().join("kubelet"),
            logs: dir.path().join("logs"),
            mountinfo: dir.path().join("mountinfo"),
        };
        fs::create_dir_all(&dirs.logs).expect("made");
        Self { _dir: dir, dirs }
    }

    fn make(&self, path: &str) {
        fs::create_dir_all(self.dirs.kubelet.join("pods").join(path)).expect("made");
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.dirs.kubelet.join(path), text).expect("written");
    }

    /// The pods that wait this long after now, in the order of their uids. Every call was seen since this long ago.
    fn waiting_after(&self, after: Duration, watched: Duration) -> Vec<WaitingPod> {
        let now = UnixMicros::now();
        let known = HashSet::from(["known".into()]);
        let found = find(&self.dirs, &known, now - watched, now + after);
        let mut found = found.expect("readable");
        found.sort_by(|a, b| a.uid.cmp(&b.uid));
        found
    }

    fn waiting(&self) -> Vec<WaitingPod> {
        self.waiting_after(PODS_WAIT_AFTER, Duration::from_secs(3600))
    }
}

fn uids(pods: &[WaitingPod]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.uid).collect()
}

#[test]
fn a_directory_without_a_container_is_a_pod_that_waits() {
    let node = Node::new();
    for path in [
        "known/volumes",
        "runs/containers/app",
        "waits/volumes",
        "not_a_uid/volumes",
    ] {
        node.make(path);
    }
    node.make("ran");
    node.write("pods/ran/etc-hosts", "");
    assert_eq!(uids(&node.waiting()), ["waits"]);
    let soon = PODS_WAIT_AFTER - Duration::from_secs(1);
    assert_eq!(node.waiting_after(soon, Duration::from_secs(3600)), []);
    // It has a sandbox that was made before anybody watched.
    fs::create_dir_all(node.dirs.logs.join("shop_web_waits")).expect("made");
    assert_eq!(node.waiting(), []);
}

#[test]
fn without_logs_only_a_pod_of_the_watched_time_waits() {
    let node = Node::new();
    node.make("waits/volumes");
    fs::remove_dir(&node.dirs.logs).expect("removed");
    assert_eq!(uids(&node.waiting()), ["waits"]);
    let watched = Duration::ZERO;
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(node.waiting_after(PODS_WAIT_AFTER, watched), []);
}

#[test]
fn a_pod_that_has_ended_leaves_its_directory() {
    let node = Node::new();
    node.make("waits/volumes");
    node.make("orphan/volumes");
    let entry = r#"{\"waits\":{\"ContainerResources\":{\"app\":{}}}}"#;
    let text = format!(r#"{{"data":"{{\"entries\":{entry}}}","checksum":7}}"#);
    node.write("allocated_pods_state", &text);
    assert_eq!(uids(&node.waiting()), ["waits"]);
    node.write("allocated_pods_state", "another format");
    assert_eq!(uids(&node.waiting()), ["orphan", "waits"]);
}

#[test]
fn volumes_that_are_not_mounted_are_named() {
    let node = Node::new();
    for volume in [
        "csi/pvc-1/mount",
        "csi/pvc-2/mount",
        "nfs/share",
        "empty-dir/cache",
        "projected/kube-api-access-x/..data",
        "configmap/settings",
    ] {
        node.make(&format!("waits/volumes/kubernetes.io~{volume}"));
    }
    let projected = "pods/waits/volumes/kubernetes.io~projected/kube-api-access-x";
    node.write(&format!("{projected}/namespace"), "shop");
    let volumes = node.dirs.kubelet.join("pods/waits/volumes");
    let mounted = volumes.join("kubernetes.io~csi/pvc-2/mount");
    let line = format!(
        "29 1 0:27 / {} rw shared:7 - xfs /dev/sdb rw\n",
        mounted.display()
    );
    fs::write(&node.dirs.mountinfo, line).expect("written");
    let pods = node.waiting();
    let [pod] = &pods[..] else { panic!("one pod") };
    assert_eq!(pod.namespace.as_deref(), Some("shop"));
    let begun: Vec<_> = pod.volumes.begun.iter().map(|name| &**name).collect();
    assert_eq!(
        begun,
        ["pvc-1 (csi)", "settings (configmap)", "share (nfs)"]
    );
    let text = pod.sentence(pod.since + Duration::from_secs(63));
    assert_eq!(
        text,
        "the kubelet has known the pod for 1m 03s and has not asked for a sandbox: \
         volumes pvc-1 (csi), settings (configmap), share (nfs) are not mounted (3 others are ready)"
    );
}

#[test]
fn a_pod_without_volumes_waits_for_something_else() {
    let node = Node::new();
    node.make("waits");
    let pods = node.waiting();
    let text = pods[0].sentence(pods[0].since + Duration::from_secs(9));
    let known = "the kubelet has known the pod for 9 s and has not asked for a sandbox";
    assert_eq!(text, format!("{known}: {BEFORE_FIRST_CALL}"));
}

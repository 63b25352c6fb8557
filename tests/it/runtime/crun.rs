//! crun as the OCI runtime, with seccomp profiles that are compiled only once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criscope::cri::v1::security_profile::ProfileType;

use crate::prelude::*;

/// The annotation with which crun takes a compiled filter (crun(1)).
const ANNOTATION: &str = "run.oci.seccomp_bpf_data";

/// A wrapper that makes crun work on this machine.
///
/// With cgroup v1 crun requires the controller `hugetlb`, which is not mounted everywhere. So each call sees a private
/// directory with all hierarchies and this one instead. What crun leaves there, the parent of the pods' cgroups, is
/// removed with the last of them. The kernel may be busy with the end of the hierarchy, if another call was the last to use it: the
/// mount is tried again.
pub(super) fn crun(daemon: &Daemon) -> PathBuf {
    let crun = program("crun", "crun");
    let crun = crun.display();
    let top = Path::new("/sys/fs/cgroup");
    let there = ["cgroup.controllers", "hugetlb/cgroup.procs"];
    let script = if there.iter().any(|file| top.join(file).exists()) {
        format!("#!/bin/sh\nexec {crun} \"$@\"\n")
    } else {
        let own = daemon.state().join("hierarchies");
        fs::create_dir(&own).expect("a folder for hierarchies");
        format!(
            "#!/bin/sh\n\
             [ \"$OWN\" ] || OWN=1 exec unshare --mount \"$0\" \"$@\"\n\
             set -e\n\
             mount -t tmpfs tmpfs {own}\n\
             for each in {top}/*; do\n\
             if [ -h $each ]; then cp -P $each {own}; continue; fi\n\
             mkdir {own}/${{each##*/}}; mount --bind $each {own}/${{each##*/}}\n\
             done\n\
             mkdir -p {own}/hugetlb\n\
             for _ in 1 2 3 4 5; do mount -t cgroup -o hugetlb cgroup {own}/hugetlb && break; sleep 0.2; done\n\
             mount --move {own} {top}\n\
             set +e\n\
             {crun} \"$@\"; code=$?\n\
             find {top}/hugetlb/{name} -depth -type d -exec rmdir {{}} + 2> /dev/null\n\
             exit $code\n",
            own = own.display(),
            top = top.display(),
            name = daemon.name(),
        )
    };
    daemon.add_program("crun", &script)
}

/// A node whose handler `crun` has crun.
pub(super) async fn node_with_crun() -> (Daemon, Kubelet) {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let crun = crun(&daemon);
    daemon.configure(&format!("[runtime.handlers.crun]\npath = {crun:?}\n"));
    let kubelet = daemon.serve().await;
    (daemon, kubelet)
}

fn with_seccomp(name: &str, kind: ProfileType) -> v1::ContainerConfig {
    let mut config = idle(name);
    security(&mut config).seccomp = Some(v1::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: String::new(),
    });
    config
}

/// The compiled filter that a container was created with.
fn told(daemon: &Daemon, id: &str) -> Option<String> {
    let bundle = daemon.root().join("root/containers").join(id);
    let spec = fs::read(bundle.join("config.json")).expect("specification");
    let spec: Value = serde_json::from_slice(&spec).expect("specification");
    let annotation = spec["annotations"].get(ANNOTATION)?.as_str();
    Some(annotation.expect("text").to_owned())
}

/// The filter that crun has stored.
fn kept(daemon: &Daemon, id: &str) -> Vec<u8> {
    let state = daemon.state().join("state/oci/crun").join(id);
    fs::read(state.join("seccomp.bpf")).expect("a filter")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_crun_compiles_a_profile_once() {
    let (daemon, kubelet) = node_with_crun().await;
    let pod = kubelet.run_with(kubelet.pod_config("crun"), "crun").await;

    let first = kubelet
        .launch(&pod, with_seccomp("first", ProfileType::RuntimeDefault))
        .await;
    assert_eq!(told(&daemon, &first), None);
    let filter = kept(&daemon, &first);
    // The filter is stored asynchronously after the call that started the first container.
    let number = std::cell::Cell::new(0);
    let next = until("a filter in the annotation", || async {
        number.set(number.get() + 1);
        let name = format!("next-{}", number.get());
        let config = with_seccomp(&name, ProfileType::RuntimeDefault);
        let id = kubelet.launch(&pod, config).await;
        told(&daemon, &id).map(|told| (id, told))
    });
    let (next, told_filter) = next.await;
    assert_eq!(told_filter, STANDARD.encode(&filter));
    assert_eq!(kept(&daemon, &next), filter);
    let seccomp = "grep '^Seccomp:' /proc/self/status";
    for id in [&first, &next] {
        assert_eq!(kubelet.says(id, seccomp).await, "Seccomp:\t2");
        let refused = kubelet.exec(id, "unshare -U true").await;
        assert!(refused.err.contains("not permitted"), "{}", refused.err);
    }

    let open = with_seccomp("open", ProfileType::Unconfined);
    let open = kubelet.launch(&pod, open).await;
    assert_eq!(told(&daemon, &open), None);
    assert_eq!(kubelet.says(&open, seccomp).await, "Seccomp:\t0");

    let ended = kubelet.launch(&pod, shell("ended", "exit 3")).await;
    assert_eq!(kubelet.ended(&ended).await.exit_code, 3);
    kubelet.stop(&next, 5).await;
    assert_eq!(kubelet.status(&next).await.exit_code, 0);
    daemon.end(&kubelet, [&pod]).await;
    assert!(
        fs::read_dir(daemon.state().join("state/oci/crun"))
            .expect("state")
            .next()
            .is_none()
    );
}

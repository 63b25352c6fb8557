//! Block I/O and RDT classes (`runtime.blockio_config_file`, `runtime.rdt_config_file`), with a real OCI runtime and the block I/O
//! controller of the kernel.

use std::os::unix::fs::symlink;

use criscope::runtime::oci::spec::CgroupVersion;

use super::cgroups::{Parent, limit, value};
use crate::prelude::*;

const OF_POD: &str = "blockio.resources.beta.kubernetes.io/pod";
const OF_CONTAINER: &str = "blockio.resources.beta.kubernetes.io/container.";

/// A whole disk of this machine, and its number. A real one if there is one.
fn disk() -> (PathBuf, String) {
    let entries = fs::read_dir("/sys/block").expect("block devices");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("text"));
    let mut names: Vec<_> = names
        .filter(|name| Path::new("/dev").join(name).exists())
        .collect();
    names.sort_by_key(|name| {
        (
            name.starts_with("loop"),
            name.starts_with("zram"),
            name.clone(),
        )
    });
    let name = names.first().expect("a block device");
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).expect("its number");
    (Path::new("/dev").join(name), number.trim().to_owned())
}

/// The limits of bytes read and written per second that a container has on a disk.
fn throttles(parent: &Parent, id: &str, number: &str) -> (Option<u64>, Option<u64>) {
    let cgroup = parent.container(id);
    let read = |v1: &str, key: &str| {
        let text = value(&cgroup, "blkio", "io.max", v1);
        let line = text.lines().find_map(|line| line.strip_prefix(number))?;
        let limit = match cgroup.version() {
            CgroupVersion::V1 => line.trim(),
            CgroupVersion::V2 => line
                .split_whitespace()
                .find_map(|pair| pair.strip_prefix(key))?,
        };
        limit.parse().ok()
    };
    (
        read("blkio.throttle.read_bps_device", "rbps="),
        read("blkio.throttle.write_bps_device", "wbps="),
    )
}

async fn pod_with(
    kubelet: &Kubelet,
    parent: &Parent,
    name: &str,
    annotations: &[(&str, &str)],
) -> Pod {
    let mut config = kubelet.pod_config(name);
    let linux = config.linux.as_mut().expect("Linux");
    parent.path().clone_into(&mut linux.cgroup_parent);
    for (key, value) in annotations {
        config
            .annotations
            .insert((*key).to_owned(), (*value).to_owned());
    }
    kubelet.run(config).await
}

fn own_class(name: &str, class: &str) -> v1::ContainerConfig {
    let mut config = idle(name);
    let key = "io.kubernetes.cri.blockio-class".to_owned();
    config.annotations.insert(key, class.to_owned());
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn block_io_classes_are_limits_in_the_cgroup() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let (disk, number) = disk();
    let (file, links) = (
        daemon.root().join("blockio.yaml"),
        daemon.root().join("by-id"),
    );
    fs::create_dir(&links).expect("made");
    symlink(&disk, links.join("node-SSD-1")).expect("linked");
    fs::write(links.join("node-SSD-notes"), "").expect("written");
    let write = |read_limit: &str| {
        let text = format!(
            "Classes:\n  slow:\n  - Devices: [{disk:?}]\n    ThrottleReadBps: 1M\n    ThrottleWriteBps: 2Mi\n  \
             by-link:\n  - Devices: [\"{}/*SSD*\", /dev/no-such-disk*]\n    ThrottleReadBps: {read_limit}\n",
            links.display()
        );
        fs::write(&file, text).expect("written");
    };
    write("3k");
    daemon.set_runtime(&format!("blockio_config_file = {file:?}\n"));
    let kubelet = daemon.serve().await;
    let parent = Parent::new(&daemon, "pod1");
    let of_linked = format!("{OF_CONTAINER}linked");
    let annotations = [(OF_POD, "slow"), (of_linked.as_str(), "by-link")];
    let pod = pod_with(&kubelet, &parent, "classed", &annotations).await;

    let id = kubelet.launch(&pod, idle("of-pod")).await;
    let slow = (Some(1_000_000), Some(2 << 20));
    assert_eq!(throttles(&parent, &id, &number), slow);
    // An update of other resources keeps them.
    let mut update = idle("");
    limit(&mut update).memory_limit_in_bytes = 64 << 20;
    kubelet.update(&id, limit(&mut update).clone()).await;
    assert_eq!(throttles(&parent, &id, &number), slow);
    let id = kubelet.launch(&pod, idle("linked")).await;
    assert_eq!(throttles(&parent, &id, &number), (Some(3_000), None));
    let id = kubelet.launch(&pod, own_class("none", "")).await;
    assert_eq!(throttles(&parent, &id, &number), (None, None));

    // Changes are seen by the next container.
    kubelet.remove(&id).await;
    write("4k");
    let id = kubelet.launch(&pod, own_class("again", "by-link")).await;
    assert_eq!(throttles(&parent, &id, &number), (Some(4_000), None));

    let refused = async |config| {
        let error = kubelet.try_create(&pod, config).await;
        let error = error.expect_err("refused");
        let path = file.display().to_string();
        assert!(error.message().contains(&path), "{error}");
        (error.code(), error.message().to_owned())
    };
    let (code, text) = refused(own_class("web", "fast")).await;
    assert_eq!(code, Code::InvalidArgument);
    let expected = "container \"web\": block I/O class \"fast\" is not defined in ";
    assert!(text.contains(expected), "{text}");

    fs::write(&file, "Classes: {slow: [{Weight: 5}]}").expect("written");
    let (code, text) = refused(idle("broken")).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("Weight 5 is not between"), "{text}");
    // Only containers that have a class need the file, also after a restart.
    let kubelet = daemon.restart().await;
    let told = daemon.program().wait_event("runtime.blockio").await;
    assert_eq!(told["file"], file.display().to_string(), "{told}");
    kubelet.launch(&pod, own_class("without", "")).await;
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_that_the_node_has_not_refuse_or_are_ignored() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let file = daemon.root().join("rdt.yaml");
    daemon.set_runtime(&format!(
        "ignore_blockio_not_enabled_errors = true\nrdt_config_file = {file:?}\n"
    ));
    let kubelet = daemon.serve().await;
    let mut config = kubelet.pod_config("classed");
    let rdt = "rdt.resources.beta.kubernetes.io/container.db".to_owned();
    config.annotations.insert(rdt, "gold".to_owned());
    config
        .annotations
        .insert(OF_POD.to_owned(), "slow".to_owned());
    let pod = kubelet.run(config).await;
    // Neither resctrl is mounted here, nor the file written.
    let error = kubelet.try_create(&pod, idle("db")).await;
    let error = error.expect_err("refused");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    let expected = "container \"db\": RDT class \"gold\": ";
    assert!(error.message().contains(expected), "{error}");
    kubelet.launch(&pod, idle("other")).await;
    let told = daemon.program().wait_event("runtime.rdt").await;
    assert_eq!(told["file"], file.display().to_string(), "{told}");
    daemon.end(&kubelet, [&pod]).await;
}

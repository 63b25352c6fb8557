//! What containers and images put on the disk: all of it is in statistics, and what is copied for a container is bounded.

use criscope_linux::rootfs::list_mounts_below;

use super::full_disk::Disk;
use super::images::{pull, spec};
use crate::harness::image::{Image, gzip, image_running, layer};
use crate::prelude::*;

const MIB: u64 = 1 << 20;

/// Bytes and inodes of a writable layer.
fn size(stats: &v1::ContainerStats) -> Option<(u64, u64)> {
    let layer = stats.writable_layer.as_ref()?;
    let bytes = layer.used_bytes.as_ref()?.value;
    Some((bytes, layer.inodes_used.as_ref()?.value))
}

/// The sums of bytes and inodes over the containers of all pods, as the kubelet adds them up; `None` until all are measured.
async fn sizes(kubelet: &Kubelet) -> Option<[(u64, u64); 2]> {
    let mut runtime = kubelet.runtime.clone();
    let request = v1::ListContainerStatsRequest::default();
    let listed = runtime.list_container_stats(request).await;
    let listed = listed.expect("ListContainerStats").into_inner().stats;
    let request = v1::ListPodSandboxStatsRequest::default();
    let pods = runtime.list_pod_sandbox_stats(request).await;
    let pods = pods.expect("ListPodSandboxStats").into_inner().stats;
    let of_pods = pods.into_iter().filter_map(|pod| pod.linux);
    let of_pods = of_pods.flat_map(|linux| linux.containers).collect();
    let mut sums = [(0, 0); 2];
    for (sum, all) in sums
        .iter_mut()
        .zip::<[Vec<v1::ContainerStats>; 2]>([listed, of_pods])
    {
        for stats in all {
            let (bytes, inodes) = size(&stats)?;
            *sum = (sum.0 + bytes, sum.1 + inodes);
        }
    }
    Some(sums)
}

/// Waits until both lists have these sums at least; returns the larger one of bytes.
async fn grown(kubelet: &Kubelet, bytes: u64, inodes: u64) -> u64 {
    until("what was written to be counted", || async {
        let sums = sizes(kubelet).await?;
        let is_counted = |sum: &(u64, u64)| sum.0 >= bytes && sum.1 >= inodes;
        sums.iter()
            .all(is_counted)
            .then(|| sums[0].0.max(sums[1].0))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_container_writes_is_counted_once() {
    let (mut daemon, kubelet, pod) = node_with_pod("writes").await;
    let first = kubelet.launch(&pod, idle("first")).await;
    let mut reads = idle("reads");
    security(&mut reads).readonly_rootfs = true;
    let second = kubelet.launch(&pod, reads).await;
    let before = grown(&kubelet, 0, 2).await;
    assert!(before < MIB, "{before} bytes of idle containers");

    let write = |megabytes: u64, path: &str| {
        format!("dd if=/dev/zero of={path} bs=1048576 count={megabytes} 2>/dev/null")
    };
    let mut expected = 0;
    let files = [
        (6, "/etc/hostname"),
        (7, "/etc/hosts"),
        (8, "/etc/resolv.conf"),
        (9, "/volume/deep"),
        (10, "/own"),
    ];
    for (megabytes, path) in files {
        kubelet.says(&first, &write(megabytes, path)).await;
        expected += megabytes * MIB;
        let bytes = grown(&kubelet, expected, 2).await;
        assert!(bytes < expected + 4 * MIB, "{path}: {bytes} bytes");
    }
    let many = "mkdir /volume/many && cd /volume/many && busybox seq 1 3000 | busybox xargs touch";
    kubelet.says(&first, many).await;
    grown(&kubelet, expected, 3000).await;
    // A root file system that is read-only does not make the volumes of the image so.
    kubelet.says(&second, &write(5, "/volume/more")).await;
    expected += 5 * MIB;
    grown(&kubelet, expected, 3000).await;
    let mut images = kubelet.images.clone();
    let info = images.image_fs_info(v1::ImageFsInfoRequest {}).await;
    let info = info.expect("ImageFsInfo").into_inner();
    let written = info.container_filesystems[0].used_bytes.as_ref();
    assert!(written.is_some_and(|used| used.value >= expected));

    // Another daemon counts the same, and what is written after its start.
    let kubelet = daemon.restart().await;
    let bytes = grown(&kubelet, expected, 3000).await;
    assert!(bytes < expected + 4 * MIB, "{bytes} bytes");
    kubelet.says(&first, &write(11, "/own")).await;
    expected += MIB;
    grown(&kubelet, expected, 3000).await;

    // The files of the pod stay counted when the container that wrote them is gone, although no other can write them.
    kubelet.stop(&first, 0).await;
    kubelet.remove(&first).await;
    let left = (6 + 7 + 8 + 5) * MIB;
    let bytes = until("the rest to be counted", || async {
        let [listed, of_pods] = sizes(&kubelet).await?;
        let is_rest = (left..left + 4 * MIB).contains(&listed.0) && listed.0 == of_pods.0;
        is_rest.then_some(listed.0)
    })
    .await;
    assert!(bytes >= left);
    daemon.end(&kubelet, [&pod]).await;
}

/// An image with busybox, this layer, and these volumes.
fn image(more: Vec<u8>, volumes: impl IntoIterator<Item = String>) -> Image {
    let volumes = volumes.into_iter().map(|path| (path, json!({})));
    let run = json!({"Volumes": volumes.collect::<serde_json::Map<String, Value>>()});
    let layers = [busybox::layer(), more].map(|layer| (gzip(&layer), layer));
    image_running(&run, &layers)
}

/// A layer with a directory of one file, and this many links to it; and the paths of the links.
fn linked(bytes: usize, links: usize) -> (Vec<u8>, Vec<String>) {
    let zeros = vec![0; bytes];
    let mut built = layer()
        .dir("big/", 0o755)
        .file("big/zeros", &zeros)
        .dir("v/", 0o755);
    let mut paths = Vec::new();
    for number in 0..links {
        built = built.link(&format!("v/v{number}"), "/big");
        paths.push(format!("/v/v{number}"));
    }
    (built.end(), paths)
}

/// Pushes and pulls an image; returns its name.
async fn fetch(kubelet: &Kubelet, registry: &Registry, repository: &str, image: &Image) -> String {
    let name = registry.push(repository, "1", image);
    pull(kubelet, &name, "default").await.expect("PullImage");
    name
}

fn container(name: &str, image: &str) -> v1::ContainerConfig {
    let mut config = idle(name);
    config.image = spec(image);
    config
}

/// Creates a container, which must be refused for lack of something and leave nothing; returns the message.
async fn refused(daemon: &Daemon, kubelet: &Kubelet, pod: &Pod, image: &str) -> String {
    let containers = daemon.root().join("root/containers");
    let left = |containers: &Path| {
        let found = fs::read_dir(containers).expect("containers").count();
        (found, list_mounts_below(containers).expect("mounts").len())
    };
    let before = left(&containers);
    let refused = kubelet.try_create(pod, container("refused", image)).await;
    let error = refused.expect_err("it is refused");
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert_eq!(left(&containers), before, "{error}");
    assert!(error.message().contains(image), "{error}");
    error.message().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_not_multiplied_by_its_volumes() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let pod = kubelet.plain_pod("volumes").await;

    let (more, paths) = linked(4 << 20, 60);
    let many = fetch(&kubelet, &registry, "many", &image(more, paths)).await;
    let id = kubelet.try_create(&pod, container("many", &many)).await;
    let id = id.expect("the links lead to one directory");
    let volumes = daemon
        .root()
        .join("root/containers")
        .join(id)
        .join("volumes");
    assert_eq!(fs::read_dir(volumes).expect("volumes").count(), 1);

    // Volumes that contain each other are copied as before, within the same budget.
    let zeros = vec![0; 40 << 20];
    let nested = layer()
        .dir("a/", 0o755)
        .dir("a/b/", 0o755)
        .dir("a/b/c/", 0o755);
    let nested = nested.file("a/b/c/zeros", &zeros).end();
    let volumes = ["/a", "/a/b", "/a/b/c", "/a/./b"].map(str::to_owned);
    let nested = fetch(&kubelet, &registry, "nested", &image(nested, volumes)).await;
    refused(&daemon, &kubelet, &pod, &nested).await;

    // Thousands of files without content.
    let (mut files, mut path, mut volumes) = (layer(), String::new(), Vec::new());
    for number in 0..20 {
        path += &format!("d{number}/");
        files = files.dir(&path, 0o755);
        volumes.push(format!("/{path}"));
    }
    for number in 0..1000 {
        files = files.file(&format!("{path}{number}"), b"");
    }
    let empty = fetch(&kubelet, &registry, "empty", &image(files.end(), volumes)).await;
    let message = refused(&daemon, &kubelet, &pod, &empty).await;
    assert!(message.contains("files in all: /d"), "{message}");

    // Links to the same directory are one volume.
    let (more, paths) = linked(1 << 20, 3);
    let few = fetch(&kubelet, &registry, "few", &image(more, paths)).await;
    let id = kubelet.launch(&pod, container("few", &few)).await;
    let script = "echo mine > /big/zeros; busybox wc -c < /v/v0/zeros";
    assert_eq!(kubelet.says(&id, script).await, "5");
    let copies = daemon
        .root()
        .join("root/containers")
        .join(&id)
        .join("volumes");
    let copies: Vec<_> = fs::read_dir(copies).expect("volumes").flatten().collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    let copy = fs::metadata(copies[0].path().join("zeros"));
    assert_eq!(copy.expect("a copy").len(), 5);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_has_a_bounded_number_of_volumes() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let pod = kubelet.plain_pod("volumes").await;
    let paths = |count: usize| (0..count).map(|number| format!("/v/{number}"));
    let more = fetch(
        &kubelet,
        &registry,
        "more",
        &image(layer().end(), paths(129)),
    )
    .await;
    let message = refused(&daemon, &kubelet, &pod, &more).await;
    assert!(message.contains("129 volumes, at most 128"), "{message}");
    // Those that the request mounts something on are not created.
    let mut config = container("covered", &more);
    config.mounts.push(v1::Mount {
        container_path: "/v/7".to_owned(),
        host_path: daemon.root().join("bin").display().to_string(),
        readonly: true,
        ..Default::default()
    });
    let id = kubelet.launch(&pod, config).await;
    let mounts = "busybox grep -c ' /v/' /proc/mounts";
    assert_eq!(kubelet.says(&id, mounts).await, "129");
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_leave_space_on_the_disk() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let registry = Registry::start().await;
    let containers = daemon.root().join("root/containers");
    let content = image(
        layer().dir("data/", 0o755).file("data/file", b"x").end(),
        ["/data".to_owned()],
    );
    let empty = image(layer().end(), ["/data".to_owned()]);
    for (options, missing) in [
        ("size=2m,mode=700", "MiB are free, 272.0 MiB are needed"),
        (
            "size=1g,nr_inodes=9000,mode=700",
            "inodes are free, 10000 are needed",
        ),
    ] {
        let disk = Disk::with(&containers, options);
        let kubelet = daemon.serve().await;
        let pod = kubelet.plain_pod("small").await;
        let content = fetch(&kubelet, &registry, "content", &content).await;
        let message = refused(&daemon, &kubelet, &pod, &content).await;
        assert!(message.contains(missing), "{message}");
        // Nothing is copied to an empty volume.
        let empty = fetch(&kubelet, &registry, "empty", &empty).await;
        kubelet.launch(&pod, container("empty", &empty)).await;
        kubelet.end(&pod).await;
        daemon.kill();
        drop(disk);
    }
    // With enough space the files are copied, although they are on another disk than the image.
    let disk = Disk::with(&containers, "size=1g,mode=700");
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("large").await;
    let content = fetch(&kubelet, &registry, "content", &content).await;
    let id = kubelet.launch(&pod, container("content", &content)).await;
    assert_eq!(kubelet.says(&id, "cat /data/file").await, "x");
    kubelet.end(&pod).await;
    drop(disk);
    daemon.assert_clean();
}

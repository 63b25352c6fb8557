//! What images and registries cost the daemon: memory, turns and time that others need, each within its bound.

use std::fs;
use std::time::Duration;

use criscope::runtime::image::{Digest, Error};

use super::make::{Layer, docker_archive, gzip, gzipped, image, layer, noise};
use super::registry::{Registry, trickle};
use super::{Store, make};
use crate::harness::packages::need_root;
use crate::harness::proxy::Start;
use crate::harness::{soon, until};

/// The most that the process ever had in memory, in KiB (`VmHWM`, proc_pid_status(5)).
fn peak(pid: nix::unistd::Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let size = line.and_then(|line| line.trim().strip_suffix(" kB"));
    size.expect("VmHWM").trim().parse().expect("a number")
}

/// Has a daemon take in an image, and returns by how many KiB its peak memory grew.
async fn cost(layers: Vec<Vec<u8>>) -> u64 {
    need_root();
    let dir = tempfile::tempdir().expect("dir");
    let root = dir.path().display();
    let shim = env!("CARGO_BIN_EXE_criscope-shim");
    let config = format!(
        "[runtime]\nroot = \"{root}/root\"\nstate = \"{root}/state\"\nshim = \"{shim}\"\n\
         [runtime.cni]\nconf_dir = \"{root}/net.d\"\ncache_dir = \"{root}/cni\"\n"
    );
    let settings = dir.path().join("load.toml");
    fs::write(&settings, &config).expect("write");
    let load = async |name: &str, image: &make::Image| {
        let archive = dir.path().join("image.tar");
        fs::write(&archive, docker_archive(name, image)).expect("write");
        let load = tokio::process::Command::new(env!("CARGO_BIN_EXE_criscope"))
            .args(["load-image", "--config"])
            .args([&settings, &archive])
            .output();
        let loaded = load.await.expect("run");
        assert!(loaded.status.success(), "{loaded:?}");
    };
    let daemon = Start::new().config(&config).serving().await;
    // What the first image of all costs is not what this is about.
    let first = gzipped(&[layer().file("f", &noise(1, 1 << 20)).end()]);
    load("test/first:1", &first).await;
    let before = peak(daemon.pid());
    let layers = layers.into_iter().map(|plain| (gzip(&plain), plain));
    let layers: Vec<_> = layers.collect();
    load("test/large:1", &image(&layers)).await;
    peak(daemon.pid()) - before
}

/// A path of 3.5 KB below which all else lies.
fn long() -> (Layer, String) {
    let mut path = String::new();
    let mut layer = layer();
    for letter in 'a'..='n' {
        path.push_str(&String::from(letter).repeat(250));
        path.push('/');
        layer = layer.pax(&[("path", path.as_bytes())]).dir("x/", 0o755);
    }
    (layer, path)
}

#[tokio::test]
async fn memory_does_not_grow_with_the_directories_of_a_layer() {
    let (mut layer, path) = long();
    for number in 0..15_000 {
        let path = format!("{path}{number}/");
        layer = layer.pax(&[("path", path.as_bytes())]).dir("x/", 0o755);
    }
    let cost = cost(vec![layer.end()]).await;
    assert!(cost < 24 << 10, "{cost} KiB for 15000 directories");
}

/// One layer that does not compress, of this size.
fn one(seed: u32, size: usize) -> make::Image {
    gzipped(&[layer().file("f", &noise(seed, size)).end()])
}

/// Its layers trickle: faster than what counts as standing still, and for longer than any test waits.
fn trickles(registry: &Registry, image: &make::Image) {
    let (blob, digest) = (image.layers[0].clone(), Digest::of(&image.layers[0]));
    registry.hook(move |asked| {
        let is_it = asked.path.ends_with(digest.as_str());
        is_it.then(|| trickle(&blob, 1000, 1000))
    });
}

/// Waits until so many pulls have the beginning of their layer.
async fn begun(store: &Store, count: usize) {
    until("the beginnings", || async {
        let pulls = store.images.pulls();
        let begun = pulls.iter().filter(|pull| pull.bytes_done >= 1000).count();
        (begun == count).then_some(())
    })
    .await;
}

fn start(store: &Store, name: String) -> tokio::task::JoinHandle<Result<(), Error>> {
    let images = store.images.clone();
    tokio::spawn(async move { images.pull(&name, None, None).await.map(drop) })
}

#[tokio::test]
async fn a_slow_registry_keeps_no_other_from_its_turn() {
    let (store, slow, other) = (
        Store::new().await,
        Registry::start().await,
        Registry::start().await,
    );
    let mut pulls = Vec::new();
    let trickling: Vec<_> = (0..3).map(|n| one(n, 2_000_000)).collect();
    let blobs: Vec<_> = trickling
        .iter()
        .map(|image| image.layers[0].clone())
        .collect();
    for (number, image) in trickling.iter().enumerate() {
        pulls.push(start(
            &store,
            slow.push(&format!("slow{number}"), "1", image),
        ));
    }
    slow.hook(move |asked| {
        let blob = blobs
            .iter()
            .find(|blob| asked.path.ends_with(Digest::of(blob).as_str()));
        blob.map(|blob| trickle(blob, 1000, 1000))
    });
    begun(&store, 3).await;
    // Every regular turn is taken by now.
    let name = other.push("healthy", "1", &one(7, 200_000));
    let pulled = soon(
        "a pull from another registry",
        store.images.pull(&name, None, None),
    );
    pulled.await.expect("pull");
    assert_eq!(store.images.pulls().len(), 3);
    for pull in pulls {
        assert!(!pull.is_finished());
        pull.abort();
    }
}

#[tokio::test]
async fn a_slow_registry_does_not_hold_a_layer_that_another_has() {
    let (store, slow, other) = (
        Store::new().await,
        Registry::start().await,
        Registry::start().await,
    );
    // An image may claim any layer as its own: only what is unpacked shows whether it is.
    let image = one(1, 2_000_000);
    trickles(&slow, &image);
    let pull = start(&store, slow.push("slow", "1", &image));
    begun(&store, 1).await;
    let name = other.push("healthy", "1", &image);
    let pulled = soon(
        "the same layer from elsewhere",
        store.images.pull(&name, None, None),
    );
    pulled.await.expect("pull");
    assert!(!pull.is_finished());
    pull.abort();
}

#[tokio::test]
async fn slow_registries_in_every_place_make_room() {
    let store = Store::with(|config| {
        config.max_concurrent_downloads = 1;
        config.patience.turn = Duration::from_secs(1);
    })
    .await;
    let mut pulls = Vec::new();
    let mut registries = Vec::new();
    for number in 0..6 {
        let (registry, image) = (Registry::start().await, one(number, 2_000_000));
        trickles(&registry, &image);
        pulls.push(start(&store, registry.push("slow", "1", &image)));
        registries.push(registry);
    }
    let other = Registry::start().await;
    let name = other.push("healthy", "1", &one(7, 100_000));
    let pulled = soon(
        "a pull that had to wait",
        store.images.pull(&name, None, None),
    );
    pulled.await.expect("pull");
    for pull in pulls {
        pull.abort();
    }
}

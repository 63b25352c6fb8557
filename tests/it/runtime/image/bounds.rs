//! Limits on what images and registries cost the daemon: memory, download slots and time.

use criscope_image::Shortage;

use super::*;

/// The peak resident memory of the process, in KiB (`VmHWM`, proc_pid_status(5)).
fn peak(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let size = line.and_then(|line| line.trim().strip_suffix(" kB"));
    size.expect("VmHWM").trim().parse().expect("a number")
}

/// Imports an image into a daemon; returns the growth of its peak memory in KiB.
async fn cost(layers: Vec<Vec<u8>>) -> u64 {
    need_root();
    let dir = tempfile::tempdir().expect("dir");
    let root = dir.path().display();
    let shim = crate::SHIM;
    let config = format!(
        "[runtime]\nroot = \"{root}/root\"\nstate = \"{root}/state\"\nshim = \"{shim}\"\n\
         [runtime.cni]\nconf_dir = \"{root}/net.d\"\ncache_dir = \"{root}/cni\"\n"
    );
    let settings = dir.path().join("load.toml");
    fs::write(&settings, &config).expect("write");
    let load = async |name: &str, image: &make::Image| {
        let archive = dir.path().join("image.tar");
        fs::write(&archive, docker_archive(name, image)).expect("write");
        let load = tokio::process::Command::new(crate::CRISCOPE)
            .args(["load-image", "--config"])
            .args([&settings, &archive])
            .output();
        let loaded = load.await.expect("run");
        assert!(loaded.status.success(), "{loaded:?}");
    };
    let daemon = Start::new(crate::CRISCOPE).config(&config).serving().await;
    // The one-time cost of the first image is not counted.
    let first = with_file(&noise(1, 1 << 20));
    load("test/first:1", &first).await;
    let before = peak(daemon.pid());
    let layers = layers.into_iter().map(|plain| (gzip(&plain), plain));
    let layers: Vec<_> = layers.collect();
    load("test/large:1", &image(&layers)).await;
    peak(daemon.pid()) - before
}

/// A 3.5 KB path, which contains everything else.
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

/// An image with one incompressible layer of this size.
fn one(seed: u32, size: usize) -> make::Image {
    with_file(&noise(seed, size))
}

/// Makes its layers trickle: faster than a stall, and for longer than any test waits.
fn trickles(registry: &Registry, image: &make::Image) {
    let (blob, digest) = (image.layers[0].clone(), Digest::sha256(&image.layers[0]));
    registry.hook(move |asked| {
        let is_it = asked.path.ends_with(digest.as_str());
        is_it.then(|| trickle(&blob, 1000, 1000))
    });
}

/// Waits until this number of pulls have the start of their layer.
async fn begun(store: &Store, count: usize) {
    until_true("the beginnings", async || {
        let pulls = store.images.pulls();
        let begun = pulls.iter().filter(|pull| pull.bytes_done >= 1000).count();
        begun == count
    })
    .await;
}

fn start(store: &Store, name: String) -> tokio::task::JoinHandle<Result<(), Error>> {
    let images = store.images.clone();
    tokio::spawn(async move { images.pull(&name, None, None).await.map(drop) })
}

#[tokio::test]
async fn a_slow_registry_keeps_no_other_from_its_turn() {
    let (store, [slow, other]) = with_registries().await;
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
            .find(|blob| asked.path.ends_with(Digest::sha256(blob).as_str()));
        blob.map(|blob| trickle(blob, 1000, 1000))
    });
    begun(&store, 3).await;
    // Every regular download slot is taken now.
    let name = other.push("healthy", "1", &one(7, 200_000));
    store.pull(&name).await;
    assert_eq!(store.images.pulls().len(), 3);
    for pull in pulls {
        assert!(!pull.is_finished());
        pull.abort();
    }
}

#[tokio::test]
async fn a_slow_registry_does_not_hold_a_layer_that_another_has() {
    let (store, [slow, other]) = with_registries().await;
    // An image may claim any layer: only unpacking verifies it.
    let image = one(1, 2_000_000);
    trickles(&slow, &image);
    let pull = start(&store, slow.push("slow", "1", &image));
    begun(&store, 1).await;
    let name = other.push("healthy", "1", &image);
    store.pull(&name).await;
    assert!(!pull.is_finished());
    pull.abort();
}

#[tokio::test]
async fn slow_registries_in_every_place_make_room() {
    let store = Store::with(|config| {
        config.max_concurrent_downloads = 1;
        config.timeouts.slow_layer = Duration::from_secs(1);
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
    store.pull(&name).await;
    for pull in pulls {
        pull.abort();
    }
}

#[tokio::test]
async fn honest_images_may_be_large() {
    let store = Store::new().await;
    let mut built = layer();
    for dir in 0..2_000 {
        built = built.dir(&format!("node_modules/{dir}/"), 0o755);
        for file in 0..99 {
            built = built.file(&format!("node_modules/{dir}/{file}.js"), b"");
        }
    }
    let mut layers = vec![built.end()];
    for number in 1..127 {
        layers.push(layer().file(&format!("layer{number}"), b"x").end());
    }
    let registry = Registry::start().await;
    let name = registry.push("large", "1", &gzipped(&layers));
    let id = store.pull(&name).await;
    let layers = store.images.layers(id.as_str()).expect("layers");
    assert_eq!(layers.paths().len(), 127);
    assert!(layers.paths()[0].join("node_modules/1999/98.js").exists());
}

#[tokio::test]
async fn directories_keep_the_times_of_their_entries() {
    use std::os::unix::fs::MetadataExt as _;
    let store = Store::new().await;
    let at = |header: &mut tar::Header, time| header.set_mtime(time);
    let dir = |layer: Layer, path: &str, time| {
        layer.entry(path, tar::EntryType::Directory, b"", |h| at(h, time))
    };
    let mut built = dir(layer(), "./", 1);
    for (path, time) in [("a/", 2), ("a/b/", 3), ("c/", 4)] {
        built = dir(built, path, time);
    }
    // Later entries revisit a directory, also through a link, and one is replaced.
    let built = built
        .file("a/b/f", b"")
        .file("a/f", b"")
        .link("l", "a/b")
        .file("l/g", b"")
        .file("c/x", b"")
        .file("c/x", b"again")
        .file("a/.wh.gone", b"")
        .hard_link("c/y", "a/f")
        .file("g", b"");
    let built = dir(built, "late/deep/", 5);
    let built = dir(built, "late/", 6).file("late/f", b"");
    let registry = Registry::start().await;
    let name = registry.push("times", "1", &gzipped(&[built.end()]));
    store.pull(&name).await;
    let layers = store.images.layers(&name).expect("layers");
    let time = |path: &str| {
        let path = layers.paths()[0].join(path);
        path.symlink_metadata().expect("there").mtime()
    };
    let times = ["", "a", "a/b", "c", "late/deep", "late"].map(time);
    assert_eq!(times, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_disk_keeps_inodes_for_others() {
    let store = Store::with(|config| config.limits.min_free_inodes = u64::MAX).await;
    let registry = Registry::start().await;
    let name = registry.push("a", "1", &one(1, 1000));
    let error = store.refuses(&name).await;
    let shortage = match error {
        Error::NoSpace { shortage, .. } => shortage,
        other => panic!("{other}"),
    };
    assert!(matches!(shortage, Shortage::Inodes { .. }), "{shortage}");
    assert_eq!(error.code(), Code::ResourceExhausted);
    store.assert_empty().await;
}

/// A copy of a layer that matches other layers below it takes inodes for its directories, whoever has fetched it.
#[tokio::test]
async fn copies_of_layers_keep_inodes_for_others() {
    let store = Store::new().await;
    let registry = Registry::start().await;
    let top = layer().file("lib/file", b"x").end();
    let base = |lib: &str| layer().dir("usr/", 0o755).link("lib", lib).end();
    let bases = ["usr", "./usr"].map(base);
    let first = registry.push("first", "1", &gzipped(&[bases[0].clone(), top.clone()]));
    let alone = registry.push("alone", "1", &gzipped(&bases[1..]));
    for name in [&first, &alone] {
        store.pull(name).await;
    }
    let mut tight = super::config(store.dir.path());
    tight.limits.min_free_inodes = u64::MAX;
    let images = store.images.with_settings(tight);
    let second = registry.push("second", "1", &gzipped(&[bases[1].clone(), top]));
    let error = images.pull(&second, None, None).await.expect_err("no room");
    let shortage = match error {
        Error::NoSpace { shortage, .. } => shortage,
        other => panic!("{other}"),
    };
    assert!(matches!(shortage, Shortage::Inodes { .. }), "{shortage}");
    for name in [&first, &alone] {
        store.images.remove(name).await.expect("remove");
    }
    store.assert_empty().await;
}

#[tokio::test]
async fn a_tree_nested_by_links_is_refused() {
    let store = Store::new().await;
    let deep = "d/".repeat(400);
    let built = layer()
        .pax(&[("path", format!("{deep}f").as_bytes())])
        .file("x", b"")
        .link("l", "d")
        .pax(&[("linkpath", deep.as_bytes())])
        .link("far", "x")
        .pax(&[("path", format!("far/{deep}f").as_bytes())])
        .file("x", b"");
    let registry = Registry::start().await;
    let name = registry.push("deep", "1", &gzipped(&[built.end()]));
    let error = store.refuses(&name).await;
    assert!(error.to_string().contains("deeper than 512"), "{error}");
    store.assert_empty().await;
}

#[tokio::test]
async fn wide_windows_unpack_one_after_the_other() {
    use std::io::Write as _;
    let (store, registry) = (Store::new().await, Registry::start().await);
    let wide = |n: u32| {
        let plain = layer().file(&format!("f{n}"), &noise(n, 100_000)).end();
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("zstd");
        encoder.window_log(27).expect("log");
        encoder.write_all(&plain).expect("zstd");
        (encoder.finish().expect("zstd"), plain)
    };
    let name = registry.push("wide", "1", &image(&[wide(1), wide(2), wide(3)]));
    store.pull(&name).await;
    let layers = store.images.layers(&name).expect("layers");
    assert!(layers.paths()[2].join("f3").exists());
}

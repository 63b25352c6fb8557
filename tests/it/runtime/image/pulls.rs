//! Successful pulls, some after retries.

use std::collections::HashSet;

use criscope_image::LayerPhase;

use super::*;

fn files(n: u32) -> Vec<u8> {
    layer()
        .dir(&format!("d{n}/"), 0o755)
        .file(&format!("d{n}/f"), &noise(n, 3_000_000))
        .end()
}

#[tokio::test]
async fn an_image_is_pulled_and_removed() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = gzipped(&[
        layer().file("a", b"below").end(),
        layer().file("b", b"above").end(),
    ]);
    let name = registry.push("some/image", "1", &built);
    let images = &store.images;
    let before = images.fs_info().await.expect("info").used_bytes;
    let id = images.pull(&name, None, None).await.expect("pull");
    assert_eq!(id, built.id());
    let manifest = Digest::sha256(&built.manifest);
    let by_digest = registry.name(&format!("some/image@{manifest}"));
    for way in [
        &name,
        &by_digest,
        id.as_str(),
        id.hex(),
        &id.hex()[..8],
        &registry.name(&format!("some/image:9@{manifest}")),
    ] {
        let image = images.status(way).expect(way).expect(way);
        assert_eq!(image.id, id);
    }
    let image = images.list(None).expect("list").remove(0);
    assert_eq!(
        (&image.tags, &image.digests),
        (&vec![name.clone()], &vec![by_digest.clone()])
    );
    assert!(image.size >= 8192);
    assert_eq!(
        (
            image.config.user.as_str(),
            image.config.stop_signal.as_str()
        ),
        ("7:8", "SIGQUIT")
    );
    assert!(!format!("{image:?}").contains("hush"));
    let layers = images.layers(&name).expect("layers");
    let read = |n: usize, file: &str| fs::read_to_string(layers.paths()[n].join(file)).expect(file);
    assert_eq!(
        (read(0, "a"), read(1, "b")),
        ("below".to_owned(), "above".to_owned())
    );
    assert!(images.fs_info().await.expect("info").used_bytes > before);
    // Removed while a container uses it: the layers remain, and can be leased again after a restart.
    assert!(images.remove(&by_digest).await.expect("remove"));
    assert!(
        images.status(&name).expect("status").is_none()
            && images.list(None).expect("list").is_empty()
    );
    assert!(!images.remove(&name).await.expect("remove once more"));
    images.collect().await.expect("collect");
    assert_eq!(read(0, "a"), "below");
    let ids = layers.ids().to_vec();
    drop(layers);
    let store = store.reopened().await;
    drop(store.images.hold(ids).expect("hold"));
    store.assert_empty().await;
}

#[tokio::test]
async fn all_compressions_and_the_right_platform() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let plain: Vec<_> = (1..=4)
        .map(|n| layer().file("f", format!("{n}").as_bytes()).end())
        .collect();
    let mut members = gzip(&plain[0][..512]);
    members.extend(gzip(&plain[0][512..]));
    let zstd = zstd::encode_all(&plain[1][..], 3).expect("zstd");
    let built = image(&[
        (members, plain[0].clone()),
        (zstd, plain[1].clone()),
        (plain[2].clone(), plain[2].clone()),
        (gzip(&plain[3]), plain[3].clone()),
    ]);
    let other = image_for("s390x", &[]);
    registry.push("a", "ours", &built);
    registry.push("a", "theirs", &other);
    let entry = |bytes: &[u8], os: &str, architecture: &str| {
        let mut entry = descriptor(make::OCI, bytes);
        entry["platform"] = json!({"os": os, "architecture": architecture});
        entry
    };
    let entries = [
        entry(&other.manifest, "linux", "s390x"),
        entry(&other.manifest, "unknown", "unknown"),
        entry(&built.manifest, "linux", make::architecture()),
    ];
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    registry.put_manifest("a", "1", INDEX, index.as_bytes());
    let name = registry.name("a:1");
    let id = store.pull(&name).await;
    assert_eq!(id, built.id());
    let image = store.image(&name);
    assert_eq!(
        image.digests,
        [registry.name(&format!("a@{}", Digest::sha256(index.as_bytes())))]
    );
    let layers = store.images.layers(&name).expect("layers");
    let read: String = layers
        .paths()
        .iter()
        .map(|p| fs::read_to_string(p.join("f")).expect("f"))
        .collect();
    assert_eq!(read, "1234");
    // An index without an image for this machine; one that was asked for as such is pulled.
    let index = json!({"schemaVersion": 2, "manifests": entries[..2]}).to_string();
    registry.put_manifest("a", "others", INDEX, index.as_bytes());
    let error = store.refuses(&registry.name("a:others")).await;
    assert!(matches!(error, Error::NoPlatform { .. }), "{error}");
    let name = registry.name("a:theirs");
    let theirs = store.images.pull(&name, None, None).await;
    assert_eq!(theirs.expect("pull"), other.id());
}

#[tokio::test]
async fn shared_layers_are_fetched_once() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let (base, a, b) = (files(1), files(2), files(3));
    let first = registry.push("a", "1", &gzipped(&[base.clone(), a]));
    let second = registry.push("b", "1", &gzipped(&[base, b]));
    let pulls = [&first, &second, &first].map(|name| store.images.pull(name, None, None));
    for pulled in futures_util::future::join_all(pulls).await {
        pulled.expect("pull");
    }
    let blobs = registry.asked("/blobs/sha256:");
    let layers: Vec<_> = blobs
        .iter()
        .filter_map(|asked| asked.path.rsplit('/').next())
        .collect();
    let distinct: HashSet<_> = layers.iter().collect();
    // Three layers once each; both pulls of `a` may have fetched its configuration.
    assert_eq!(distinct.len(), 5);
    assert!((5..=6).contains(&layers.len()), "{layers:?}");
    assert!(store.images.remove(&first).await.expect("remove"));
    let layers = store.images.layers(&second).expect("layers");
    assert!(layers.paths()[0].join("d1/f").exists());
    drop(layers);
    let removes = [(); 5].map(|()| store.images.remove(&second));
    for removed in futures_util::future::join_all(removes).await {
        removed.expect("remove");
    }
    store.assert_empty().await;
}

#[tokio::test]
async fn a_broken_download_is_resumed() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = gzipped(&[files(1)]);
    let blob = built.layers[0].clone();
    let name = registry.push("a", "1", &built);
    let digest = Digest::sha256(&blob);
    registry.hook(move |asked| {
        (asked.path.ends_with(digest.as_str()) && asked.before == 0).then(|| cut(&blob, 1_000_000))
    });
    store.pull(&name).await;
    let asked = registry.asked(Digest::sha256(&built.layers[0]).as_str());
    let ranges: Vec<_> = asked
        .iter()
        .map(|a| {
            a.headers
                .get("range")
                .map(|r| r.to_str().expect("text").to_owned())
        })
        .collect();
    assert_eq!(ranges.len(), 2);
    assert!(ranges[0].is_none());
    let from = ranges[1].as_deref().and_then(|r| {
        r.strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse::<u64>()
            .ok()
    });
    assert!(
        from.is_some_and(|from| (1..=1_000_000).contains(&from)),
        "{ranges:?}"
    );
}

#[tokio::test]
async fn an_abandoned_pull_is_resumed() {
    let store = Store::with(|config| config.keep_unused = Duration::from_secs(3600)).await;
    let registry = Registry::start().await;
    let built = gzipped(&[files(1)]);
    let (blob, digest) = (built.layers[0].clone(), Digest::sha256(&built.layers[0]));
    let name = registry.push("a", "1", &built);
    let own = digest.clone();
    registry.hook(move |asked| {
        asked
            .path
            .ends_with(own.as_str())
            .then(|| stall(&blob, 1_500_000))
    });
    let (images, own) = (store.images.clone(), name.clone());
    let pull = tokio::spawn(async move { images.pull(&own, None, None).await });
    let fetched = || async {
        let view = store.images.pulls().into_iter().next()?;
        (view.bytes_done >= 1_500_000 && view.layers[0].phase == LayerPhase::Fetching)
            .then_some(view)
    };
    let view = until("part of the layer", fetched).await;
    // Received bytes are counted at once, and stored a moment later.
    until("the part to be stored", || async {
        let partial = fs::read_dir(store.dir.path().join("store/partial")).expect("a folder");
        let mut files = partial.filter_map(|file| file.ok()?.metadata().ok());
        files.any(|file| file.len() == 1_500_000).then_some(())
    })
    .await;
    assert_eq!(
        (view.reference.as_str(), view.bytes_total),
        (name.as_str(), built.layers[0].len() as u64)
    );
    pull.abort();
    let _ = pull.await;
    assert!(store.images.pulls().is_empty());
    registry.behave();
    registry.forget();
    store.pull(&name).await;
    let asked = registry.asked(digest.as_str());
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].headers["range"], "bytes=1500000-");
    assert!(
        !store
            .files()
            .iter()
            .any(|file| file.starts_with("partial/"))
    );
}

#[tokio::test]
async fn a_corrupt_partial_layer_is_discarded() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let plain = files(1);
    let built = gzipped(std::slice::from_ref(&plain));
    let name = registry.push("a", "1", &built);
    let digest = Digest::sha256(&built.layers[0]);
    let partial = format!(
        "{}.{}",
        digest.as_str().replace(':', "-"),
        &Digest::sha256(&plain).hex()[..16]
    );
    let path = store.dir.path().join("store/partial").join(partial);
    fs::write(&path, noise(99, 5000)).expect("write");
    store.pull(&name).await;
    let asked = registry.asked(digest.as_str());
    // The mismatch may be found before the rest is requested.
    let ranged: Vec<_> = asked
        .iter()
        .map(|a| a.headers.contains_key("range"))
        .collect();
    assert!(ranged == [true, false] || ranged == [false], "{ranged:?}");
    assert!(!path.exists());
}

/// Pushes an image whose layer the registry stops sending after 100,000 bytes, the first time. Returns its name and the digest of the layer.
fn stalling(registry: &Registry) -> (String, Digest) {
    let built = gzipped(&[files(1)]);
    let (blob, digest) = (built.layers[0].clone(), Digest::sha256(&built.layers[0]));
    let name = registry.push("a", "1", &built);
    let own = digest.clone();
    registry.hook(move |asked| {
        (asked.path.ends_with(own.as_str()) && asked.before == 0).then(|| stall(&blob, 100_000))
    });
    (name, digest)
}

#[tokio::test]
async fn a_cancelled_pull_does_not_stop_another() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let (name, digest) = stalling(&registry);
    let pull = || {
        let (images, name) = (store.images.clone(), name.clone());
        tokio::spawn(async move { images.pull(&name, None, None).await })
    };
    let first = pull();
    let layers = |wanted: usize| {
        let images = store.images.clone();
        move || {
            let ready = images
                .pulls()
                .iter()
                .filter(|p| p.bytes_done >= 100_000)
                .count()
                == wanted;
            async move { ready.then_some(()) }
        }
    };
    until("the first", layers(1)).await;
    let second = pull();
    until("the second", layers(2)).await;
    first.abort();
    let _ = first.await;
    assert_eq!(registry.asked(digest.as_str()).len(), 1);
    let third = pull();
    until("the third", layers(2)).await;
    // No caller is left: the download stops, and the next one resumes it.
    for pull in [second, third] {
        pull.abort();
        let _ = pull.await;
    }
    store.pull(&name).await;
    assert_eq!(registry.asked(digest.as_str()).len(), 2);
}

#[tokio::test]
async fn other_settings_are_those_of_later_pulls_in_the_same_store() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let (name, digest) = stalling(&registry);
    let other = store.images.with_settings(config(store.dir.path()));
    let begun = [&store.images, &other].map(|images| {
        let (images, name) = (images.clone(), name.clone());
        tokio::spawn(async move { images.pull(&name, None, None).await })
    });
    // Both wait for one download, and each handle knows both.
    for images in [&store.images, &other] {
        until_true("both pulls", async || {
            let pulls = images.pulls();
            let fetching = pulls.iter().filter(|pull| pull.bytes_done >= 100_000);
            fetching.count() == 2
        })
        .await;
    }
    assert_eq!(registry.asked(digest.as_str()).len(), 1);
    for pull in begun {
        pull.abort();
        let _ = pull.await;
    }

    let mut strict = config(store.dir.path());
    strict.limits.max_layer_bytes = 1 << 20;
    strict.root = "/no/such/store".into();
    let strict = other.with_settings(strict);
    let error = strict.pull(&name, None, None).await.expect_err("too large");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    store.pull(&name).await;
    assert!(strict.status(&name).expect("a name").is_some());
    assert!(strict.remove(&name).await.expect("remove"));
    store.assert_empty().await;
}

#[tokio::test]
async fn a_busy_registry_is_retried() {
    let (store, registry, name) = with_image().await;
    registry.hook(|asked| match asked.before {
        0 => Some(status(429, "slowly")),
        1 => Some(status(503, "")),
        _ => None,
    });
    store.pull(&name).await;
    assert_eq!(registry.asked("/manifests/1").len(), 3);
}

#[tokio::test]
async fn a_deadline_is_kept() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let built = gzipped(&[files(1)]);
    let (blob, name) = (built.layers[0].clone(), registry.push("a", "1", &built));
    registry.hook(move |asked| asked.path.contains("/blobs/").then(|| stall(&blob, 1000)));
    let deadline = Instant::now() + Duration::from_millis(1);
    let error = store
        .images
        .pull(&name, None, Some(deadline))
        .await
        .expect_err("too late");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(store.images.pulls().is_empty());
}

#[tokio::test]
async fn a_tag_that_moves_leaves_its_image() {
    let (store, registry) = (Store::new().await, Registry::start().await);
    let old = with_file(b"old");
    let new = with_file(b"new");
    let name = registry.push("a", "1", &old);
    store.pull(&name).await;
    store.images.pin(&name, true).await.expect("pin");
    registry.push("a", "1", &new);
    store.pull(&name).await;
    let moved = store.image(&name);
    assert_eq!(moved.id, new.id());
    let left = store.image(old.id().as_str());
    assert!(left.tags.is_empty() && left.digests.len() == 1 && left.pinned);
    let store = store.reopened().await;
    assert_eq!(store.image(&name).id, new.id());
    assert_eq!(store.images.list(None).expect("list").len(), 2);
    assert!(store.images.problems().is_empty());
}

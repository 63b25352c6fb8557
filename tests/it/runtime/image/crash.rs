//! The store is killed at every step, reopened, and continues.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use criscope_image::{Failpoint, FailpointHook, ImageStore};

use super::make::{gzipped, layer, noise};
use super::registry::Registry;
use super::{NOTHING, Store, config, files};
use crate::harness::image_store;

/// The step at which the child process dies. Unset: the test does nothing.
const DIES: &str = "CRISCOPE_TEST_IMAGE_STEP";
const DIR: &str = "CRISCOPE_TEST_IMAGE_DIR";
const NAME: &str = "CRISCOPE_TEST_IMAGE_NAME";

/// Pulls and removes an image, and dies at the named step. The test below runs this one in a child process.
#[tokio::test]
async fn dies() {
    let (Ok(step), Ok(dir), Ok(name)) =
        (std::env::var(DIES), std::env::var(DIR), std::env::var(NAME))
    else {
        return;
    };
    let mut config = config(Path::new(&dir));
    config.failpoint = FailpointHook::new(move |reached| {
        if format!("{reached:?}") == step {
            std::process::abort();
        }
    });
    let images = ImageStore::open(config).await.expect("open");
    images.pull(&name, None, None).await.expect("pull");
    images.remove(&name).await.expect("remove");
}

#[tokio::test]
async fn the_store_recovers_from_a_crash_at_every_step() {
    let registry = Registry::start().await;
    let built = gzipped(&[
        layer()
            .dir("a/", 0o755)
            .file("a/f", &noise(1, 300_000))
            .end(),
        layer().file("a/g", b"x").end(),
    ]);
    let name = registry.push("a", "1", &built);
    for step in Failpoint::ALL.iter().copied() {
        let dir = tempfile::tempdir().expect("a folder");
        let died = die(dir.path(), &name, step).await;
        assert!(died, "{step:?} was never reached");
        let images = image_store::open(&config(dir.path())).await;
        assert!(
            images.problems().is_empty(),
            "{step:?}: {:?}",
            images.problems()
        );
        let root = dir.path().join("store");
        let temporary: Vec<_> = files(&root)
            .into_iter()
            .filter(|f| f.starts_with("tmp/"))
            .collect();
        assert_eq!(temporary, NOTHING, "{step:?}");
        // A listed image is complete.
        for image in images.list(None).expect("list") {
            let layers = images.layers(image.id.as_str()).expect("layers");
            assert!(layers.paths()[0].join("a/f").exists(), "{step:?}");
        }
        images.collect().await.expect("collect");
        if images.list(None).expect("list").is_empty() {
            assert_eq!(files(&root), NOTHING, "{step:?}");
        }
        let id = images.pull(&name, None, None).await.expect("pull");
        assert_eq!(id, built.id());
        assert!(images.remove(&name).await.expect("remove"));
        images.collect().await.expect("collect");
        assert_eq!(files(&root), NOTHING, "{step:?}");
    }
}

async fn die(dir: &Path, name: &str, step: Failpoint) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "runtime::image::crash::dies", "--test-threads=1"])
        .env(DIES, format!("{step:?}"))
        .env(DIR, dir)
        .env(NAME, name)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = tokio::task::spawn_blocking(move || command.status()).await;
    !status.expect("a thread").expect("start").success()
}

#[tokio::test]
async fn a_damaged_record_is_skipped() {
    let (store, registry) = (
        Store::with(|config| config.keep_unused = Duration::from_secs(3600)).await,
        Registry::start().await,
    );
    let (a, b) = (
        gzipped(&[layer().file("f", b"a").end()]),
        gzipped(&[layer().file("f", b"b").end()]),
    );
    let (first, second) = (registry.push("a", "1", &a), registry.push("b", "1", &b));
    for name in [&first, &second] {
        store.images.pull(name, None, None).await.expect("pull");
    }
    let Store { images, dir } = store;
    drop(images);
    let record = dir.path().join(format!(
        "store/images/{}.json",
        a.id().as_str().replace(':', "-")
    ));
    std::fs::write(&record, "{").expect("write");
    let images = image_store::open(&config(dir.path())).await;
    assert_eq!(images.problems().len(), 1);
    assert_eq!(images.list(None).expect("list").len(), 1);
    assert!(images.status(&second).expect("status").is_some());
    images.pull(&first, None, None).await.expect("pull again");
    assert_eq!(images.list(None).expect("list").len(), 2);
    drop(images);
    let again = image_store::open(&config(dir.path())).await;
    assert!(again.problems().is_empty());
}

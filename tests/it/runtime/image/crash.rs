//! The store is killed at every step, reopened, and continues.

use criscope_image::{Failpoint, FailpointHook};

use super::*;
use crate::harness::image_store::{self, StoreDir};

/// The step at which the child process dies. Unset: the test does nothing.
const DIES: &str = "CRISCOPE_TEST_IMAGE_STEP";
const DIR: &str = "CRISCOPE_TEST_IMAGE_DIR";
/// Two boots of the machine.
const FIRST: &str = "first";
const NEXT: &str = "next";
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
    config.boot = Some(FIRST.to_owned());
    config.failpoint = FailpointHook::new(move |reached| {
        if format!("{reached:?}") == step {
            std::process::abort();
        }
    });
    let images = ImageStore::open(config).await.expect("open");
    images.pull(&name, None, None).await.expect("pull");
    images.settled().await.expect("on disk");
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
        let dir = StoreDir::new();
        let died = die(dir.path(), &name, step).await;
        assert!(died, "{step:?} was never reached");
        let mut config = config(dir.path());
        config.boot = Some(FIRST.to_owned());
        let images = image_store::open(&config).await;
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

/// What a power failure may do to a file that was not synced.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Gone,
    Empty,
}

/// Damages what the store has not synced: pending records, layers without a mark, and content of no image that is recorded.
fn damage(root: &Path, how: Damage) {
    let all = files(root);
    let recorded = all.iter().any(|file| file.starts_with("images"));
    for file in all {
        let mut parts = file.components();
        let (of, name) = (parts.next(), parts.next());
        let of = of.map(|of| of.as_os_str().to_string_lossy().into_owned());
        let is_unsynced = match (of.as_deref(), name) {
            (Some("layers"), Some(layer)) => {
                !root.join("layers").join(layer).join("synced").exists()
            }
            (Some("content"), _) => !recorded,
            (of, _) => of == Some("pending"),
        };
        let path = root.join(&file);
        if !is_unsynced || path.is_dir() {
            continue;
        }
        match how {
            Damage::Gone => fs::remove_file(path).expect("removed"),
            Damage::Empty => fs::write(path, "").expect("emptied"),
        }
    }
}

/// Nothing is synced before the answer, so all of an image may be lost, but never a part of it.
#[tokio::test]
async fn a_power_failure_loses_an_image_at_most() {
    let registry = Registry::start().await;
    let content = noise(1, 300_000);
    let built = with_file(&content);
    let name = registry.push("a", "1", &built);
    for step in Failpoint::ALL.iter().copied() {
        for how in [Damage::Gone, Damage::Empty] {
            let dir = StoreDir::new();
            assert!(die(dir.path(), &name, step).await, "{step:?}");
            let root = dir.path().join("store");
            damage(&root, how);
            let mut config = config(dir.path());
            config.boot = Some(NEXT.to_owned());
            let images = image_store::open(&config).await;
            let mut problems = images.problems().iter();
            // A layer that was lost is told, since pods of the node may miss it.
            assert!(
                problems.all(|it| it.what.starts_with("layers/")),
                "{step:?} {how:?}: {:?}",
                images.problems()
            );
            let listed = images.list(None).expect("list");
            let is_safe = matches!(step, Failpoint::RecordMoved | Failpoint::TagsMoved);
            let may_be = is_safe || matches!(step, Failpoint::GarbageNamed);
            assert!(!is_safe || listed.len() == 1, "{step:?} {how:?}");
            assert!(may_be || listed.is_empty(), "{step:?} {how:?}");
            for _ in 0..2 {
                let id = images.pull(&name, None, None).await.expect("pull");
                let layers = images.layers(id.as_str()).expect("layers");
                let file = fs::read(layers.paths()[0].join("f")).expect("read");
                assert!(file == content, "{step:?} {how:?}");
            }
            images.settled().await.expect("on disk");
            assert!(images.remove(&name).await.expect("remove"));
            images.collect().await.expect("collect");
            assert_eq!(files(&root), NOTHING, "{step:?} {how:?}");
        }
    }
}

/// A process that ends before the sync leaves it to the next one of this boot.
#[tokio::test]
async fn the_next_process_goes_on_with_the_sync() {
    let registry = Registry::start().await;
    let built = with_file(b"x");
    let name = registry.push("a", "1", &built);
    let dir = StoreDir::new();
    assert!(die(dir.path(), &name, Failpoint::LayersSynced).await);
    let root = dir.path().join("store");
    let records = |of: &str| {
        let all = files(&root).into_iter();
        all.filter(|file| file.starts_with(of)).count()
    };
    assert_eq!((records("pending"), records("images")), (1, 0));
    let mut config = config(dir.path());
    config.boot = Some(FIRST.to_owned());
    let images = image_store::open(&config).await;
    assert!(images.status(&name).expect("status").is_some());
    images.settled().await.expect("on disk");
    assert_eq!((records("pending"), records("images")), (0, 1));
}

/// On the disk both have the tag for a moment; the later one has it.
#[tokio::test]
async fn a_tag_that_moves_is_never_lost() {
    let registry = Registry::start().await;
    let [old, new] = [b"old", b"new"].map(|text| with_file(text));
    let store = Store::new().await;
    let name = registry.push("a", "1", &old);
    store.pull(&name).await;
    store.images.settled().await.expect("on disk");
    assert_eq!(registry.push("a", "1", &new), name);
    let id = store.pull(&name).await;
    assert_eq!(id, new.id());
    let tagged = |images: &ImageStore| {
        let all = images.list(None).expect("list");
        let mut owners = all.iter().filter(|image| !image.tags.is_empty());
        let owner = owners.next().expect("one").id.clone();
        assert!(owners.next().is_none());
        owner
    };
    assert_eq!(tagged(&store.images), new.id());
    store.images.settled().await.expect("on disk");
    let Store { images, dir } = store;
    drop(images);
    let again = image_store::open(&config(dir.path())).await;
    assert_eq!(tagged(&again), new.id());
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
    let (a, b) = (with_file(b"a"), with_file(b"b"));
    let (first, second) = (registry.push("a", "1", &a), registry.push("b", "1", &b));
    for name in [&first, &second] {
        store.pull(name).await;
    }
    store.images.settled().await.expect("on disk");
    let Store { images, dir } = store;
    drop(images);
    let record = dir.path().join(format!(
        "store/images/{}.json",
        a.id().as_str().replace(':', "-")
    ));
    fs::write(&record, "{").expect("write");
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

//! Attacks by images and registries.

use tokio::task::JoinSet;

use super::stage::Stage;
use crate::prelude::*;
use crate::runtime::image::make::{Layer, digest, gzipped, layer, noise, with_file};
use crate::runtime::image::registry::{Registry, stall};

async fn pull(kubelet: &Kubelet, name: &str) -> Result<String, Status> {
    let request = requests::pull(name);
    let pulled = kubelet.images.clone().pull_image(request).await?;
    Ok(pulled.into_inner().image_ref)
}

/// A layer of directories with 4,000-byte paths, which compresses to almost nothing.
fn directories(count: usize) -> Layer {
    let folder = [&"d".repeat(249)[..]; 16].join("/");
    let mut tar = layer();
    for number in 0..count {
        let path = format!("{folder}/{number}");
        tar = tar
            .pax(&[("path", path.as_bytes())])
            .dir("shortened", 0o755);
    }
    tar
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_directories_alone() {
    let stage = Stage::new().await;
    let registry = Registry::start().await;
    let image = gzipped(&[directories(25_000).end()]);
    let name = registry.push("directories", "1", &image);
    // 100 MB of paths, if they were retained.
    let pulled = stage.withstands(pull(&stage.kubelet, &name)).await;
    pulled.expect("the layer is within its limits");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_that_never_finish_beside_one_that_does() {
    const HOSTILE: u32 = 16;
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    let slow = Registry::start().await;
    let well = Registry::start().await;
    // Different layers, because identical ones would share a download.
    let layer_of = |seed: u32| with_file(&noise(seed, 200_000));
    let images: Vec<_> = (1..=HOSTILE).map(layer_of).collect();
    let blobs = images.iter().map(|image| &image.layers[0]);
    let blobs: HashMap<_, _> = blobs
        .map(|blob| (digest(blob).to_string(), blob.clone()))
        .collect();
    let hanging = Arc::new(AtomicUsize::new(0));
    let hangs = Arc::clone(&hanging);
    slow.hook(move |asked| {
        let (_, digest) = asked.path.rsplit_once('/')?;
        let blob = blobs.get(digest)?;
        hangs.fetch_add(1, Ordering::Relaxed);
        Some(stall(blob, 1))
    });
    let mut hostile = JoinSet::new();
    for (number, image) in images.iter().enumerate() {
        let name = slow.push("slow", &number.to_string(), image);
        let kubelet = kubelet.clone();
        hostile.spawn(async move { pull(&kubelet, &name).await.map(|_| ()) });
    }
    let image = layer_of(0);
    let name = well.push("well", "1", &image);
    stage
        .withstands(async {
            // As many as regular download slots.
            until_true("downloads to hang", async || {
                hanging.load(Ordering::Relaxed) >= 3
            })
            .await;
            let pulled = soon("the healthy pull", pull(kubelet, &name)).await;
            pulled.expect("the healthy pull");
            stage.round().await;
            assert!(
                hostile.try_join_next().is_none(),
                "a hostile pull has ended"
            );
            hostile.shutdown().await;
        })
        .await;
    drop(slow);
    stage.end().await;
}

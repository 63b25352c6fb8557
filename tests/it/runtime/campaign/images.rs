//! What an image and a registry can do.

use axum::response::Response;
use criscope::cri::v1;
use tokio::task::JoinSet;

use super::stage::Stage;
use crate::harness::kubelet::Kubelet;
use crate::runtime::image::make::{Layer, gzipped, layer};
use crate::runtime::image::registry::{Registry, stall};

async fn pull(kubelet: &Kubelet, name: &str) -> Result<String, tonic::Status> {
    let request = v1::PullImageRequest {
        image: Some(v1::ImageSpec {
            image: name.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let pulled = kubelet.images.clone().pull_image(request).await?;
    Ok(pulled.into_inner().image_ref)
}

/// A layer of directories whose paths have 4,000 bytes each, which compresses to almost nothing.
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
    // 100 MB of paths, if they were kept.
    let pulled = stage.withstands(pull(&stage.kubelet, &name)).await;
    pulled.expect("it is within the bounds of a layer");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_that_never_finish_beside_one_that_does() {
    const HOSTILE: usize = 16;
    let stage = Stage::new().await;
    let kubelet = &stage.kubelet;
    let slow = Registry::start().await;
    let well = Registry::start().await;
    let layers = [layer().file("f", &[7; 100_000]).end()];
    let image = gzipped(&layers);
    let first = image.layers[0].clone();
    slow.hook(move |asked| {
        let is_blob = asked.path.contains("/blobs/");
        is_blob.then(|| -> Response { stall(&first, 1) })
    });
    let mut hostile = JoinSet::new();
    for number in 0..HOSTILE {
        // Each a layer of its own, or they would be one download.
        let image = gzipped(&[layer().file(&format!("f{number}"), &[1; 1000]).end()]);
        let name = slow.push("slow", &number.to_string(), &image);
        let kubelet = kubelet.clone();
        hostile.spawn(async move { pull(&kubelet, &name).await.map(|_| ()) });
    }
    let name = well.push("well", "1", &image);
    stage
        .withstands(async {
            crate::harness::until("all of them to hang", || async {
                (slow.asked("/blobs/").len() >= 3).then_some(())
            })
            .await;
            pull(kubelet, &name).await.expect("the healthy pull");
            assert!(!hostile.is_empty());
            hostile.shutdown().await;
        })
        .await;
    drop(slow);
    stage.end().await;
}

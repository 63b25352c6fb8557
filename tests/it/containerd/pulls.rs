//! Progress of image pulls of a real containerd, from its content service.

use criscope::lifecycle::view::{ImagePullList, PullProgressView};
use futures_util::future::join_all;

use super::Node;
use super::explained::pull;
use crate::harness::image as make;
use crate::harness::registry::trickle;
use crate::prelude::*;

/// Two layers; the second is sent in this many pieces, one per 100 ms. containerd reports progress per MiB written.
fn image(pieces: usize) -> (make::Image, Vec<u8>, usize) {
    let layer = |name: &str, seed| make::layer().file(name, &make::noise(seed, 4 << 20)).end();
    let image = make::gzipped(&[layer("a", 1), layer("b", 2)]);
    let slow = image.layers[1].clone();
    let piece = slow.len() / pieces;
    (image, slow, piece)
}

async fn progress(proxy: &Proxy) -> Vec<PullProgressView> {
    let pulls = proxy.json("/debug/images/pulls").await;
    let pulls: ImagePullList = serde_json::from_value(pulls).expect("pulls");
    pulls
        .in_flight
        .into_iter()
        .filter_map(|it| it.progress)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layers_of_a_pull_are_shown() {
    let node = Node::new().await;
    let (proxy, kubelet) = (&node.proxy, &node.kubelet);
    let registry = Registry::start().await;
    let (image, slow, piece) = image(60);
    let total: usize = image.layers.iter().map(Vec::len).sum();
    let name = registry.push("tools", "1", &image);
    let digest = make::digest(&slow).to_string();
    let path = digest.clone();
    registry.hook(move |asked| {
        let is_slow = asked.path.contains(&path);
        is_slow.then(|| trickle(&slow, piece, piece))
    });
    let config = node.shop_pod("puller");
    let pulling = pull(kubelet, &config, &name);
    let looking = async {
        let seen = until("the progress", || async {
            let all = progress(proxy).await;
            let known = all.into_iter().find(|it| it.of_bytes > 0 && it.bytes > 0);
            known.filter(|it| it.layers.iter().any(|layer| layer.phase == "done"))
        });
        let seen = seen.await;
        assert_eq!(seen.of_bytes, total as u64, "{seen:?}");
        let layer = &seen.layers[1];
        assert_eq!((&*layer.digest, &*layer.phase), (&*digest, "fetching"));
        let (_, page) = proxy.get("/debug/images/pulls").await;
        assert!(page.contains("fetching: "), "{page}");
        until_true("the fetch in the story", async || {
            let story = proxy.json("/debug/pods/shop/puller").await;
            story.to_string().contains(": fetching 2 layers, ")
        })
        .await;
    };
    let (pulled, ()) = tokio::join!(pulling, looking);
    pulled.expect("pulled");
    until_true("the fetch in the story of the pull", async || {
        let story = proxy.json("/debug/pods/shop/puller").await;
        story
            .to_string()
            .contains("of it the fetch of its layers (")
    })
    .await;
    assert_eq!(progress(proxy).await, []);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pulls_are_told_apart_or_shown_as_shared() {
    let node = Node::new().await;
    let (proxy, kubelet) = (&node.proxy, &node.kubelet);
    let registry = Registry::start().await;
    let layer = |seed| make::layer().file("a", &make::noise(seed, 4 << 20)).end();
    let images: Vec<_> = (1..=3).map(|seed| make::gzipped(&[layer(seed)])).collect();
    let names = [
        registry.push("one", "1", &images[0]),
        registry.push("two", "1", &images[1]),
        registry.push("two", "2", &images[2]),
    ];
    let layers: Vec<_> = images.iter().map(|it| it.layers[0].clone()).collect();
    registry.hook(move |asked| {
        let layer = layers
            .iter()
            .find(|layer| asked.path.contains(make::digest(layer).as_str()))?;
        Some(trickle(layer, layer.len() / 60, layer.len() / 60))
    });
    let pods = ["one", "two", "three"].map(|pod| node.shop_pod(pod));
    let pulls = pods.iter().zip(&names);
    let pulls = join_all(pulls.map(|(config, name)| pull(kubelet, config, name)));
    let looking = async {
        let seen = until("the progress", || async {
            let all = progress(proxy).await;
            let known = all
                .iter()
                .find(|it| it.image == names[0] && it.of_bytes > 0)
                .cloned()?;
            let shared = all
                .iter()
                .find(|it| it.image == names[1] && it.shared_by > 0)
                .cloned()?;
            Some((known, shared))
        });
        let (known, shared) = seen.await;
        assert_eq!(
            known.of_bytes,
            images[0].layers[0].len() as u64,
            "{known:?}"
        );
        assert_eq!((shared.shared_by, shared.of_bytes), (2, 0), "{shared:?}");
    };
    let (pulls, ()) = tokio::join!(pulls, looking);
    for pulled in pulls {
        pulled.expect("pulled");
    }
    node.end().await;
}

/// If disabled, the content service is not queried, and pulls succeed.
#[tokio::test(flavor = "multi_thread")]
async fn progress_can_be_disabled() {
    let containerd = Containerd::new().await;
    let start = Start::new(crate::CRISCOPE).upstream(&containerd.socket());
    let start = start.config("[containerd]\npull_progress = false\n");
    let node = Node::behind(start.ready().await, containerd).await;
    let (proxy, kubelet) = (&node.proxy, &node.kubelet);
    let registry = Registry::start().await;
    let (image, slow, piece) = image(25);
    let name = registry.push("tools", "1", &image);
    let path = make::digest(&slow).to_string();
    registry.hook(move |asked| {
        let is_slow = asked.path.contains(&path);
        is_slow.then(|| trickle(&slow, piece, piece))
    });
    let config = node.shop_pod("puller");
    let mut pulling = Box::pin(pull(kubelet, &config, &name));
    let pulled = loop {
        tokio::select! {
            pulled = &mut pulling => break pulled,
            all = progress(proxy) => assert_eq!(all, []),
        }
    };
    pulled.expect("pulled");
    drop(pulling);
    node.end().await;
}

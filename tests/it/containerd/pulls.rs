//! Progress of image pulls of a real containerd, from its content service.

use criscope::lifecycle::view::{ImagePullList, PullProgressView};

use super::explained::Kubelet;
use super::{before, end};
use crate::harness::containerd::Containerd;
use crate::harness::image as make;
use crate::harness::proxy::{Proxy, Start};
use crate::harness::registry::{Registry, trickle};
use crate::harness::until;

/// Two layers; the second is sent in this many pieces, one per 100 ms. containerd reports progress per MiB written.
fn image(pieces: usize) -> (make::Image, Vec<u8>, usize) {
    let layer = |name: &str, seed| make::layer().file(name, &make::noise(seed, 4 << 20)).end();
    let image = make::gzipped(&[layer("a", 1), layer("b", 2)]);
    let slow = image.layers[1].clone();
    let piece = slow.len() / pieces;
    (image, slow, piece)
}

async fn progress(proxy: &Proxy) -> Vec<PullProgressView> {
    let (_, text) = proxy.get("/debug/images/pulls?format=json").await;
    let pulls: ImagePullList = serde_json::from_str(&text).expect("json");
    pulls
        .in_flight
        .into_iter()
        .filter_map(|it| it.progress)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layers_of_a_pull_are_shown() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
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
    let mut kubelet = Kubelet::on(&proxy, &containerd, "puller").await;
    let pulling = kubelet.pull(&name);
    let looking = async {
        let seen = until("the progress", || async {
            let all = progress(&proxy).await;
            let known = all.into_iter().find(|it| it.of_bytes > 0 && it.bytes > 0);
            known.filter(|it| it.layers.iter().any(|layer| layer.phase == "done"))
        });
        let seen = seen.await;
        assert_eq!(seen.of_bytes, total as u64, "{seen:?}");
        let layer = &seen.layers[1];
        assert_eq!((&*layer.digest, &*layer.phase), (&*digest, "fetching"));
        let (_, page) = proxy.get("/debug/images/pulls").await;
        assert!(page.contains("fetching: "), "{page}");
        until("the fetch in the story", || async {
            let (_, story) = proxy.get("/debug/pods/shop/puller?format=json").await;
            story
                .contains("now in the fetch of its layers (")
                .then_some(())
        })
        .await;
    };
    let (pulled, ()) = tokio::join!(pulling, looking);
    pulled.expect("pulled");
    until("the fetch in the story of the pull", || async {
        let (_, story) = proxy.get("/debug/pods/shop/puller?format=json").await;
        story
            .contains("of it the fetch of its layers (")
            .then_some(())
    })
    .await;
    assert_eq!(progress(&proxy).await, []);
    proxy.stop().await;
    end(containerd);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pulls_are_told_apart_or_shown_as_shared() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
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
    let mut kubelets = Vec::new();
    for pod in ["one", "two", "three"] {
        kubelets.push(Kubelet::on(&proxy, &containerd, pod).await);
    }
    let mut pulls = kubelets
        .iter_mut()
        .zip(&names)
        .map(|(it, name)| it.pull(name));
    let [a, b, c] = [pulls.next(), pulls.next(), pulls.next()].map(|it| it.expect("three"));
    let looking = async {
        let seen = until("the progress", || async {
            let all = progress(&proxy).await;
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
    let (a, b, c, ()) = tokio::join!(a, b, c, looking);
    for pulled in [a, b, c] {
        pulled.expect("pulled");
    }
    proxy.stop().await;
    end(containerd);
}

/// If disabled, the content service is not queried, and pulls succeed.
#[tokio::test(flavor = "multi_thread")]
async fn progress_can_be_disabled() {
    let containerd = Containerd::new().await;
    let proxy = Start::new(crate::CRISCOPE)
        .upstream(&containerd.socket())
        .config("[containerd]\npull_progress = false\n")
        .ready()
        .await;
    let registry = Registry::start().await;
    let (image, slow, piece) = image(25);
    let name = registry.push("tools", "1", &image);
    let path = make::digest(&slow).to_string();
    registry.hook(move |asked| {
        let is_slow = asked.path.contains(&path);
        is_slow.then(|| trickle(&slow, piece, piece))
    });
    let mut kubelet = Kubelet::on(&proxy, &containerd, "puller").await;
    let pulling = kubelet.pull(&name);
    tokio::pin!(pulling);
    let pulled = loop {
        tokio::select! {
            pulled = &mut pulling => break pulled,
            all = progress(&proxy) => assert_eq!(all, []),
        }
    };
    pulled.expect("pulled");
    proxy.stop().await;
    end(containerd);
}

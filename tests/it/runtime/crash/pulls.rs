//! The daemon is killed at every step of pulling and removing an image.

use criscope_image::Failpoint;

use super::node::{Node, Witness};
use crate::prelude::*;
use crate::runtime::image::make::{gzipped, layer, noise};
use crate::runtime::image::registry::Registry;

#[derive(Clone, Copy, Debug)]
enum Verb {
    Pull,
    Remove,
}

async fn ask(node: &Node, verb: Verb, name: &str) -> Result<(), Status> {
    let image = Some(requests::image_spec(name));
    let mut images = node.images();
    match verb {
        Verb::Pull => {
            let request = v1::PullImageRequest {
                image: image.clone(),
                ..Default::default()
            };
            images.pull_image(request).await?;
            let request = v1::ImageStatusRequest {
                image,
                verbose: false,
            };
            // A background thread syncs the image. A removal before that would skip its steps on a slow disk.
            let settled = || async {
                let status = match node.images().image_status(request.clone()).await {
                    Ok(status) => status.into_inner(),
                    Err(status) => return Some(Err(status)),
                };
                assert!(status.image.is_some(), "the pulled image is listed");
                is_settled(node).then_some(Ok(()))
            };
            until("an image on the disk, or the end of the daemon", settled).await?;
        }
        Verb::Remove => {
            images
                .remove_image(v1::RemoveImageRequest { image })
                .await?;
        }
    }
    Ok(())
}

/// Whether no image waits for the background sync.
fn is_settled(node: &Node) -> bool {
    let boots = fs::read_dir(node.path("root/images/pending")).expect("the store");
    boots.flatten().all(|boot| {
        let mut records = fs::read_dir(boot.path()).expect("the records of a boot");
        records.next().is_none()
    })
}

/// Everything in the image store.
fn stored(node: &Node) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for dir in ["images", "content", "layers", "partial", "tmp"] {
        let entries = fs::read_dir(node.path("root/images").join(dir));
        for entry in entries.expect("the store").flatten() {
            all.insert(format!("{dir}/{}", entry.file_name().to_string_lossy()));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn while_an_image_is_pulled_and_removed() {
    let mut node = Node::new().await;
    let registry = Registry::on(node.listen().await);
    let built = gzipped(&[
        layer().file("f", &noise(1, 300_000)).end(),
        layer().file("g", b"x").end(),
    ]);
    let name = registry.push("a", "1", &built);
    node.start(None).await;
    let witness = Witness::new(&mut node).await;
    let before = stored(&node);
    // The last step is also reached when a starting daemon collects garbage, so it would never start.
    for step in Failpoint::ALL
        .iter()
        .filter(|step| **step != Failpoint::GarbageNamed)
    {
        node.restart(Some(&format!("image.{step:?}"))).await;
        let mut crashed = false;
        for verb in [Verb::Pull, Verb::Remove] {
            let Err(status) = ask(&node, verb, &name).await else {
                continue;
            };
            assert!(!crashed, "{step:?}: {verb:?} twice: {status:?}");
            node.died(&format!("{step:?}: {verb:?}: {status:?}")).await;
            crashed = true;
            node.start(None).await;
            witness.is_well(&mut node, &format!("{step:?}")).await;
            let again = ask(&node, verb, &name).await;
            again.unwrap_or_else(|status| panic!("{step:?}: {verb:?} again: {status:?}"));
        }
        assert!(crashed, "{step:?} was never reached");
        until_true(&format!("{step:?}: a store as it was before"), async || {
            stored(&node) == before
        })
        .await;
    }
    witness.end(&node).await;
}

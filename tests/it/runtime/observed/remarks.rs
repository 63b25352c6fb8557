//! Warnings of the runtime in the story of a pod.

use super::super::image::registry::Registry;
use super::SECRET;
use super::node::{Node, image};
use crate::harness::image::architecture;
use crate::prelude::*;

/// The network of the only pod.
const RESULT: &str = "echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.1.2.3/24\"}]}'";

/// An image for another platform is pulled, and the story of the pull says so. The platform is what the image says: a text that
/// quotes the credentials of the pull is redacted.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_for_another_platform_is_in_the_story_of_its_pull() {
    let collector = Collector::new(Manner::Takes).await;
    let node = Node::start(&collector, RESULT).await;
    let registry = Registry::start().await;
    let client = node.client().await;
    let sandbox = node.run(&client).await;
    let ours = format!("linux/{}", architecture());
    for (number, (os, declared, shown)) in [
        ("linux", "s390x", Some("linux/s390x")),
        ("windows", architecture(), Some("windows/")),
        ("linux", SECRET, Some("linux/<redacted>")),
        ("linux", "", None),
        ("linux", architecture(), None),
    ]
    .into_iter()
    .enumerate()
    {
        let built = image().with_config(|config| {
            config["architecture"] = declared.into();
            config["os"] = os.into();
        });
        let name = registry.push("labelled", &number.to_string(), &built);
        let request = v1::PullImageRequest {
            image: Some(requests::image_spec(&name)),
            auth: Some(v1::AuthConfig {
                username: "reader".to_owned(),
                password: SECRET.to_owned(),
                ..Default::default()
            }),
            sandbox_config: Some(node.pod()),
        };
        let got = client
            .call(Call::image("PullImage", encode(&request)))
            .await;
        assert_eq!(got.code(), 0, "{name}: {}", got.text());
        let story = node.story("the pull", |story| {
            let calls = &story.episodes[0].calls;
            let mut ended = calls.iter().filter(|call| call.outcome == "ok");
            ended.any(|call| call.image.as_deref() == Some(&name))
        });
        let story = story.await;
        let mut calls = story.episodes[0].calls.iter();
        let pull = calls.find(|call| call.image.as_deref() == Some(&name));
        let remarks = &pull.expect("just seen").remarks;
        match shown {
            None => assert_eq!(remarks, &[""; 0], "{name}"),
            Some(shown) => {
                assert_eq!(remarks.len(), 1, "{remarks:?}");
                let (remark, start) = (&remarks[0], "the image says that it is for ");
                assert!(remark.starts_with(&format!("{start}{shown}")), "{remark}");
                assert!(
                    remark.contains(&format!("and this node is {ours}")),
                    "{remark}"
                );
            }
        }
    }
    let (_, page) = node.proxy.get("/debug/pods/ns/web").await;
    assert!(page.contains("the image says that it is for linux/s390x"));
    assert!(!page.contains(SECRET));
    node.remove(&client, &sandbox).await;
    let log = node.proxy.stop().await.join("\n");
    let line = log.lines().find(|line| line.contains("image.remark"));
    assert!(line.is_some_and(|line| line.contains("s390x")), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

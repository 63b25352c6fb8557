//! Why a pod was slow or did not start: a test kubelet, a real containerd, and the first line of `criscope explain`.

use tonic::Request;

use super::Node;
use crate::commands::printed;
use crate::prelude::*;

/// A container of this image that runs a script.
fn app(image: &str, attempt: u32, script: &str) -> v1::ContainerConfig {
    let mut config = shell("app", script);
    config.metadata.get_or_insert_default().attempt = attempt;
    config.image = Some(requests::image_spec(image));
    config
}

/// A container that runs until it is stopped.
fn sleeps(image: &str) -> v1::ContainerConfig {
    app(image, 0, "exec sleep 1000")
}

impl Node {
    /// A node with the pod `shop/web`.
    async fn with_web(containerd: Containerd) -> (Self, Pod) {
        let node = Self::with(containerd).await;
        let pod = node.kubelet.run(node.shop_pod("web")).await;
        (node, pod)
    }

    async fn explain(&self) -> String {
        printed(&self.proxy, &["explain", "shop/web"]).await
    }

    async fn end_with(self, pod: &Pod) {
        self.kubelet.end(pod).await;
        self.end().await;
    }
}

/// Pulls an image for a pod.
pub(super) async fn pull(
    kubelet: &Kubelet,
    config: &v1::PodSandboxConfig,
    image: &str,
) -> Result<(), Status> {
    let request = requests::pull_for(image, config.clone());
    kubelet.images.clone().pull_image(request).await.map(drop)
}

/// Asserts that the first line of an explanation contains all of these words.
fn assert_first(said: &str, words: &[&str]) {
    let first = said.lines().next().unwrap_or_default();
    for word in words {
        assert!(
            first.contains(word),
            "{word:?} is not in the first line of\n{said}"
        );
    }
}

/// Delays the CNI plugin or the OCI runtime of this containerd by this number of seconds from now on.
fn delay(containerd: &Containerd, part: &str, seconds: u32) {
    let file = containerd.root().join(format!("{part}.delay"));
    fs::write(file, seconds.to_string()).expect("delay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_cni_plugin_is_named() {
    let containerd = Containerd::with_slow_parts().await;
    delay(&containerd, "slow-bridge", 3);
    let (node, pod) = Node::with_web(containerd).await;
    node.kubelet.launch(&pod, sleeps(IMAGE)).await;
    let said = node.explain().await;
    assert_first(&said, &["slow-bridge", "CNI plugin"]);
    assert!(said.contains("RunPodSandbox"), "{said}");
    node.end_with(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_oci_runtime_is_named() {
    let containerd = Containerd::with_slow_parts().await;
    let (node, pod) = Node::with_web(containerd).await;
    delay(&node.containerd, "runc", 2);
    node.kubelet.launch(&pod, sleeps(IMAGE)).await;
    let said = node.explain().await;
    assert_first(&said, &["runc", "StartContainer"]);
    node.end_with(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_registry_is_named() {
    let containerd = Containerd::new().await;
    let registry = DockerRegistry::start(&containerd.root()).await;
    registry.push("shop/app:1");
    let slow = registry.slowly(Duration::from_millis(1500));
    let image = slow.image("shop/app:1");
    let (node, pod) = Node::with_web(containerd).await;
    pull(&node.kubelet, &pod.config, &image)
        .await
        .expect("pull");
    node.kubelet.launch(&pod, sleeps(&image)).await;
    let said = node.explain().await;
    assert_first(&said, &["pull", &image]);
    node.end_with(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_named() {
    let containerd = Containerd::new().await;
    let registry = DockerRegistry::start(&containerd.root()).await;
    let near = registry.slowly(Duration::ZERO);
    let image = near.image("shop/app:2");
    let (node, pod) = Node::with_web(containerd).await;
    for _ in 0..3 {
        let pulled = pull(&node.kubelet, &pod.config, &image).await;
        let status = pulled.expect_err("no such image");
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    let said = node.explain().await;
    assert_first(&said, &["cannot pull", &image, "no such image", "3 tries"]);
    node.end_with(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_keeps_ending_is_named() {
    let (node, pod) = Node::with_web(Containerd::new().await).await;
    for attempt in 0..4 {
        let container = node.kubelet.launch(&pod, app(IMAGE, attempt, "exit 3"));
        assert_eq!(node.kubelet.ended(&container.await).await.exit_code, 3);
    }
    let said = node.explain().await;
    assert_first(&said, &["app", "keeps crashing", "exit code 3", "4 starts"]);
    // The list says the same.
    let table = printed(&node.proxy, &["pods"]).await;
    let row = table.lines().nth(1).unwrap_or_default();
    let sentence = said.lines().next().unwrap_or_default();
    assert!(
        row.starts_with("shop/web  crash loop") && row.contains(sentence),
        "{table}"
    );
    let story = printed(&node.proxy, &["pods", "--json"]).await;
    assert_eq!(story.matches("\"crash_loop\"").count(), 4, "{story}");
    node.end_with(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeatedly_stopped_container_is_not_reported_as_crashing() {
    let (node, pod) = Node::with_web(Containerd::new().await).await;
    for attempt in 0..3 {
        let config = app(IMAGE, attempt, "exec sleep 1000");
        let container = node.kubelet.launch(&pod, config).await;
        node.kubelet.stop(&container, 0).await;
        assert_eq!(node.kubelet.ended(&container).await.exit_code, 137);
    }
    let said = node.explain().await;
    assert!(!said.contains("keeps crashing"), "{said}");
    let story = printed(&node.proxy, &["explain", "shop/web", "--json"]).await;
    assert_eq!(story.matches("\"exits\"").count(), 3, "{story}");
    // The loop is reported as one of repeated kills instead.
    assert!(!story.contains("keeps crashing"), "{story}");
    assert!(story.contains("app is killed by"), "{story}");
    node.end_with(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_kubelet_are_one_story() {
    let containerd = Containerd::with_slow_parts().await;
    // Twice the deadline, long enough for the plugin to be observed.
    delay(&containerd, "slow-bridge", 10);
    let node = Node::with(containerd).await;
    let config = node.shop_pod("web");
    let mut request = Request::new(requests::run_pod(config.clone(), ""));
    request.set_timeout(Duration::from_secs(5));
    let late = node.kubelet.runtime.clone().run_pod_sandbox(request).await;
    let code = late.err().expect("too late").code();
    assert!(
        [Code::Cancelled, Code::DeadlineExceeded].contains(&code),
        "{code}"
    );
    // The plugin is called a few more times, also for cleanup.
    delay(&node.containerd, "slow-bridge", 2);
    let pod = until("a sandbox", || async {
        let made = node.kubelet.try_run(config.clone(), "").await.ok();
        if made.is_none() {
            // containerd rejects a retry until it has cleaned up the first attempt, which no event tells.
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        made
    })
    .await;
    node.kubelet.launch(&pod, sleeps(IMAGE)).await;
    let said = node.explain().await;
    assert_first(&said, &["deadline of 5", "slow-bridge"]);
    node.end_with(&pod).await;
}

//! A kubelet that gives up while a CNI plugin is slow, and tries again.

use super::end;
use crate::commands::printed;
use crate::prelude::*;

/// How long the CNI plugin takes, and how long the kubelet waits for it.
const NETWORK_SECONDS: &str = "8";
const DEADLINE: Duration = Duration::from_secs(3);

async fn proxy(containerd: &Containerd, joins: bool) -> Proxy {
    let config = format!(
        "[backends.main]\nkind = \"upstream\"\nendpoint = \"unix://{}\"\njoin_retries = {joins}\n",
        containerd.socket().display()
    );
    Start::new(crate::CRISCOPE).config(&config).ready().await
}

/// Makes the sandbox: its id, or the error.
async fn run(
    kubelet: &Kubelet,
    config: &v1::PodSandboxConfig,
    deadline: Duration,
) -> Result<String, String> {
    let mut request = tonic::Request::new(v1::RunPodSandboxRequest {
        config: Some(config.clone()),
        runtime_handler: String::new(),
    });
    request.set_timeout(deadline);
    let answer = kubelet.runtime.clone().run_pod_sandbox(request).await;
    let answer = answer.map_err(|status| status.to_string())?;
    Ok(answer.into_inner().pod_sandbox_id)
}

async fn remove(kubelet: &Kubelet, sandbox: &str) {
    kubelet.stop_pod(sandbox).await;
    kubelet.remove_pod(sandbox).await;
}

fn delay(containerd: &Containerd, seconds: &str) {
    fs::write(containerd.root().join("slow-bridge.delay"), seconds).expect("delay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_joins_the_call_that_the_kubelet_gave_up() {
    let containerd = Containerd::with_slow_parts().await;
    let joining = proxy(&containerd, true).await;
    let kubelet = Kubelet::before(&joining.socket(), &containerd).await;
    kubelet.imported().await;
    delay(&containerd, NETWORK_SECONDS);

    let config = kubelet.pod_config("joined");
    let late = run(&kubelet, &config, DEADLINE).await;
    assert!(late.is_err(), "{late:?}");
    let status = printed(&joining, &["status"]).await;
    let words = "1 call that waits for its retry is in progress";
    assert!(status.contains(words), "{status}");
    let sandbox = run(&kubelet, &config, Duration::from_secs(120)).await;
    let sandbox = sandbox.expect("the sandbox of the first call");
    let listed = kubelet.pods().await;
    let ids: Vec<_> = listed.iter().map(|pod| pod.id.as_str()).collect();
    assert_eq!(ids, [sandbox.as_str()], "one sandbox");
    let joined = |scrape: &Scrape| {
        let ended = scrape.metric("criscope_kept_calls_ended_total");
        ended.with("end", "joined").sum() == 1.0
    };
    joining.wait_scrape("the joined call", joined).await;
    let words = "the kubelet's deadline of 3 s passed, and its retry joined the same call";
    until_true("the story says so", async || {
        let story = joining.json("/debug/pods/test/joined").await;
        story.to_string().contains(words)
    })
    .await;
    delay(&containerd, "0");
    remove(&kubelet, &sandbox).await;
    drop(joining);

    // Without the setting containerd refuses the retry, since it still undoes the first call.
    let plain = proxy(&containerd, false).await;
    let kubelet = Kubelet::before(&plain.socket(), &containerd).await;
    delay(&containerd, NETWORK_SECONDS);
    let config = kubelet.pod_config("refused");
    assert!(run(&kubelet, &config, DEADLINE).await.is_err());
    let refused = run(&kubelet, &config, Duration::from_secs(120)).await;
    let refused = refused.expect_err("the name is reserved");
    assert!(refused.contains("reserved"), "{refused}");
    delay(&containerd, "0");
    let undone = until("the first call is undone", || async {
        run(&kubelet, &config, Duration::from_secs(120)).await.ok()
    });
    remove(&kubelet, &undone.await).await;
    drop(plain);
    end(containerd);
}

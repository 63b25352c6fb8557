//! What cAdvisor asks of a real containerd, so that `runtime::verbs::cadvisor` asks the same of criscope.

use super::end;
use super::pod::{make, sandbox_config, unmake};
use crate::harness::cadvisor::Cadvisor;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn containerd_tells_cadvisor_of_containers_and_pods() {
    let containerd = Containerd::new().await;
    let kubelet = Kubelet::of_containerd(&containerd).await;
    let mut config = sandbox_config(&containerd);
    config.labels = [("io.kubernetes.pod.name".to_owned(), "web".to_owned())].into();
    let (pod, container) = make(&kubelet, &config).await;
    let cadvisor = Cadvisor::of(&containerd.socket()).await;
    let label = ("io.kubernetes.pod.name", "web");
    cadvisor.assert_usual(&pod.id, &container, label).await;
    unmake(&kubelet, &pod, &container).await;
    end(containerd);
}

//! The active pods of the kubelet, from its pod resources API, which is on by default since 1.28
//! (`pkg/kubelet/apis/podresources/server_v1.go`). It names pods that no call of the CRI has named: those that wait for a volume, for example.

use std::path::Path;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::Request;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::client;
use crate::lifecycle::ActivePods;

/// The socket, in the kubelet's directory.
const SOCKET: &str = "pod-resources/kubelet.sock";

/// The method of `v1.PodResourcesLister`.
const LIST: &str = "/v1.PodResourcesLister/List";

/// A page is not held up for longer by a kubelet that does not answer. On a busy node an answer takes more than half a second.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, PartialEq, prost::Message)]
struct ListPodResourcesRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pod_resources: Vec<PodResources>,
}

/// A pod, without its containers and devices.
#[derive(Clone, PartialEq, prost::Message)]
struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

/// The active pods of the kubelet with this directory; `None` if it does not answer.
pub(super) async fn active(kubelet_dir: Option<&Path>) -> Option<ActivePods> {
    let socket = kubelet_dir?.join(SOCKET);
    timeout(DEADLINE, list(&socket)).await.ok()?
}

async fn list(socket: &Path) -> Option<ActivePods> {
    let channel = client::connect(socket, DEADLINE).await.ok()?;
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.ok()?;
    let codec = ProstCodec::<_, ListPodResourcesResponse>::default();
    let request = Request::new(ListPodResourcesRequest {});
    let answer = grpc.unary(request, PathAndQuery::from_static(LIST), codec);
    let pods = answer.await.ok()?.into_inner().pod_resources.into_iter();
    Some(pods.map(|pod| (pod.namespace, pod.name)).collect())
}

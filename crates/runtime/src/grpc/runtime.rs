//! The runtime service.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::broadcast::error::RecvError;
use tonic::{Request, Response, Status, async_trait};

use super::{Answer, Ready, Service, answer, asked_by, in_chunks, open};
use crate::Error;
use criscope_cri::v1::runtime_service_server::RuntimeService;
use criscope_cri::v1::*;

type Watch = Pin<Box<dyn Stream<Item = Result<ContainerEventResponse, Status>> + Send>>;

#[async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        answer(Ok(self.runtime.version()))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let (request, call) = open(request);
        let made = self.runtime.run_pod_sandbox(request, &call).await;
        answer(made.map(|pod_sandbox_id| RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let (request, _) = open(request);
        let stopped = self.runtime.stop_pod_sandbox(&request.pod_sandbox_id).await;
        answer(stopped.map(|()| StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let (request, _) = open(request);
        let removed = self
            .runtime
            .remove_pod_sandbox(&request.pod_sandbox_id)
            .await;
        answer(removed.map(|()| RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let (request, _) = open(request);
        answer(self.runtime.pod_sandbox_status(&request).await)
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let (request, _) = open(request);
        let items = self.runtime.list_pod_sandbox(request.filter.as_ref());
        answer(Ok(ListPodSandboxResponse { items }))
    }

    type StreamPodSandboxesStream = Ready<StreamPodSandboxesResponse>;

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let (request, _) = open(request);
        let items = self.runtime.list_pod_sandbox(request.filter.as_ref());
        Ok(in_chunks(items, |pod_sandboxes| {
            StreamPodSandboxesResponse { pod_sandboxes }
        }))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let (request, call) = open(request);
        let made = self.runtime.create_container(request, &call).await;
        answer(made.map(|container_id| CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let (request, _) = open(request);
        let started = self.runtime.start_container(&request.container_id).await;
        answer(started.map(|()| StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let (request, _) = open(request);
        let grace = Duration::from_secs(request.timeout.try_into().unwrap_or(0));
        let stopped = self.runtime.stop_container(&request.container_id, grace);
        answer(stopped.await.map(|()| StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let (request, _) = open(request);
        let removed = self.runtime.remove_container(&request.container_id).await;
        answer(removed.map(|()| RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let (request, _) = open(request);
        let containers = self.runtime.list_containers(request.filter.as_ref());
        answer(Ok(ListContainersResponse { containers }))
    }

    type StreamContainersStream = Ready<StreamContainersResponse>;

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let (request, _) = open(request);
        let items = self.runtime.list_containers(request.filter.as_ref());
        Ok(in_chunks(items, |containers| StreamContainersResponse {
            containers,
        }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let (request, _) = open(request);
        answer(self.runtime.container_status(&request).await)
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let (request, _) = open(request);
        let updated = self.runtime.update_container_resources(request).await;
        answer(updated.map(|()| UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let (request, _) = open(request);
        let reopened = self.runtime.reopen_container_log(&request.container_id);
        answer(reopened.await.map(|()| ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let (request, call) = open(request);
        answer(self.runtime.exec_sync(request, &call).await)
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let call = asked_by(&request);
        let url = self.runtime.exec(request.into_inner(), call);
        answer(url.map(|url| ExecResponse { url }))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        let call = asked_by(&request);
        let url = self.runtime.attach(&request.into_inner(), call);
        answer(url.map(|url| AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        let call = asked_by(&request);
        let url = self.runtime.port_forward(&request.into_inner(), call);
        answer(url.map(|url| PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let (request, _) = open(request);
        let stats = self.runtime.container_stats(&request.container_id).await;
        answer(stats.map(|stats| ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let (request, _) = open(request);
        let stats = self.runtime.list_container_stats(request.filter.as_ref());
        answer(
            stats
                .await
                .map(|stats| ListContainerStatsResponse { stats }),
        )
    }

    type StreamContainerStatsStream = Ready<StreamContainerStatsResponse>;

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let (request, _) = open(request);
        let stats = self.runtime.list_container_stats(request.filter.as_ref());
        Ok(in_chunks(stats.await?, |container_stats| {
            StreamContainerStatsResponse { container_stats }
        }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        let (request, _) = open(request);
        let stats = self.runtime.pod_sandbox_stats(&request.pod_sandbox_id);
        answer(
            stats
                .await
                .map(|stats| PodSandboxStatsResponse { stats: Some(stats) }),
        )
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let (request, _) = open(request);
        let stats = self.runtime.list_pod_sandbox_stats(request.filter.as_ref());
        answer(
            stats
                .await
                .map(|stats| ListPodSandboxStatsResponse { stats }),
        )
    }

    type StreamPodSandboxStatsStream = Ready<StreamPodSandboxStatsResponse>;

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let (request, _) = open(request);
        let stats = self.runtime.list_pod_sandbox_stats(request.filter.as_ref());
        Ok(in_chunks(stats.await?, |pod_sandbox_stats| {
            StreamPodSandboxStatsResponse { pod_sandbox_stats }
        }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        let (request, _) = open(request);
        let updated = self.runtime.update_runtime_config(&request);
        answer(updated.await.map(|()| UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let (request, _) = open(request);
        answer(Ok(self.runtime.status(request.verbose).await))
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        let (request, _) = open(request);
        let made = self.runtime.checkpoint_container(request).await;
        answer(made.map(|()| CheckpointContainerResponse {}))
    }

    async fn checkpoint_pod(
        &self,
        request: Request<CheckpointPodRequest>,
    ) -> Answer<CheckpointPodResponse> {
        let (request, call) = open(request);
        let made = self.runtime.checkpoint_pod(request, &call).await;
        answer(made.map(|()| CheckpointPodResponse {}))
    }

    async fn restore_pod(&self, _: Request<RestorePodRequest>) -> Answer<RestorePodResponse> {
        answer(Err(Error::Unsupported(
            "pods are not restored from checkpoints: the images of CRIU, not the request, say with which user, capabilities and seccomp filter the processes run".to_owned(),
        )))
    }

    type GetContainerEventsStream = Watch;

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let events = self.runtime.events().listen();
        let watch = self.runtime.steps().clone();
        let stream = unfold(Some((events, watch)), |events| async {
            let (mut events, watch) = events?;
            match events.recv().await {
                Ok(event) => Some((Ok(Arc::unwrap_or_clone(event)), Some((events, watch)))),
                // The listener lists everything and subscribes again.
                Err(RecvError::Lagged(lost)) => {
                    if let Some(metrics) = watch.metrics() {
                        metrics.events_dropped.inc_by((), lost);
                    }
                    let text = format!("{lost} events were lost: the listener was too slow");
                    Some((Err(Status::data_loss(text)), None))
                }
                Err(RecvError::Closed) => None,
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        let descriptors = self.runtime.metric_descriptors();
        answer(Ok(ListMetricDescriptorsResponse { descriptors }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        let metrics = self.runtime.pod_sandbox_metrics().await;
        answer(metrics.map(|pod_metrics| ListPodSandboxMetricsResponse { pod_metrics }))
    }

    type StreamPodSandboxMetricsStream = Ready<StreamPodSandboxMetricsResponse>;

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        let metrics = self.runtime.pod_sandbox_metrics().await?;
        Ok(in_chunks(metrics, |pod_sandbox_metrics| {
            StreamPodSandboxMetricsResponse {
                pod_sandbox_metrics,
            }
        }))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        answer(Ok(self.runtime.runtime_config()))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        let (request, _) = open(request);
        let updated = self.runtime.update_pod_sandbox_resources(request).await;
        answer(updated.map(|()| UpdatePodSandboxResourcesResponse {}))
    }
}

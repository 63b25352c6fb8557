//! The calls that a kubelet repeats.

use criscope::cri::v1;

use super::{Cri, failed};
use crate::error::Result;

/// A call without a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    ListPodSandbox,
    ListContainers,
    ListPodSandboxStats,
    ListContainerStats,
    Status,
    ListImages,
    ImageFsInfo,
}

impl Poll {
    /// Those whose answers grow with the pods.
    pub(crate) const LISTS: [Self; 4] = [
        Self::ListPodSandbox,
        Self::ListContainers,
        Self::ListPodSandboxStats,
        Self::ListContainerStats,
    ];

    /// Whether the answer is read from cgroups.
    pub(crate) fn reads_cgroups(self) -> bool {
        matches!(self, Self::ListPodSandboxStats | Self::ListContainerStats)
    }

    /// The call of the CRI.
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }
}

impl Cri {
    /// Makes the call. Returns the number of items in the answer.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) async fn poll(&mut self, poll: Poll) -> Result<usize> {
        macro_rules! answer {
            ($client:ident.$method:ident($request:ident), $name:literal) => {
                self.$client
                    .$method(v1::$request::default())
                    .await
                    .map_err(failed($name))?
                    .into_inner()
            };
        }
        Ok(match poll {
            Poll::ListPodSandbox => answer!(
                client.list_pod_sandbox(ListPodSandboxRequest),
                "ListPodSandbox"
            )
            .items
            .len(),
            Poll::ListContainers => answer!(
                client.list_containers(ListContainersRequest),
                "ListContainers"
            )
            .containers
            .len(),
            Poll::ListPodSandboxStats => answer!(
                client.list_pod_sandbox_stats(ListPodSandboxStatsRequest),
                "ListPodSandboxStats"
            )
            .stats
            .len(),
            Poll::ListContainerStats => answer!(
                client.list_container_stats(ListContainerStatsRequest),
                "ListContainerStats"
            )
            .stats
            .len(),
            Poll::Status => {
                let status = answer!(client.status(StatusRequest), "Status").status;
                status.map_or(0, |status| status.conditions.len())
            }
            Poll::ListImages => answer!(images.list_images(ListImagesRequest), "ListImages")
                .images
                .len(),
            Poll::ImageFsInfo => answer!(images.image_fs_info(ImageFsInfoRequest), "ImageFsInfo")
                .image_filesystems
                .len(),
        })
    }
}

//! The image service.

use tonic::{Request, async_trait};

use super::{Answer, Ready, Service, answer, in_chunks, open};
use criscope_cri::v1::image_service_server::ImageService;
use criscope_cri::v1::{
    ImageFsInfoRequest, ImageFsInfoResponse, ImageStatusRequest, ImageStatusResponse,
    ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest,
    RemoveImageResponse, StreamImagesRequest, StreamImagesResponse,
};

#[async_trait]
impl ImageService for Service {
    async fn list_images(&self, request: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        let (request, _) = open(request);
        let images = self.runtime.list_images(request.filter.as_ref());
        answer(images.map(|images| ListImagesResponse { images }))
    }

    type StreamImagesStream = Ready<StreamImagesResponse>;

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> Answer<Self::StreamImagesStream> {
        let (request, _) = open(request);
        let images = self.runtime.list_images(request.filter.as_ref())?;
        Ok(in_chunks(images, |images| StreamImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Answer<ImageStatusResponse> {
        let (request, _) = open(request);
        answer(self.runtime.image_status(&request).await)
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        let (request, call) = open(request);
        let pulled = self.runtime.pull_image(request, &call).await;
        answer(pulled.map(|image_ref| PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Answer<RemoveImageResponse> {
        let (request, _) = open(request);
        let removed = self.runtime.remove_image(request.image.as_ref()).await;
        answer(removed.map(|()| RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _request: Request<ImageFsInfoRequest>,
    ) -> Answer<ImageFsInfoResponse> {
        answer(self.runtime.image_fs_info().await)
    }
}

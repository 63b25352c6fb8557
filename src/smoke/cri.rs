//! The runtime's clients with one deadline for all calls, sent with every call (`grpc-timeout`).

use std::time::{Duration, Instant};

use tonic::Request;
use tonic::transport::Channel;

use crate::client;
use crate::cri::v1::image_service_client::ImageServiceClient;
use crate::cri::v1::runtime_service_client::RuntimeServiceClient;

/// CRI clients with one deadline for all calls. Cheap to make: the channel is shared.
#[derive(Clone, Debug)]
pub(super) struct CanaryClient {
    channel: Channel,
    deadline: Instant,
}

impl CanaryClient {
    pub(super) fn new(channel: Channel, deadline: Instant) -> Self {
        Self { channel, deadline }
    }

    pub(super) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        client::runtime(self.channel.clone())
    }

    pub(super) fn images(&self) -> ImageServiceClient<Channel> {
        client::images(self.channel.clone())
    }

    /// A request with the remaining time as its timeout.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let left = self.deadline.saturating_duration_since(Instant::now());
        // Servers interpret zero as an expired or as no deadline.
        request.set_timeout(left.max(Duration::from_millis(1)));
        request
    }
}

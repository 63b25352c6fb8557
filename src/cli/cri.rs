//! CRI calls of commands. They need the socket of a runtime only, not the kubelet.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Builder;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::CommandFailure;
use crate::client::{self, ClientError};
use crate::cri::status::code_name;
use crate::cri::v1;

/// How long the socket may take to accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The socket of a command.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CriSocketArgs {
    /// The CRI socket of criscope or of any runtime
    #[arg(
        long,
        short = 'r',
        value_name = "URI",
        env = "CONTAINER_RUNTIME_ENDPOINT",
        visible_alias = "runtime-endpoint",
        default_value = "unix:///run/criscope/criscope.sock",
        value_parser = socket
    )]
    endpoint: PathBuf,
    /// Time for each call (500ms, 60s, 2m)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::pages::commands::duration)]
    timeout: Duration,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    client::socket_path(text).map_err(|error| error.to_string())
}

/// Why a command could not use the socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ClientError),
    /// The runtime answered with an error, or not in time.
    #[error("{call}: {code}: {message}", code = code_name(.status.code()), message = .status.message())]
    Call {
        /// The method.
        call: &'static str,
        /// The runtime's status.
        status: Status,
    },
}

impl Error {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Connect(error) => error.hint(),
            Self::Call { status, .. } => match status.code() {
                Code::Unimplemented => Some("the runtime does not serve version v1 of the CRI"),
                Code::Cancelled | Code::DeadlineExceeded => {
                    Some("--timeout is the time for each call")
                }
                _ => None,
            },
        }
    }

    /// Returns whether the object no longer exists.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Call { status, .. } if status.code() == Code::NotFound)
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct CriConnection {
    channel: Channel,
    timeout: Duration,
}

impl CriConnection {
    /// Runs `work` with a connection to the socket.
    pub(super) fn run(
        args: &CriSocketArgs,
        work: impl AsyncFnOnce(&Self) -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            let connected = client::connect(&args.endpoint, CONNECT_TIMEOUT).await;
            let cri = Self {
                channel: connected.map_err(Error::from)?,
                timeout: args.timeout,
            };
            work(&cri).await
        });
        // A thread may still wait for input from a terminal.
        runtime.shutdown_background();
        done
    }

    /// The time for each call.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// All images.
    pub(super) async fn images(&self) -> Result<Vec<v1::Image>, Error> {
        let mut client = client::images(self.channel.clone());
        let request = self.request(v1::ListImagesRequest { filter: None });
        let answer = client.list_images(request).await;
        Ok(answer.map_err(failed("ListImages"))?.into_inner().images)
    }

    /// The runtime's own information about an image; empty if the image is gone.
    pub(super) async fn image_info(&self, id: &str) -> Result<HashMap<String, String>, Error> {
        let mut client = client::images(self.channel.clone());
        let image = v1::ImageSpec {
            image: id.to_owned(),
            ..v1::ImageSpec::default()
        };
        let request = self.request(v1::ImageStatusRequest {
            image: Some(image),
            verbose: true,
        });
        let answer = client.image_status(request).await;
        Ok(answer.map_err(failed("ImageStatus"))?.into_inner().info)
    }

    /// The file systems of images and writable layers.
    pub(super) async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error> {
        let mut client = client::images(self.channel.clone());
        let request = self.request(v1::ImageFsInfoRequest {});
        let answer = client.image_fs_info(request).await;
        Ok(answer.map_err(failed("ImageFsInfo"))?.into_inner())
    }

    /// The usage of all containers.
    pub(super) async fn container_stats(&self) -> Result<Vec<v1::ContainerStats>, Error> {
        let mut client = client::runtime(self.channel.clone());
        let request = self.request(v1::ListContainerStatsRequest { filter: None });
        let answer = client.list_container_stats(request).await;
        let answer = answer.map_err(failed("ListContainerStats"))?;
        Ok(answer.into_inner().stats)
    }

    /// Removes an image with all its names.
    pub(super) async fn remove_image(&self, id: &str) -> Result<(), Error> {
        let mut client = client::images(self.channel.clone());
        let image = v1::ImageSpec {
            image: id.to_owned(),
            ..v1::ImageSpec::default()
        };
        let request = self.request(v1::RemoveImageRequest { image: Some(image) });
        client
            .remove_image(request)
            .await
            .map_err(failed("RemoveImage"))?;
        Ok(())
    }

    /// All containers, stopped ones too.
    pub(super) async fn containers(&self) -> Result<Vec<v1::Container>, Error> {
        let mut client = client::runtime(self.channel.clone());
        let request = self.request(v1::ListContainersRequest { filter: None });
        let answer = client.list_containers(request).await;
        let answer = answer.map_err(failed("ListContainers"))?;
        Ok(answer.into_inner().containers)
    }

    /// All pod sandboxes, stopped ones too.
    pub(super) async fn sandboxes(&self) -> Result<Vec<v1::PodSandbox>, Error> {
        let mut client = client::runtime(self.channel.clone());
        let request = self.request(v1::ListPodSandboxRequest { filter: None });
        let answer = client.list_pod_sandbox(request).await;
        Ok(answer.map_err(failed("ListPodSandbox"))?.into_inner().items)
    }

    /// Asks for a session of a command; returns its URL.
    pub(super) async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        let mut client = client::runtime(self.channel.clone());
        let answer = client.exec(self.request(request)).await;
        Ok(answer.map_err(failed("Exec"))?.into_inner().url)
    }

    /// Runs a command that the runtime kills after the time for a call.
    pub(super) async fn exec_sync(
        &self,
        container: &str,
        command: &[String],
    ) -> Result<v1::ExecSyncResponse, Error> {
        let mut client = client::runtime(self.channel.clone());
        let seconds = self.timeout.as_secs_f64().ceil() as i64;
        let mut request = tonic::Request::new(v1::ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: command.to_vec(),
            timeout: seconds.max(1),
        });
        // The runtime is the first to give up: its error says what happened to the command.
        request.set_timeout(self.timeout + CONNECT_TIMEOUT);
        let answer = client.exec_sync(request).await;
        Ok(answer.map_err(failed("ExecSync"))?.into_inner())
    }

    /// The images that a container has mounted (KEP-4639); none if it is gone.
    pub(super) async fn mounted_images(&self, container: &str) -> Result<Vec<String>, Error> {
        let mut client = client::runtime(self.channel.clone());
        let request = self.request(v1::ContainerStatusRequest {
            container_id: container.to_owned(),
            verbose: false,
        });
        let answer = client.container_status(request).await;
        let status = match answer.map_err(failed("ContainerStatus")) {
            Ok(answer) => answer.into_inner().status.unwrap_or_default(),
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let images = status.mounts.into_iter().filter_map(|mount| mount.image);
        Ok(images.map(|image| image.image).collect())
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.timeout);
        request
    }
}

fn failed(call: &'static str) -> impl FnOnce(Status) -> Error {
    move |status| Error::Call { call, status }
}

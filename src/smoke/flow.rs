//! The sequence of the run's steps.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::cgroup::ParentCgroups;
use super::cri::CanaryClient;
use super::hint::StepContext;
use super::image::{self, SMOKE_REPOSITORY};
use super::registry::CanaryRegistry;
use super::timeline::{StepError, StepFailed, StepTimeline};
use super::{CONNECT_TIMEOUT, RuntimeInfo, STOP_GRACE, SmokeOptions, busybox, pod, steps};
use crate::client;
use crate::cri::v1::{
    CreateContainerRequest, ImageSpec, PodSandboxConfig, PullImageRequest, RemoveContainerRequest,
    RemoveImageRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StopContainerRequest, StopPodSandboxRequest,
};
use crate::units;

/// The objects of a run that are not removed yet. It outlives an aborted run, so that the rest can be removed.
#[derive(Debug, Default)]
pub(super) struct CreatedObjects {
    pub(super) channel: Option<Channel>,
    pub(super) runtime: Option<RuntimeInfo>,
    pub(super) log_dir: Option<PathBuf>,
    /// Created by the runtime with the sandbox.
    pub(super) cgroup: ParentCgroups,
    pub(super) registry: Option<CanaryRegistry>,
    /// The image of our own registry, from the request of its pull on.
    pub(super) own_image: Option<String>,
    /// PullImage was not answered by the runtime, so the image may still appear.
    pub(super) image_may_come: AtomicBool,
    /// Set before RunPodSandbox: a sandbox may exist although its id is unknown.
    pub(super) sandbox_asked: bool,
    /// True if RunPodSandbox may still make a sandbox after its caller stopped waiting.
    pub(super) sandbox_may_come: AtomicBool,
    pub(super) sandbox: Option<String>,
    pub(super) container: Option<String>,
}

impl CreatedObjects {
    fn around(&self) -> StepContext<'_> {
        let registry = self.registry.as_ref();
        StepContext {
            registry: registry.map(|registry| (registry.address(), registry.requests())),
            sandbox_made: self.sandbox.is_some(),
        }
    }
}

/// Runs all steps; stops at the first failure.
pub(super) async fn run(
    options: &SmokeOptions,
    deadline: Instant,
    made: &mut CreatedObjects,
    timeline: &mut StepTimeline<'_>,
) -> Result<(), StepFailed> {
    let cri = connect(options, deadline, made, timeline).await?;
    let around = StepContext::default();
    let runtime = timeline
        .step("Version", &around, steps::version(&cri))
        .await?;
    made.runtime = Some(runtime);
    let host_network = options.host_network;
    let status = steps::status(&cri, host_network);
    timeline.step("Status", &around, status).await?;
    let parent = steps::cgroup_parent(&cri, options);
    let (parent, systemd) = timeline.step("RuntimeConfig", &around, parent).await?;
    made.cgroup = ParentCgroups::before(&parent, systemd);

    let (logs, reference) = timeline
        .step("prepare", &around, prepare(options, made))
        .await?;
    let config = pod::sandbox(options, &logs, &parent);
    let image = image(&cri, &reference, &config, made, timeline).await?;
    start(&cri, options, &config, (&image, &reference), made, timeline).await?;
    if options.command.is_none() {
        check(&cri, options, &logs, made, timeline).await?;
    }
    timeline.before_removal().await;
    if options.keep {
        return Ok(());
    }
    stop(&cri, made, timeline).await
}

async fn connect(
    options: &SmokeOptions,
    deadline: Instant,
    made: &mut CreatedObjects,
    timeline: &mut StepTimeline<'_>,
) -> Result<CanaryClient, StepFailed> {
    let connecting = async {
        match client::connect(&options.socket, CONNECT_TIMEOUT).await {
            Ok(channel) => Ok((channel, options.socket.display().to_string())),
            Err(error) => Err(match error.hint() {
                Some(hint) => StepError::hinted(error.to_string(), hint),
                None => StepError::check(error.to_string()),
            }),
        }
    };
    let channel = timeline
        .step("connect", &StepContext::default(), connecting)
        .await?;
    made.channel = Some(channel.clone());
    Ok(CanaryClient::new(channel, deadline))
}

/// Prepares the log directory and, unless an image is given, our own image and the registry that serves it.
async fn prepare(
    options: &SmokeOptions,
    made: &mut CreatedObjects,
) -> Result<((PathBuf, String), String), StepError> {
    let logs = options
        .log_dir
        .join(format!("{}-{}", pod::POD_NAME, options.run));
    make_log_dir(&logs)?;
    made.log_dir = Some(logs.clone());
    if let Some(reference) = &options.image {
        return Ok(((logs, reference.clone()), format!("image {reference}")));
    }

    let path = options.busybox.clone();
    let run = options.run.clone();
    let assembling = tokio::task::spawn_blocking(move || {
        let busybox = busybox::find(path.as_deref()).map_err(|error| {
            StepError::hinted(
                error.to_string(),
                "install a static one (Debian, Ubuntu: apt install busybox-static), or give its path with --busybox, or use --image",
            )
        })?;
        let images =
            image::assemble(&busybox, &run).map_err(|error| StepError::check(error.to_string()))?;
        Ok::<_, StepError>((busybox, images))
    });
    let (busybox, images) = assembling
        .await
        .map_err(|error| StepError::check(format!("assembling the image: {error}")))??;
    let listen = options.registry_listen;
    let registry = CanaryRegistry::serve(listen, &images, options.registry_delay)
        .await
        .map_err(|error| {
            StepError::hinted(
                format!("cannot serve the image at {listen}: {error}"),
                "choose another address with --registry-listen",
            )
        })?;
    let reference = registry.reference(SMOKE_REPOSITORY);
    let size = units::bytes(busybox.bytes.len() as u64);
    let word = format!("{reference} from {} ({size})", busybox.path.display());
    made.registry = Some(registry);
    Ok(((logs, reference), word))
}

/// Creates the pod's log directory, accessible to its owner only, and the container's below it, as the kubelet would.
fn make_log_dir(logs: &Path) -> Result<(), StepError> {
    let inner = logs.join(pod::CONTAINER_LOG);
    let inner = inner.parent().unwrap_or(logs);
    for directory in [logs, inner] {
        // Not recursive: a directory that exists already is not ours.
        DirBuilder::new()
            .mode(0o700)
            .create(directory)
            .map_err(|error| {
                StepError::hinted(
                    format!(
                        "cannot create the log directory {}: {error}",
                        directory.display()
                    ),
                    "choose its parent with --log-dir",
                )
            })?;
    }
    Ok(())
}

/// Pulls the image unless it exists, and returns the reference for CreateContainer.
async fn image(
    cri: &CanaryClient,
    reference: &str,
    config: &PodSandboxConfig,
    made: &mut CreatedObjects,
    timeline: &mut StepTimeline<'_>,
) -> Result<String, StepFailed> {
    if made.registry.is_some() {
        made.own_image = Some(reference.to_owned());
    } else {
        let status = steps::image_status(cri, reference);
        let present = timeline.step("ImageStatus", &made.around(), status).await?;
        if let Some(id) = present {
            return Ok(id);
        }
    }
    let pull = async {
        let request = cri.request(PullImageRequest {
            image: Some(spec(reference)),
            auth: None,
            sandbox_config: Some(config.clone()),
        });
        let call = async { cri.images().pull_image(request).await };
        let image = watched(&made.image_may_come, call).await?.image_ref;
        Ok((image.clone(), image))
    };
    timeline.step("PullImage", &made.around(), pull).await
}

async fn start(
    cri: &CanaryClient,
    options: &SmokeOptions,
    config: &PodSandboxConfig,
    (image, reference): (&str, &str),
    made: &mut CreatedObjects,
    timeline: &mut StepTimeline<'_>,
) -> Result<(), StepFailed> {
    made.sandbox_asked = true;
    let run = async {
        let request = cri.request(RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: options.handler.clone().unwrap_or_default(),
        });
        let call = async { cri.runtime().run_pod_sandbox(request).await };
        let id = watched(&made.sandbox_may_come, call).await?.pod_sandbox_id;
        Ok((id.clone(), id))
    };
    let sandbox = timeline.step("RunPodSandbox", &made.around(), run).await?;
    made.sandbox = Some(sandbox.clone());

    let create = async {
        let request = cri.request(CreateContainerRequest {
            pod_sandbox_id: sandbox,
            config: Some(pod::container(options, image, reference)),
            sandbox_config: Some(config.clone()),
        });
        let id = cri
            .runtime()
            .create_container(request)
            .await?
            .into_inner()
            .container_id;
        Ok((id.clone(), id))
    };
    let container = timeline
        .step("CreateContainer", &made.around(), create)
        .await?;
    made.container = Some(container.clone());

    let start = async {
        let request = cri.request(StartContainerRequest {
            container_id: container,
        });
        cri.runtime().start_container(request).await?;
        Ok(())
    };
    timeline.call("StartContainer", &made.around(), start).await
}

/// Makes a call, and keeps `may_come` true as long as the runtime has not answered it: while it runs, when it is dropped,
/// and after a timeout on our side.
async fn watched<T>(
    may_come: &AtomicBool,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    may_come.store(true, Ordering::Relaxed);
    let answer = call.await;
    let unanswered = answer.as_ref().is_err_and(|status| {
        matches!(
            status.code(),
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable
        )
    });
    may_come.store(unanswered, Ordering::Relaxed);
    answer.map(Response::into_inner)
}

async fn check(
    cri: &CanaryClient,
    options: &SmokeOptions,
    logs: &Path,
    made: &CreatedObjects,
    timeline: &mut StepTimeline<'_>,
) -> Result<(), StepFailed> {
    let around = made.around();
    let container = made.container.as_deref().unwrap_or_default();
    let sandbox = made.sandbox.as_deref().unwrap_or_default();
    let exec = steps::exec(cri, container, &options.run);
    timeline.step("ExecSync", &around, exec).await?;
    let log = steps::read_log(logs, &options.run);
    timeline.step("read log", &around, log).await?;
    let status = steps::container_status(cri, container);
    timeline.step("ContainerStatus", &around, status).await?;
    let status = steps::sandbox_status(cri, sandbox, options.host_network);
    timeline.step("PodSandboxStatus", &around, status).await
}

/// Removes everything, call by call as the kubelet does.
async fn stop(
    cri: &CanaryClient,
    made: &mut CreatedObjects,
    timeline: &mut StepTimeline<'_>,
) -> Result<(), StepFailed> {
    let container = made.container.clone().unwrap_or_default();
    let stop = async {
        let request = cri.request(StopContainerRequest {
            container_id: container.clone(),
            timeout: STOP_GRACE,
        });
        cri.runtime().stop_container(request).await?;
        Ok(())
    };
    timeline.call("StopContainer", &made.around(), stop).await?;
    let remove = async {
        let request = cri.request(RemoveContainerRequest {
            container_id: container.clone(),
        });
        cri.runtime().remove_container(request).await?;
        Ok(())
    };
    timeline
        .call("RemoveContainer", &made.around(), remove)
        .await?;
    made.container = None;

    let sandbox = made.sandbox.clone().unwrap_or_default();
    let stop = stop_sandbox(cri, &sandbox);
    timeline
        .call("StopPodSandbox", &made.around(), stop)
        .await?;
    let remove = remove_sandbox(cri, &sandbox);
    timeline
        .call("RemovePodSandbox", &made.around(), remove)
        .await?;
    made.sandbox = None;
    made.sandbox_asked = false;

    if let Some(reference) = made.own_image.clone() {
        let remove = remove_image(cri, &reference);
        timeline.call("RemoveImage", &made.around(), remove).await?;
        made.own_image = None;
    }
    Ok(())
}

pub(super) async fn stop_sandbox(cri: &CanaryClient, sandbox: &str) -> Result<(), StepError> {
    let request = cri.request(StopPodSandboxRequest {
        pod_sandbox_id: sandbox.to_owned(),
    });
    cri.runtime().stop_pod_sandbox(request).await?;
    Ok(())
}

pub(super) async fn remove_sandbox(cri: &CanaryClient, sandbox: &str) -> Result<(), StepError> {
    let request = cri.request(RemovePodSandboxRequest {
        pod_sandbox_id: sandbox.to_owned(),
    });
    cri.runtime().remove_pod_sandbox(request).await?;
    Ok(())
}

pub(super) async fn remove_image(cri: &CanaryClient, reference: &str) -> Result<(), StepError> {
    let request = cri.request(RemoveImageRequest {
        image: Some(spec(reference)),
    });
    cri.images().remove_image(request).await?;
    Ok(())
}

fn spec(reference: &str) -> ImageSpec {
    ImageSpec {
        image: reference.to_owned(),
        ..Default::default()
    }
}

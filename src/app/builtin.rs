//! Builds the built-in runtime from the configuration.

mod handlers;
mod probe;
mod registry_certificates;
mod reload;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use cri_streaming::SessionObserver;
use tokio::runtime::Builder;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::config::{self, StreamingSettings};
use crate::grpc::CriService;
use crate::lifecycle::view::{LayerProgress, PullProgressView};
use crate::reload::Reconfigure;
use crate::runtime::events::ProcessEvent;
use crate::runtime::node::NodeError;
use crate::runtime::oci::spec::hooks;
use crate::runtime::paths::Paths;
use crate::runtime::sections::ProgramError;
use crate::runtime::streams::Sessions;
use crate::runtime::{self, Runtime, Settings, grpc};
use crate::streaming::StreamingListener;
use crate::telemetry::registry::{Registry, RegistryError};
use crate::tls::{CertificateMetrics, ClientCertificates};
use crate::units::times::UnixMicros;
use criscope_image::{EndedPull, LayerPhase, PullView, UnusableFile};

use super::ServeError;

/// Name of the cgroup of the shims.
const SHIM_CGROUP: &str = "/criscope-shims";

/// The number of worker threads; the work mostly waits for plugins and the OCI runtime.
const WORKER_THREADS: usize = 2;

/// Threads that may wait for disks, mounts and processes at the same time. A disk that hangs takes one for each object on it
/// (`runtime/store/durable.rs`), and the rest needs others; they are started on demand.
const MAX_BLOCKING_THREADS: usize = 4096;
/// How long such a thread waits for more. They wait in turn: with tokio's ten seconds, the periodic work of the daemon, a few tasks in
/// ten seconds, keeps all threads that a pull has started.
const BLOCKING_THREAD_IDLE_TIME: Duration = Duration::from_secs(1);

/// How long shutdown waits for background work.
const SHUTDOWN_WORK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the built-in runtime cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinRuntimeError {
    /// A program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The node cannot run containers as configured.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The runtime itself failed.
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    /// A handler has a setting that needs cgroup v2.
    #[error("runtime.handlers.{0}.cgroup_writable: needs cgroup v2, and this node has v1")]
    CgroupWritable(String),
    /// The path of this program is unknown.
    #[error("cannot find this program's own path: {0}")]
    Own(#[source] std::io::Error),
}

/// The built-in runtime on separate threads: its work can take long and must not delay calls or the side thread.
pub(super) struct BuiltinRuntime {
    threads: tokio::runtime::Runtime,
    runtime: Arc<Runtime>,
    /// The programs of handlers that were missing at the start.
    missing: Vec<ProgramError>,
    service: CriService,
}

impl BuiltinRuntime {
    /// Starts it.
    pub(super) fn start(config: &config::Runtime, limit: usize) -> Result<Self, ServeError> {
        let threads = Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name("runtime")
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_keep_alive(BLOCKING_THREAD_IDLE_TIME)
            .enable_all()
            .build()
            .map_err(ServeError::Start)?;
        let opened = threads
            .block_on(open(config))
            .map_err(ServeError::Builtin)?;
        let (runtime, missing) = opened;
        // After recovery: layers that no container needs may be removed.
        threads.spawn(Arc::clone(&runtime).housekeeping());
        let backend = grpc::Builtin::new(Arc::clone(&runtime), threads.handle().clone(), limit);
        Ok(Self {
            service: CriService::new(backend),
            runtime,
            missing,
            threads,
        })
    }

    /// The backend that serves its calls.
    pub(super) fn service(&self) -> &CriService {
        &self.service
    }

    /// The services of containerd that cAdvisor needs.
    pub(super) fn containerd(&self) -> CriService {
        CriService::new(grpc::Containerd::new(
            Arc::clone(&self.runtime),
            self.threads.handle().clone(),
        ))
    }

    /// Registers its metrics.
    pub(super) fn measure(&self, registry: &Registry) -> Result<(), RegistryError> {
        self.runtime.measure(registry)
    }

    /// Starts the installed NRI plugins and listens for others. After [`Self::measure`], so that all their requests are counted.
    pub(super) fn start_plugins(&self) {
        self.threads.block_on(self.runtime.start_nri());
    }

    /// The image pulls in progress.
    pub(super) fn pulls(&self) -> admin::PullProgressReader {
        let images = self.runtime.images();
        let of_ended = images.clone();
        admin::PullProgressReader::new(move || images.pulls().iter().map(shown).collect())
            .with_ended(move || of_ended.ended_pulls().iter().map(ended).collect())
    }

    /// Takes over the live settings of a configuration.
    pub(super) fn reconfigure(&self) -> Box<Reconfigure> {
        let threads = self.threads.handle().clone();
        reload::reconfigure(threads, Arc::clone(&self.runtime), self.missing.clone())
    }

    /// Returns a function that subscribes to the events of its containers and sandboxes.
    pub(super) fn events(&self) -> impl Fn() -> broadcast::Receiver<ProcessEvent> + use<> {
        let runtime = Arc::clone(&self.runtime);
        move || runtime.events().listen_to_processes()
    }

    /// Measures the certificates that pulls show to registries, until `stop`.
    pub(super) fn watch_registry_certificates(
        &self,
        certificates: &CertificateMetrics,
        stop: CancellationToken,
    ) {
        let clients = Arc::new(ClientCertificates::new("registry"));
        certificates.measure_clients(Arc::clone(&clients));
        let watching = registry_certificates::watch(clients, Arc::clone(&self.runtime));
        self.threads.spawn(stop.run_until_cancelled_owned(watching));
    }

    /// Serves exec, attach and port-forward until `stop`; then until the sessions have ended.
    pub(super) fn stream(
        &self,
        settings: &StreamingSettings,
        observers: Vec<Arc<dyn SessionObserver>>,
        certificates: &CertificateMetrics,
        stop: CancellationToken,
    ) -> Result<JoinHandle<()>, ServeError> {
        let bound = StreamingListener::bind(settings, Sessions::new(&self.runtime), observers);
        let listener = self.threads.block_on(bound)?;
        self.runtime.serve_streams(listener.server().clone());
        if let Some(pair) = listener.certificate() {
            certificates.measure(Arc::clone(pair));
        }
        Ok(self.threads.spawn(listener.serve(stop)))
    }

    /// Shuts it down. Pods keep running; work in progress is completed or undone by the next start.
    pub(super) fn stop(self) {
        // Plugins that take longer lose their connections with this process.
        let telling =
            async { tokio::time::timeout(SHUTDOWN_WORK_TIMEOUT, self.runtime.stop_nri()).await };
        let _told = self.threads.block_on(telling);
        self.runtime.close();
        self.threads.shutdown_timeout(SHUTDOWN_WORK_TIMEOUT);
    }
}

/// Opens it: finds the programs, detects the facts of the node, and recovers the objects of the previous run. Also returns the
/// programs of handlers that are missing.
pub(super) async fn open(
    config: &config::Runtime,
) -> Result<(Arc<Runtime>, Vec<ProgramError>), BuiltinRuntimeError> {
    let search = env::var_os("PATH").unwrap_or_default();
    let own = env::current_exe().map_err(BuiltinRuntimeError::Own)?;
    let shim = config.shim_program(&own, &search)?;
    let found = handlers::find(config, &search).await?;
    found.report_missing();
    report_hooks(config);
    report_images(config);
    let missing = found.missing.clone();
    let settings = Settings {
        paths: Paths::new(&config.root, &config.state),
        shim,
        shim_cgroup: SHIM_CGROUP.into(),
        live: found.into_settings(config),
    };
    Ok((Runtime::open(settings).await?, missing))
}

fn report_hooks(config: &config::Runtime) {
    for (path, error) in hooks::Registry::read(&config.pods.hooks_dir).broken {
        tracing::error!(event = "runtime.hooks", file = %path.display(), error.message = %error, "no container can be created: a file of runtime.hooks_dir cannot be used");
    }
}

/// The files of `[runtime.images]` that cannot be used. Blocks.
pub fn unusable_image_files(config: &config::Runtime) -> Vec<UnusableFile> {
    config.images.store().unusable_files()
}

fn report_images(config: &config::Runtime) {
    for file in unusable_image_files(config) {
        tracing::error!(event = "runtime.images", what = file.affected.words(), error.message = %file.reason, "a file that decides about images cannot be used");
    }
}

/// The end of a pull, and what it fetched.
fn ended(pull: &EndedPull) -> (UnixMicros, PullProgressView) {
    let progress = PullProgressView {
        image: pull.reference.clone(),
        bytes: pull.bytes_fetched,
        of_bytes: pull.bytes_total,
        ..PullProgressView::default()
    };
    (UnixMicros::from(pull.ended), progress)
}

/// A pull as shown on pages.
fn shown(pull: &PullView) -> PullProgressView {
    let layers = pull.layers.iter().map(|layer| LayerProgress {
        digest: layer.layer.to_string(),
        phase: match layer.phase {
            LayerPhase::Waiting => "waiting",
            LayerPhase::Fetching => "fetching",
            LayerPhase::Unpacking => "unpacking",
            LayerPhase::Done => "done",
            LayerPhase::Failed => "failed",
        }
        .to_owned(),
        bytes: layer.bytes_done,
        of_bytes: layer.bytes_total,
        unpacked_bytes: layer.bytes_unpacked,
    });
    PullProgressView {
        image: pull.reference.clone(),
        bytes: pull.bytes_done,
        of_bytes: pull.bytes_total,
        idle_ms: pull.idle.as_secs_f64() * 1e3,
        layers: layers.collect(),
        shared_by: 0,
    }
}

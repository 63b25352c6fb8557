//! The built-in backend: pods and containers over an OCI runtime and CNI plugins, images from registries.
//!
//! ```text
//! grpc        CRI calls in, answers out; the only place that knows gRPC
//!   |
//! sandbox, container, image verbs      one file per verb; each an `impl Runtime`
//!   |
//! store       what there is: records on disk, objects in memory
//!   |
//! image  oci  shim_client  node  stats     the parts, which know nothing of each other's insides
//! ```
//!
//! What holds for every verb: it is done by a task that outlives its caller; what fails is undone; what could not be undone
//! stays visible until somebody removes it; and after a crash at any of the points in [`failpoint`] a restart finds everything
//! that ran, and takes away what nobody needs.

pub mod call_context;
pub mod code;
mod container;
mod dial;
mod error;
pub mod events;
pub mod failpoint;
#[cfg(any(test, fuzzing))]
mod fuzz;
pub mod grpc;
pub mod handler;
mod housekeeping;
pub mod id;
mod image_service;
pub mod load;
pub(crate) mod metrics;
mod network_config;
pub mod node;
pub mod oci;
pub mod paths;
mod recover;
mod sandbox;
pub mod sections;
mod selinux;
mod settings;
pub mod shim_client;
pub mod singleflight;
pub mod stats;
mod status;
pub mod steps;
pub mod store;
pub mod streams;
mod usage;
mod validate;

use std::sync::Arc;

use criscope_cni::Observer;
use criscope_linux::cgroup::Hierarchies;
use criscope_linux::namespace::Pins;

pub use self::error::{Error, Result, What};
use self::events::Events;
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
use self::handler::Handlers;
pub use self::recover::Problem;
use self::recover::Problems;
pub use self::settings::{HandlerSettings, Settings};
use self::singleflight::Singleflight;
use self::stats::{DiskUsage, Rates};
use self::steps::StepRecorder;
use self::store::Store;
use criscope_image::ImageStore;

/// The runtime: all that its verbs need.
#[derive(Debug)]
pub struct Runtime {
    settings: Settings,
    handlers: Handlers,
    images: ImageStore,
    pins: Pins,
    store: Store,
    singleflight: Singleflight,
    events: Events,
    steps: StepRecorder,
    boot: String,
    hierarchies: Option<Hierarchies>,
    rates: Rates,
    disks: DiskUsage,
    streaming: streams::Slot,
    problems: Problems,
    labels: Option<selinux::Labels>,
    _bound: store::identity::Bound,
}

impl Runtime {
    /// Opens the runtime: its directories, its images, and what is left of the last run. What of that could not be taken up
    /// is in [`Self::problems`].
    ///
    /// # Errors
    /// [`Error::Refused`] if root and state do not belong together, are used by another process, or have records of a later
    /// version; a directory cannot be made or read.
    pub async fn open(settings: Settings) -> Result<Arc<Self>> {
        let paths = &settings.paths;
        // Before anything is touched.
        let bound = store::identity::bind(paths, &settings.images.root)?;
        for dir in [
            paths.copies(),
            paths.sandboxes(),
            paths.containers(),
            paths.pods(),
            paths.namespaces(),
            paths.cni(),
        ] {
            store::disk::make_dir(&dir)?;
        }
        let steps = StepRecorder::default();
        let mut images = settings.images.clone();
        images.failpoint = failpoint::image_failpoints().unwrap_or(images.failpoint);
        images.observer = Arc::new(steps.clone());
        let images = ImageStore::open(images).await?;
        let networks = criscope_cni::Settings {
            observer: Observer::from(steps.clone()),
            ..settings.cni.clone()
        };
        let handlers = Handlers::new(
            &settings.default_handler,
            settings.handlers.clone(),
            networks,
        );
        let runtime = Arc::new(Self {
            handlers,
            images,
            pins: Pins::new(paths.namespaces()).with_helper(&settings.shim),
            store: Store::default(),
            singleflight: Singleflight::default(),
            events: Events::default(),
            disks: DiskUsage::start(settings.stats_period, steps.clone()),
            steps,
            boot: id::boot(),
            // None where containers have no cgroups.
            hierarchies: Hierarchies::detect().ok(),
            rates: Rates::default(),
            streaming: streams::Slot::new(),
            problems: Problems::default(),
            labels: labels(&settings),
            _bound: bound,
            settings,
        });
        runtime.recover().await?;
        Ok(runtime)
    }

    /// Those who want to know what happens.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// What measures its work.
    pub fn steps(&self) -> &StepRecorder {
        &self.steps
    }

    /// Its images.
    pub fn images(&self) -> &ImageStore {
        &self.images
    }
}

/// What labels pods, where SELinux is on and wanted. Without a policy for containers they have none.
fn labels(settings: &Settings) -> Option<selinux::Labels> {
    let node = &settings.node;
    let range = node.policy.selinux_categories;
    let opened = node
        .selinux
        .then(|| selinux::Labels::open("/".as_ref(), range))?;
    opened
        .inspect_err(|error| {
            tracing::warn!(event = "runtime.selinux", error.message = %error, "containers are not labelled: the policy says nothing of them");
        })
        .ok()
}

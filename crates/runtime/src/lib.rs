//! The built-in backend: pods and containers over an OCI runtime and CNI plugins, images from registries.
//!
//! ```text
//! grpc        CRI calls in, answers out; the only place that knows gRPC
//!   |
//! sandbox, container, image verbs      one file per verb; each an `impl Runtime`
//!   |
//! store       the objects: records on disk, copies in memory
//!   |
//! image  oci  shim_client  node  stats     the parts, independent of each other
//! ```
//!
//! Every verb runs in a task that outlives its caller, and is rolled back on failure; objects that cannot be rolled back stay visible
//! until removed. After a crash at any [`failpoint`], a restart recovers everything that was running and removes the rest.

mod call_context;
mod cgroup_migration;
mod checkpoint;
pub mod classes;
pub mod code;
mod command_socket;
mod container;
mod containerd;
mod dial;
mod error;
pub mod events;
pub mod export;
pub mod failpoint;
#[cfg(any(test, fuzzing))]
mod fuzz;
pub mod grpc;
mod handler;
mod housekeeping;
mod id;
mod image_service;
mod live;
pub mod load;
pub mod metrics;
mod network_config;
mod network_gc;
pub mod node;
mod nri;
pub mod oci;
pub mod paths;
mod recover;
mod sandbox;
pub mod sections;
mod selinux;
mod settings;
pub mod shim_client;
mod singleflight;
pub mod stats;
mod status;
mod steps;
mod store;
pub mod streams;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod usage;
mod validate;

use std::sync::Arc;

use arc_swap::ArcSwap;
use criscope_cni::{Cni, Observer};
use criscope_linux::cgroup::Hierarchies;
use criscope_linux::namespace::Pins;

pub use self::error::{Error, Result, What};
use self::events::Events;
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
use self::live::Live;
pub use self::recover::Problem;
use self::recover::Problems;
pub use self::settings::{HandlerFeatures, LiveSettings, Settings, UsableHandler};
use self::singleflight::Singleflight;
use self::stats::{DiskUsage, Rates};
use self::steps::StepRecorder;
use self::store::Store;
use criscope_image::ImageStore;

/// The runtime: the state shared by its verbs.
#[derive(Debug)]
pub struct Runtime {
    settings: Settings,
    live: ArcSwap<Live>,
    /// The networks of handlers without networks of their own.
    networks: Cni,
    pins: Pins,
    store: Store,
    singleflight: Singleflight,
    events: Events,
    steps: StepRecorder,
    boot: String,
    hierarchies: Option<Hierarchies>,
    rates: Rates,
    stats_troubles: usage::Troubles,
    disks: DiskUsage,
    streaming: streams::Slot,
    problems: Problems,
    labels: Option<selinux::Labels>,
    nri: nri::Nri,
    _bound: store::identity::Bound,
}

impl Runtime {
    /// Opens the runtime: its directories and its images, and recovers the objects of the previous run. Those that could not be
    /// recovered are listed in [`Self::problems`].
    ///
    /// # Errors
    /// [`Error::Refused`] if root and state do not belong together, are used by another process, or contain records of a newer
    /// version; an error if a directory cannot be created or read.
    pub async fn open(settings: Settings) -> Result<Arc<Self>> {
        let (paths, config) = (&settings.paths, &settings.live.config);
        // Before anything is changed.
        let bound = store::identity::bind(paths, &config.images.root)?;
        for dir in [
            paths.copies(),
            paths.sandboxes(),
            paths.containers(),
            paths.pods(),
            paths.namespaces(),
            paths.cni(),
        ] {
            store::disk::make_dir(&dir)?;
            store::disk::close_to_others(&dir)?;
        }
        let steps = StepRecorder::default();
        let mut images = config.images.store();
        images.failpoint = failpoint::image_failpoints().unwrap_or(images.failpoint);
        images.observer = Arc::new(steps.clone());
        let images = ImageStore::open(images).await?;
        let networks = Cni::new(criscope_cni::Settings {
            observer: Observer::from(steps.clone()),
            ..config.cni.library()
        });
        let live = Live::open(settings.live.clone(), images, &networks, paths);
        let runtime = Arc::new(Self {
            live: ArcSwap::from_pointee(live),
            networks,
            pins: Pins::new(paths.namespaces()).with_helper(&settings.shim),
            store: Store::default(),
            singleflight: Singleflight::default(),
            events: Events::default(),
            disks: DiskUsage::start(config.stats_collect_period, steps.clone()),
            steps,
            boot: id::boot(),
            // None if containers have no cgroups.
            hierarchies: Hierarchies::detect().ok(),
            rates: Rates::default(),
            stats_troubles: usage::Troubles::default(),
            streaming: streams::Slot::new(),
            problems: Problems::default(),
            labels: labels(&settings),
            nri: nri::Nri::default(),
            _bound: bound,
            settings,
        });
        runtime.recover().await?;
        if runtime.settings.live.config.cni.gc_at_start {
            runtime.collect_attachments().await;
        }
        Ok(runtime)
    }

    /// The event queue, for listeners.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The recorder of the runtime's steps.
    pub fn steps(&self) -> &StepRecorder {
        &self.steps
    }

    /// The image store with the settings in effect.
    pub fn images(&self) -> ImageStore {
        self.live().images.clone()
    }
}

/// The allocator of SELinux labels, if SELinux is enabled. Without a container policy pods have no labels.
fn labels(settings: &Settings) -> Option<selinux::Labels> {
    let node = &settings.live.node;
    let range = node.policy.selinux_category_range;
    let range = range.try_into().unwrap_or(u16::MAX);
    let opened = node
        .selinux
        .then(|| selinux::Labels::open("/".as_ref(), range))?;
    opened
        .inspect_err(|error| {
            tracing::warn!(target: "criscope::runtime", event = "runtime.selinux", error.message = %error, "containers are not labelled: the policy has no labels for them");
        })
        .ok()
}

//! The metrics of the runtime: counters of its steps, and gauges that are read on each scrape.

use std::sync::Arc;

use super::Runtime;
use super::store::{ContainerState, SandboxState};
use crate::telemetry::catalogue;
use crate::telemetry::handles::RuntimeWork;
use crate::telemetry::registry::{Registry, RegistryError};

/// The gauges.
#[derive(Clone, Debug, Default)]
struct Having {
    sandboxes: Vec<SandboxState>,
    containers: Vec<ContainerState>,
    shims: usize,
    images: usize,
    image_bytes: u64,
    problems: usize,
}

impl Runtime {
    /// Registers the metrics of the runtime. They hold only a weak reference to it.
    ///
    /// # Errors
    /// The metrics are registered already.
    pub fn measure(self: &Arc<Self>, registry: &Registry) -> Result<(), RegistryError> {
        self.steps.measure(RuntimeWork::new(registry)?);
        let runtime = Arc::downgrade(self);
        register(registry, move || Some(runtime.upgrade()?.having()))
    }

    fn having(&self) -> Having {
        let sandboxes = self.store.sandboxes.all();
        let containers = self.store.containers.all();
        Having {
            shims: sandboxes.iter().filter(|one| one.shim().is_some()).count(),
            sandboxes: sandboxes.iter().map(|one| one.record().state).collect(),
            containers: containers.iter().map(|one| one.record().state).collect(),
            images: self.images.len(),
            image_bytes: self.images.layer_bytes(),
            problems: self.problems().len(),
        }
    }
}

/// Shows what `read` gives; nothing if it gives nothing.
fn register(
    registry: &Registry,
    read: impl Fn() -> Option<Having> + Clone + Send + Sync + 'static,
) -> Result<(), RegistryError> {
    let one = |metric, value: fn(&Having) -> f64| {
        let read = read.clone();
        registry.computed(metric, move |out| {
            if let Some(having) = read() {
                out.put(&[], value(&having));
            }
        })
    };
    one(&catalogue::RUNTIME_SHIMS, |having| having.shims as f64)?;
    one(&catalogue::RUNTIME_IMAGES, |having| having.images as f64)?;
    one(&catalogue::RUNTIME_IMAGE_BYTES, |having| {
        having.image_bytes as f64
    })?;
    one(&catalogue::RUNTIME_RECOVERY_PROBLEMS, |having| {
        having.problems as f64
    })?;
    let sandboxes = read.clone();
    registry.computed(&catalogue::RUNTIME_SANDBOXES, move |out| {
        let Some(having) = sandboxes() else { return };
        for state in SandboxState::ALL {
            let there = having.sandboxes.iter().filter(|one| **one == state);
            out.put(&[state.name()], there.count() as f64);
        }
    })?;
    registry.computed(&catalogue::RUNTIME_CONTAINERS, move |out| {
        let Some(having) = read() else { return };
        for state in ContainerState::ALL {
            let there = having.containers.iter().filter(|one| **one == state);
            out.put(&[state.label()], there.count() as f64);
        }
    })
}

/// Registers all metrics, each with a series.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    use std::time::Duration;

    use crate::call::steps::{RuntimeStep, StepOutcome};

    let work = RuntimeWork::new(registry).expect("once");
    let took = Duration::from_millis(1);
    for phase in RuntimeStep::ALL {
        for outcome in StepOutcome::ALL {
            work.ended(phase, outcome, took);
            for plugin in catalogue::PLUGINS {
                work.plugin_ended(plugin, phase, outcome, took);
            }
        }
    }
    register(registry, || Some(Having::default())).expect("once");
}

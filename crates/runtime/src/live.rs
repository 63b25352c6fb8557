//! The parts that a reload replaces, as a whole. RunPodSandbox and CreateContainer take settings, handlers and classes once, so that no object
//! mixes two configurations; the store of images is the same one before and after a reload.

use std::sync::Arc;

use criscope_cni::Cni;
use criscope_image::ImageStore;

use super::Runtime;
use super::classes::Classes;
use super::error::{Error, Result};
use super::handler::{FallbackOci, Handlers};
use super::oci::spec::NodeFacts;
use super::paths::Paths;
use super::sandbox::teardown::blocking;
use super::settings::LiveSettings;

/// The settings in effect that a reload changes, and the objects made of them.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) settings: LiveSettings,
    pub(super) handlers: Handlers,
    pub(super) classes: Classes,
    pub(super) images: ImageStore,
}

impl Live {
    /// The live settings at the start. Blocks.
    pub(super) fn open(
        settings: LiveSettings,
        images: ImageStore,
        networks: &Cni,
        paths: &Paths,
    ) -> Self {
        let classes = Classes::open(&settings.config.pods);
        Self::new(settings, classes, images, networks, paths)
    }

    fn new(
        settings: LiveSettings,
        classes: Classes,
        images: ImageStore,
        networks: &Cni,
        paths: &Paths,
    ) -> Self {
        let fallback = FallbackOci {
            paths: paths.clone(),
            driver: settings.node.cgroup_driver,
        };
        let (default, handlers) = (&settings.default_handler, &settings.handlers);
        Self {
            handlers: Handlers::new(default, handlers, networks.clone(), fallback),
            classes,
            images,
            settings,
        }
    }
}

impl Runtime {
    /// The live settings, and the objects made of them; one call takes them once.
    pub(super) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Puts other live settings into effect, for pods, containers and calls that come after it. Pods keep the OCI runtime that they
    /// were created with; those of a handler that is gone can be stopped and removed, as after a restart.
    ///
    /// # Errors
    /// If an AppArmor profile or a file of classes cannot be used: then all stays as it was.
    pub async fn reconfigure(&self, mut settings: LiveSettings) -> Result<()> {
        let before = self.live();
        settings.node = node_after(&before.settings.node, settings.node)?;
        let old = Arc::clone(&before);
        let config = settings.config.clone();
        let work = blocking(move || {
            let after = old.classes.after(&config.pods);
            let classes = after.map_err(|error| Error::Unsupported(error.to_string()))?;
            Ok((classes, old.images.with_settings(config.images.store())))
        });
        let (classes, images) = work.await?;
        let paths = &self.settings.paths;
        let live = Live::new(settings, classes, images, &self.networks, paths);
        let live = Arc::new(live);
        self.live.store(Arc::clone(&live));
        self.report_handlers(&before.handlers, &live.handlers);
        Ok(())
    }

    /// Logs which handlers there are now, if they are others, and how many pods have one that is gone.
    fn report_handlers(&self, before: &Handlers, now: &Handlers) {
        if before.names().ne(now.names()) {
            let names: Vec<_> = now.names().collect();
            tracing::info!(target: "criscope::runtime::live", event = "runtime.handler", handlers = %names.join(" "), "the runtime handlers have changed");
        }
        let pods = self.store.sandboxes.all();
        for gone in before.names().filter(|name| now.get(name).is_err()) {
            let pods = pods.iter().filter(|pod| pod.record().handler == gone);
            let count = pods.count();
            if count > 0 {
                tracing::warn!(target: "criscope::runtime::live", event = "runtime.handler", criscope.runtime_handler = %gone, pods = count, "the runtime handler of pods is no longer configured: they keep running, but can only be stopped and removed");
            }
        }
    }
}

/// The facts of the node after a reload. Facts that pods and other settings rely on are those of the start.
fn node_after(before: &NodeFacts, now: NodeFacts) -> Result<NodeFacts> {
    let had_profile = !before.apparmor || before.apparmor_default.is_ok();
    if let (true, true, Err(why)) = (now.apparmor, had_profile, &now.apparmor_default) {
        return Err(Error::Unsupported(format!(
            "runtime.apparmor_profile: {why}"
        )));
    }
    Ok(NodeFacts {
        cgroup_version: before.cgroup_version,
        cgroup_driver: before.cgroup_driver,
        selinux: before.selinux,
        ..now
    })
}

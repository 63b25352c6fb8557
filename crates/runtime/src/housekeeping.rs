//! Background work of the runtime: imports, exports and garbage collection of images.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{Runtime, export, load};
use criscope_image::ImportDirectory;
use criscope_telemetry::BackgroundJob;

/// The period of scans of the import directory; a scan is one `readdir`.
const IMPORT: Duration = Duration::from_secs(2);

/// The minimum and maximum period of garbage collections.
const COLLECT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

impl Runtime {
    /// Imports archives from the import directory and from `criscope load-image`, serves `criscope export`, and removes unused
    /// layers, until it is dropped.
    /// Must be started after recovery: otherwise layers that containers need would be removed.
    pub async fn housekeeping(self: Arc<Self>) {
        tokio::join!(
            self.import(),
            self.collect(),
            self.take_in(),
            self.give_out()
        );
    }

    async fn import(&self) {
        let dir = &self.settings.live.config.images.import_dir;
        let mut folder = ImportDirectory::new(dir);
        let mut ticks = interval(IMPORT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_error = String::new();
        loop {
            ticks.tick().await;
            match folder.scan(&self.images()).await {
                Ok(done) => {
                    last_error.clear();
                    for (archive, images) in done.imported {
                        tracing::info!(target: "criscope::runtime::housekeeping", event = "image.import", archive = %archive.display(), images = images.len(), "imported an image archive");
                    }
                }
                // Logged once, not for every scan.
                Err(error) if last_error != error.to_string() => {
                    tracing::warn!(target: "criscope::runtime::housekeeping", event = "image.import", file.directory = %dir.display(), error.message = %error, "the import directory cannot be used");
                    last_error = error.to_string();
                }
                Err(_) => {}
            }
        }
    }

    async fn collect(&self) {
        let (least, most) = COLLECT;
        let keep_unused = self.settings.live.config.images.keep_unused;
        let mut ticks = interval(keep_unused.clamp(least, most));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let job = BackgroundJob::ImageCollect.begin();
            match self.live().images.collect().await {
                Ok(found) if found.layers + found.contents + found.partials > 0 => {
                    job.count("criscope.layers", found.layers);
                    job.count("criscope.contents", found.contents);
                    job.count("criscope.partials", found.partials);
                    tracing::info!(
                        target: "criscope::runtime::housekeeping",
                        event = "image.collect",
                        layers = found.layers,
                        contents = found.contents,
                        partials = found.partials,
                        "removed unused layers and content"
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    job.failed("image_store", &error);
                    tracing::warn!(target: "criscope::runtime::housekeeping", event = "image.collect", error.message = %error, "unused layers and content could not be removed");
                }
            }
        }
    }

    async fn take_in(&self) {
        let state = self.settings.paths.state().to_owned();
        if let Err(error) = load::serve(|| self.images(), state).await {
            tracing::warn!(target: "criscope::runtime::housekeeping", event = "image.load", error.message = %error, "criscope load-image is not available");
        }
    }

    async fn give_out(&self) {
        let state = self.settings.paths.state().to_owned();
        if let Err(error) = export::serve(|| self.images(), state).await {
            tracing::warn!(target: "criscope::runtime::housekeeping", event = "image.export", error.message = %error, "criscope export is not available");
        }
    }
}

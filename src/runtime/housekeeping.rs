//! What the runtime does without being asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{Runtime, load};
use criscope_image::ImportDirectory;

/// How often the folder of archives is looked into: a look is one `readdir`.
const IMPORT: Duration = Duration::from_secs(2);

/// Between two collections of what no image needs, at least and at most.
const COLLECT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

impl Runtime {
    /// Takes in archives from the import folder and from `criscope load-image`, and collects layers that nobody needs; until
    /// it is dropped. Only to be started when all containers there are have been found again: layers of the others go.
    pub async fn housekeeping(self: Arc<Self>) {
        tokio::join!(self.import(), self.collect(), self.take_in());
    }

    async fn import(&self) {
        let Some(dir) = &self.settings.import_dir else {
            return;
        };
        let mut folder = ImportDirectory::new(dir);
        let mut ticks = interval(IMPORT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = String::new();
        loop {
            ticks.tick().await;
            match folder.scan(&self.images).await {
                Ok(done) => {
                    told.clear();
                    for (archive, images) in done.imported {
                        tracing::info!(event = "image.import", archive = %archive.display(), images = images.len(), "an archive is imported");
                    }
                }
                // Once, not with every look.
                Err(error) if told != error.to_string() => {
                    tracing::warn!(event = "image.import", file.directory = %dir.display(), error.message = %error, "the folder of archives cannot be used");
                    told = error.to_string();
                }
                Err(_) => {}
            }
        }
    }

    async fn collect(&self) {
        let (least, most) = COLLECT;
        let mut ticks = interval(self.settings.images.keep_unused.clamp(least, most));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.images.collect().await {
                Ok(found) if found.layers + found.contents + found.partials > 0 => {
                    tracing::info!(
                        event = "image.collect",
                        layers = found.layers,
                        contents = found.contents,
                        partials = found.partials,
                        "removed what no image needs"
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(event = "image.collect", error.message = %error, "what no image needs cannot be removed");
                }
            }
        }
    }

    async fn take_in(&self) {
        let state = self.settings.paths.state().to_owned();
        if let Err(error) = load::serve(self.images.clone(), state).await {
            tracing::warn!(event = "image.load", error.message = %error, "images cannot be loaded by command");
        }
    }
}

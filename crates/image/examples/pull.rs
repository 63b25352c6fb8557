//! Pulls an image into a store, or imports an archive of `docker save`, and prints its defaults for containers.
//!
//! ```sh
//! docker run -d -p 5000:5000 registry:2    # or any registry; on loopback it is reached without TLS
//! sudo cargo run --example pull -- /tmp/store localhost:5000/busybox:1.36
//! sudo cargo run --example pull -- /tmp/store ./busybox.tar
//! ```

use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use criscope_image::{ActiveStep, ImageStore, ImageStoreConfig, NoObserver, Observer, Step, Steps};

/// Prints the steps of a pull.
#[derive(Debug)]
struct Printer;

impl Observer for Printer {
    fn operation(&self) -> Arc<dyn Steps> {
        Arc::new(Self)
    }
}

impl Steps for Printer {
    fn start(&self, step: Step, name: Option<&str>) -> Box<dyn ActiveStep> {
        eprintln!("{step:?} {}", name.unwrap_or_default());
        Box::new(NoObserver)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(root), Some(image)) = (arguments.next(), arguments.next()) else {
        return Err("usage: pull DIRECTORY REFERENCE|ARCHIVE".into());
    };
    let store = ImageStore::open(ImageStoreConfig {
        observer: Arc::new(Printer),
        ..ImageStoreConfig::new(root)
    })
    .await?;
    let id = if Path::new(&image).is_file() {
        let imported = store.import(Path::new(&image)).await?;
        imported.into_iter().next().ok_or("an empty archive")?.id
    } else {
        store.pull(&image, None, None).await?
    };
    let found = store.status(id.as_str())?.ok_or("just removed")?;
    println!("{} {:?} {} bytes", found.id, found.tags, found.size);
    println!(
        "command: {:?} {:?}",
        found.config.entrypoint, found.config.cmd
    );
    // The order of overlayfs's `lowerdir`: topmost layer first. The layers are kept while the lease is alive.
    let lease = store.layers(id.as_str())?;
    let lower = lease.paths().iter().rev();
    let lower: Vec<_> = lower.map(|path| path.display().to_string()).collect();
    println!("lowerdir={}", lower.join(":"));
    Ok(())
}

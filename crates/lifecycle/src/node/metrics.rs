//! Metrics of the node that no other exporter has: whether a kubelet uses this socket, and the filesystem of the images. The
//! node exporter has pressure and other disks.

use std::sync::Arc;

use crate::Stories;
use criscope_telemetry::metric::{BACKEND, Metric, Unit, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

metrics! {
    KUBELET_CONNECTED = Metric::gauge("kubelet_connected", Unit::Flag, &[],
        "Whether a kubelet has a connection open; absent until one was seen.");
    BYPASSED = Metric::gauge("bypassed", Unit::Flag, &[],
        "Whether calls reach the runtime without criscope. criscope-agent answers with 1 in its place while criscope does not run.");
    IMAGE_FS_SIZE = Metric::gauge("image_fs_size_bytes", Unit::Bytes, &[BACKEND],
        "Size of the filesystem of the backend's images, from the path in its answer to ImageFsInfo; absent until a caller asked for that.");
    IMAGE_FS_AVAILABLE = Metric::gauge("image_fs_available_bytes", Unit::Bytes, &[BACKEND],
        "Space available on that filesystem.");
    IMAGE_FS_INODES = Metric::gauge("image_fs_inodes", Unit::Count, &[BACKEND],
        "Inodes of that filesystem; 0 if their number is not fixed.");
    IMAGE_FS_INODES_FREE = Metric::gauge("image_fs_inodes_free", Unit::Count, &[BACKEND],
        "Free inodes of that filesystem.");
}

/// Registers the metrics, which are computed at scrape time.
///
/// # Errors
/// If a metric is registered already.
pub(crate) fn register(registry: &Registry, stories: &Arc<Stories>) -> Result<(), RegistryError> {
    type ReadFilesystem = fn(&super::ImageFilesystem) -> u64;
    let source = Arc::clone(stories);
    registry.computed(&KUBELET_CONNECTED, move |out| {
        if let Some(connected) = source.node().kubelet {
            out.put(&[], f64::from(u8::from(connected)));
        }
    })?;
    let source = Arc::clone(stories);
    registry.computed(&BYPASSED, move |out| {
        let is_bypassed = source.node().bypassed_since.is_some();
        out.put(&[], f64::from(u8::from(is_bypassed)));
    })?;
    let disk_metrics: [(_, ReadFilesystem); 4] = [
        (&IMAGE_FS_SIZE, |fs| fs.size),
        (&IMAGE_FS_AVAILABLE, |fs| fs.available),
        (&IMAGE_FS_INODES, |fs| fs.inodes),
        (&IMAGE_FS_INODES_FREE, |fs| fs.inodes_free),
    ];
    for (metric, value) in disk_metrics {
        let source = Arc::clone(stories);
        registry.computed(metric, move |out| {
            for (backend, fs) in &source.node().disks {
                out.put(&[backend], value(fs) as f64);
            }
        })?;
    }
    Ok(())
}

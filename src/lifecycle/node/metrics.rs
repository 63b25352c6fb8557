//! Metrics of the node that no other exporter has: whether a kubelet uses this socket, and which filesystem is that of the
//! images. Pressure and other disks are those of the node exporter.

use std::sync::Arc;

use crate::lifecycle::Stories;
use crate::telemetry::metric::{BACKEND, Metric, Unit, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    KUBELET_CONNECTED = Metric::gauge("kubelet_connected", Unit::Flag, &[],
        "Whether a kubelet has a connection open; absent until one was seen.");
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
/// If they are registered already.
pub(crate) fn register(registry: &Registry, stories: &Arc<Stories>) -> Result<(), RegistryError> {
    let source = Arc::clone(stories);
    registry.computed(&KUBELET_CONNECTED, move |out| {
        if let Some(connected) = source.node().kubelet {
            out.put(&[], f64::from(u8::from(connected)));
        }
    })?;
    let disks = |value: fn(&super::ImageFs) -> u64| {
        let source = Arc::clone(stories);
        move |out: &mut crate::telemetry::computed::Readings| {
            for (backend, fs) in &source.node().disks {
                out.put(&[backend], value(fs) as f64);
            }
        }
    };
    registry.computed(&IMAGE_FS_SIZE, disks(|fs| fs.size))?;
    registry.computed(&IMAGE_FS_AVAILABLE, disks(|fs| fs.available))?;
    registry.computed(&IMAGE_FS_INODES, disks(|fs| fs.inodes))?;
    registry.computed(&IMAGE_FS_INODES_FREE, disks(|fs| fs.inodes_free))
}

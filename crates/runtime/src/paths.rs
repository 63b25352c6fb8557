//! The directories of the runtime.
//!
//! ```text
//! ROOT/images                 the image store
//! ROOT/sandboxes/ID           record.json, made.json, hostname, hosts, resolv.conf
//!                             (with a shim of containerd also config.json, address)
//! ROOT/containers/ID          record.json, config.json (the bundle), rootfs, upper, work, volumes
//! ROOT/cni                    results of CNI plugins, for DEL
//! ROOT/broken                 damaged records, for inspection
//! ROOT, STATE/identity.json   bind ROOT and STATE to each other
//! STATE/records/ID.json       copies of the records in ROOT, used if those cannot be read
//! STATE/pods/ID               the shim's socket, lock and exit records; shm
//! STATE/ns/ID                 the namespaces of a pod, pinned
//! STATE/oci/HANDLER           the OCI runtime's own state
//! ```
//!
//! ROOT survives a reboot; STATE need not, and should be on a tmpfs such as `/run`.

use std::path::{Path, PathBuf};

/// The directories of the runtime.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
    state: PathBuf,
}

impl Paths {
    /// Sets the paths, without creating directories.
    pub fn new(root: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            state: state.into(),
        }
    }

    /// ROOT, which survives a reboot.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// STATE, which need not survive a reboot.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The image store.
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The results of CNI plugins.
    pub fn cni(&self) -> PathBuf {
        self.root.join("cni")
    }

    /// Records that could not be read.
    pub fn broken(&self) -> PathBuf {
        self.root.join("broken")
    }

    /// All sandboxes.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// One sandbox.
    pub fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    /// All containers.
    pub fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    /// One container, which is also its bundle.
    pub fn container(&self, id: &str) -> PathBuf {
        self.containers().join(id)
    }

    /// The copies of all records.
    pub fn copies(&self) -> PathBuf {
        self.state.join("records")
    }

    /// The copy of the record of a sandbox or container.
    pub fn copy(&self, id: &str) -> PathBuf {
        self.copies().join(format!("{id}.json"))
    }

    /// The directories of all pods' shims.
    pub fn pods(&self) -> PathBuf {
        self.state.join("pods")
    }

    /// The directory of a pod's shim.
    pub fn pod(&self, id: &str) -> PathBuf {
        self.pods().join(id)
    }

    /// The shared memory of a pod, mounted at `/dev/shm` of its containers.
    pub fn shm(&self, id: &str) -> PathBuf {
        self.pod(id).join("shm")
    }

    /// The namespaces of all pods.
    pub fn namespaces(&self) -> PathBuf {
        self.state.join("ns")
    }

    /// The state of an OCI runtime.
    pub fn oci(&self, handler: &str) -> PathBuf {
        self.state.join("oci").join(handler)
    }
}

//! What the runtime knows of its sandboxes and containers: in memory for every question, on disk for after a restart.

mod container;
pub mod disk;
pub mod identity;
mod kept;
mod names;
pub mod record;
pub mod refused;
mod sandbox;
mod shelf;
pub mod versions;

use std::sync::Arc;

pub use self::container::Container;
pub use self::names::{Names, Reservation};
pub use self::record::{ContainerRecord, ContainerState, Exit, SandboxRecord, SandboxState};
pub use self::sandbox::Sandbox;
pub use self::shelf::Shelf;
use super::error::What;

/// All sandboxes and containers.
#[derive(Debug)]
pub struct Store {
    /// By id.
    pub sandboxes: Shelf<Sandbox>,
    /// By id.
    pub containers: Shelf<Container>,
    /// Names of sandboxes.
    pub sandbox_names: Arc<Names>,
    /// Names of containers.
    pub container_names: Arc<Names>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            sandboxes: Shelf::new(What::Sandbox),
            containers: Shelf::new(What::Container),
            sandbox_names: Names::new(What::Sandbox),
            container_names: Names::new(What::Container),
        }
    }
}

impl Store {
    /// The containers of a sandbox.
    pub fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let mut all = self.containers.all();
        all.retain(|container| container.record().sandbox == sandbox);
        all
    }
}

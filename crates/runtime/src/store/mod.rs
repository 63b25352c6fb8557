//! The sandboxes and containers of the runtime: in memory for all queries, on disk for recovery after a restart.

mod container;
pub(crate) mod disk;
mod durable;
pub(crate) mod identity;
mod names;
mod object_map;
pub(crate) mod record;
pub(crate) mod refused;
mod sandbox;
pub(crate) mod versions;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use self::container::{Container, EVICTED};
pub(crate) use self::names::{Names, Reservation};
pub(crate) use self::object_map::ObjectMap;
pub(crate) use self::record::{ContainerRecord, ContainerState, Exit, SandboxRecord, SandboxState};
pub(crate) use self::sandbox::Sandbox;
use super::error::What;

/// All sandboxes and containers.
#[derive(Debug)]
pub(crate) struct Store {
    /// By id.
    pub sandboxes: ObjectMap<Sandbox>,
    /// By id: the ones that are being created, which lists do not show.
    pub making: ObjectMap<Sandbox>,
    /// By id.
    pub containers: ObjectMap<Container>,
    /// Names of sandboxes.
    pub sandbox_names: Arc<Names>,
    /// Names of containers.
    pub container_names: Arc<Names>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            sandboxes: ObjectMap::new(What::Sandbox),
            making: ObjectMap::new(What::Sandbox),
            containers: ObjectMap::new(What::Container),
            sandbox_names: Names::new(What::Sandbox),
            container_names: Names::new(What::Container),
        }
    }
}

impl Store {
    /// The containers of a sandbox.
    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let mut all = self.containers.all();
        all.retain(|container| container.record().sandbox == sandbox);
        all
    }

    /// All containers, by the sandbox that they belong to: one pass, where [`Self::containers_of`] makes one for each sandbox.
    pub(crate) fn containers_by_sandbox(&self) -> HashMap<String, Vec<Arc<Container>>> {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for container in self.containers.all() {
            let sandbox = container.record().sandbox.clone();
            all.entry(sandbox).or_default().push(container);
        }
        all
    }
}

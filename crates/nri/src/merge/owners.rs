//! The plugin that has set each field.

use crate::api::{Field, FieldOwners, OwningPlugins};
use crate::error::EventError;

use super::{removal, removed_key};

/// The owners of all fields that plugins have set, in the form that validating plugins receive.
#[derive(Default)]
pub(super) struct ContainerFieldOwners(OwningPlugins);

impl ContainerFieldOwners {
    /// The message.
    pub(super) fn message(&self) -> OwningPlugins {
        self.0.clone()
    }

    fn container(&mut self, id: &str) -> &mut FieldOwners {
        self.0.owners.entry(id.to_owned()).or_default()
    }

    /// Makes a plugin the owner of a field.
    pub(super) fn claim(&mut self, id: &str, field: Field, plugin: &str) -> Result<(), EventError> {
        let simple = &mut self.container(id).simple;
        check(simple.get(&(field as i32)), plugin, || words(field, None))?;
        simple.insert(field as i32, plugin.to_owned());
        Ok(())
    }

    /// Makes a plugin the owner of an entry of a field.
    pub(super) fn claim_key(
        &mut self,
        id: &str,
        field: Field,
        key: &str,
        plugin: &str,
    ) -> Result<(), EventError> {
        let entries = self.container(id).compound.entry(field as i32).or_default();
        check(entries.owners.get(key), plugin, || words(field, Some(key)))?;
        entries.owners.insert(key.to_owned(), plugin.to_owned());
        Ok(())
    }

    /// Adds an owner of a field that all plugins may add to.
    pub(super) fn share(&mut self, id: &str, field: Field, plugin: &str) {
        let owner = self.container(id).simple.entry(field as i32).or_default();
        if !owner.is_empty() {
            owner.push(',');
        }
        owner.push_str(plugin);
    }

    /// Lets a plugin, and no other, set a field that is owned.
    pub(super) fn clear(&mut self, id: &str, field: Field, plugin: &str) {
        let simple = &mut self.container(id).simple;
        simple.insert(field as i32, removal(plugin));
    }

    /// Lets a plugin, and no other, set an entry that is owned.
    pub(super) fn clear_key(&mut self, id: &str, field: Field, key: &str, plugin: &str) {
        let entries = self.container(id).compound.entry(field as i32).or_default();
        entries.owners.insert(key.to_owned(), removal(plugin));
    }
}

fn check(
    owner: Option<&String>,
    plugin: &str,
    what: impl FnOnce() -> String,
) -> Result<(), EventError> {
    let Some(owner) = owner else { return Ok(()) };
    let other = match removed_key(owner) {
        Some(clearer) if clearer == plugin => return Ok(()),
        Some(clearer) => clearer,
        None => owner,
    };
    Err(EventError::Conflict {
        plugin: plugin.to_owned(),
        other: other.to_owned(),
        what: what(),
    })
}

/// A field in words, with the key of its entry.
fn words(field: Field, key: Option<&str>) -> String {
    let words = match field {
        Field::Annotations => "annotation",
        Field::Mounts => "mount",
        Field::Devices => "device",
        Field::CdiDevices => "CDI device",
        Field::Env => "environment variable",
        Field::Args => "arguments",
        Field::MemLimit => "memory limit",
        Field::CpuShares => "CPU shares",
        Field::CpuQuota => "CPU quota",
        Field::CpuPeriod => "CPU period",
        Field::CpuSetCpUs => "cpuset CPUs",
        Field::CpuSetMems => "cpuset memory nodes",
        Field::PidsLimit => "pids limit",
        Field::HugepageLimits => "huge page limit",
        Field::CgroupsUnified => "unified resource",
        Field::CgroupsPath => "cgroup path",
        Field::OomScoreAdj => "OOM score adjustment",
        Field::Rlimits => "rlimit",
        Field::IoPriority => "I/O priority",
        Field::SeccompPolicy => "seccomp policy",
        Field::Namespace => "namespace",
        Field::Sysctl => "sysctl",
        Field::LinuxNetDevices => "network device",
        Field::LinuxSched => "scheduler",
        Field::MemoryPolicy => "memory policy",
        other => other.as_str_name(),
    };
    match key {
        Some(key) => format!("{words} {key}"),
        None => words.to_owned(),
    }
}

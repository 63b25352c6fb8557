//! Lists whose entries have keys: mounts, devices, environment variables.

use std::collections::BTreeSet;

use super::{FieldClaims, removed_key};
use crate::api::{Field, KeyValue, LinuxDevice, LinuxNamespace, Mount};
use crate::error::EventError;

/// An entry of a list.
pub(super) trait KeyedEntry: Clone {
    /// The field of the list.
    const FIELD: Field;
    /// The key of the entry.
    fn key(&self) -> &str;
}

impl KeyedEntry for Mount {
    const FIELD: Field = Field::Mounts;
    fn key(&self) -> &str {
        &self.destination
    }
}

impl KeyedEntry for LinuxDevice {
    const FIELD: Field = Field::Devices;
    fn key(&self) -> &str {
        &self.path
    }
}

impl KeyedEntry for KeyValue {
    const FIELD: Field = Field::Env;
    fn key(&self) -> &str {
        &self.key
    }
}

impl FieldClaims<'_> {
    /// Merges a list into the adjustments. Returns the keys to remove from the request before the entries without a mark are added
    /// to it.
    ///
    /// A removal without a new entry remains in the adjustment. The reference implementation drops removals of environment
    /// variables and devices, so that the entry of the specification remains there.
    pub(super) fn list<T: KeyedEntry>(
        &mut self,
        wanted: &[T],
        adjusted: &mut Vec<T>,
    ) -> Result<BTreeSet<String>, EventError> {
        let mut gone = BTreeSet::new();
        let set: BTreeSet<_> = wanted.iter().map(KeyedEntry::key).collect();
        for entry in wanted {
            let Some(key) = removed_key(entry.key()) else {
                continue;
            };
            let owned = adjusted.iter().any(|other| other.key() == key);
            if owned {
                self.clear_key(T::FIELD, key);
            }
            adjusted.retain(|other| other.key() != key);
            if !set.contains(key) {
                adjusted.push(entry.clone());
            }
            gone.insert(key.to_owned());
        }
        for entry in added(wanted) {
            self.claim_key(T::FIELD, entry.key())?;
            // After a removal by an earlier plugin the entry still replaces the one in the specification.
            adjusted.retain(|other| removed_key(other.key()) != Some(entry.key()));
            adjusted.push(entry.clone());
            gone.insert(entry.key().to_owned());
        }
        Ok(gone)
    }

    /// Merges namespaces. There is one of each type.
    pub(super) fn namespaces(
        &mut self,
        wanted: &[LinuxNamespace],
        adjusted: &mut Vec<LinuxNamespace>,
        request: &mut Vec<LinuxNamespace>,
    ) -> Result<(), EventError> {
        for one in wanted {
            let removed = removed_key(&one.r#type);
            let typ = removed.unwrap_or(&one.r#type);
            self.claim_key(Field::Namespace, typ)?;
            request.retain(|other| other.r#type != typ);
            if removed.is_none() {
                request.push(one.clone());
            }
            adjusted.push(one.clone());
        }
        Ok(())
    }
}

/// The entries that are set, not removed.
pub(super) fn added<T: KeyedEntry>(wanted: &[T]) -> impl Iterator<Item = &T> {
    wanted
        .iter()
        .filter(|entry| removed_key(entry.key()).is_none())
}

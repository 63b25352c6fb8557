//! The answers of several plugins to one event, merged in the order of their index. A field that one plugin has set cannot be
//! set by another, unless the second one also removes it. Each plugin gets the request with the changes of earlier plugins.

mod adjust;
mod lists;
mod owners;
mod resources;
mod update;

use std::collections::BTreeMap;

pub(crate) use self::adjust::MergedCreation;
use self::owners::ContainerFieldOwners;
pub(crate) use self::update::{ContainerUpdates, MergedStop, MergedUpdate};
use crate::api::Field;
use crate::error::EventError;

/// The key without the mark, if it is marked for removal with `-`.
pub fn removed_key(key: &str) -> Option<&str> {
    key.strip_prefix('-')
}

/// A key marked for removal.
fn removal(key: &str) -> String {
    format!("-{key}")
}

/// A field of one container that is being merged.
struct FieldClaims<'a> {
    owners: &'a mut ContainerFieldOwners,
    id: &'a str,
    plugin: &'a str,
}

impl FieldClaims<'_> {
    fn claim(&mut self, field: Field) -> Result<(), EventError> {
        self.owners.claim(self.id, field, self.plugin)
    }

    fn claim_key(&mut self, field: Field, key: &str) -> Result<(), EventError> {
        self.owners.claim_key(self.id, field, key, self.plugin)
    }

    fn clear(&mut self, field: Field) {
        self.owners.clear(self.id, field, self.plugin);
    }

    fn clear_key(&mut self, field: Field, key: &str) {
        self.owners.clear_key(self.id, field, key, self.plugin);
    }

    /// Merges a map whose keys may be marked for removal into the adjustments and into the request.
    fn map<V: Clone + Default>(
        &mut self,
        field: Field,
        wanted: BTreeMap<String, V>,
        adjusted: &mut BTreeMap<String, V>,
        request: &mut BTreeMap<String, V>,
    ) -> Result<(), EventError> {
        let (removed, set): (BTreeMap<_, _>, BTreeMap<_, _>) = wanted
            .into_iter()
            .partition(|(key, _)| removed_key(key).is_some());
        for marked in removed.into_keys() {
            let key = removed_key(&marked).unwrap_or_default();
            if set.contains_key(key) {
                self.clear_key(field, key);
            } else {
                adjusted.remove(key);
            }
            request.remove(key);
            adjusted.insert(marked, V::default());
        }
        for (key, value) in set {
            self.claim_key(field, &key)?;
            request.insert(key.clone(), value.clone());
            adjusted.insert(key, value);
        }
        Ok(())
    }
}

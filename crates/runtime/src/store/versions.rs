//! Versions of the records on disk: newer ones are refused before anything is changed, older ones are migrated step by step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::refused::Refused;
use super::{disk, record};
use crate::error::{Error, Result};
use crate::paths::Paths;

/// Migrates a record to the next version.
type Step = fn(&mut Value);

/// Migrations of sandbox records; the migration of version N is at index N - 1.
pub(crate) const SANDBOX_STEPS: &[Step] = &[|_| ()];

/// Migrations of container records.
pub(crate) const CONTAINER_STEPS: &[Step] = &[name_image];

/// Adds `image_name`, which the first records of version 1 did not have.
fn name_image(record: &mut Value) {
    let missing = record["image_name"].as_str().is_none_or(str::is_empty);
    if missing {
        let requested = record.pointer("/config/image/image").cloned();
        record["image_name"] = requested.unwrap_or_else(|| record["image_ref"].clone());
    }
}

/// Migrates a record to the current version; returns whether it was older.
pub(crate) fn migrate(record: &mut Value, steps: &[Step]) -> bool {
    let now = u64::from(record::VERSION);
    let from = record["version"].as_u64().unwrap_or_default();
    let old = (1..now).contains(&from);
    if old {
        let done = usize::try_from(from - 1).unwrap_or(usize::MAX);
        for step in steps.iter().skip(done) {
            step(record);
        }
        record["version"] = now.into();
    }
    old
}

/// Lists all records of the root, the state and the image store, each with the newest version that this program can read.
fn all(paths: &Paths, images: &Path) -> Result<Vec<(PathBuf, u32)>> {
    let mut found = Vec::new();
    for dir in [paths.sandboxes(), paths.containers()] {
        let dirs = disk::list(&dir)?.into_iter();
        found.extend(dirs.map(|(_, dir)| (dir.join(disk::RECORD), record::VERSION)));
    }
    let images = disk::list(&images.join("images"))?.into_iter();
    found.extend(images.map(|(_, path)| (path, criscope_image::RECORD_VERSION)));
    for file in [paths.root(), paths.state()] {
        found.push((file.join(super::identity::FILE), super::identity::VERSION));
    }
    Ok(found)
}

/// Refuses records of a newer version. Files that cannot be read are ignored.
///
/// # Errors
/// [`Error::Refused`], or an I/O error if a directory cannot be read.
pub(crate) fn check(paths: &Paths, images: &Path) -> Result<()> {
    let mut newer = Vec::new();
    for (path, known) in all(paths, images)? {
        let found = read(&path).and_then(|record| record["version"].as_u64());
        if let Some(found) = found.filter(|found| *found > known.into()) {
            newer.push((path, found, known));
        }
    }
    let others = newer.len().saturating_sub(1);
    match newer.into_iter().next() {
        None => Ok(()),
        Some((path, found, known)) => Err(Error::refused(Refused::Newer {
            path,
            found,
            known: known.into(),
            others,
            root: paths.root().to_owned(),
            state: paths.state().to_owned(),
        })),
    }
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Returns whether there is a sandbox record of this boot, or one that cannot be read and might be.
///
/// # Errors
/// If a directory cannot be read.
pub(crate) fn has_boot(paths: &Paths, boot: &str) -> Result<bool> {
    let mut dirs = disk::list(&paths.sandboxes())?.into_iter();
    Ok(dirs.any(|(_, dir)| match fs::read(dir.join(disk::RECORD)) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(text) => {
            let record = serde_json::from_slice::<Value>(&text);
            record.is_ok_and(|record| record["boot"] == boot)
        }
    }))
}

/// Returns the fields that the parsed form lacks, added by a newer program with the same record version.
pub(crate) fn unknown(read: &Value, known: &Value) -> Option<Value> {
    match (read, known) {
        (Value::Object(read), Value::Object(known)) => {
            let fields = read.iter().filter_map(|(name, value)| {
                let left = match known.get(name) {
                    None => Some(value.clone()),
                    Some(known) => unknown(value, known),
                };
                Some((name.clone(), left?))
            });
            let fields: serde_json::Map<_, _> = fields.collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        (Value::Array(read), Value::Array(known)) if read.len() == known.len() => {
            let pairs = read.iter().zip(known);
            let items: Vec<_> = pairs.map(|(read, known)| unknown(read, known)).collect();
            items.iter().any(Option::is_some).then(|| {
                let items = items.into_iter().map(Option::unwrap_or_default);
                Value::Array(items.collect())
            })
        }
        _ => None,
    }
}

/// Restores the fields found by [`unknown`]. If the structure has changed since, the new one takes precedence.
pub(crate) fn add(to: &mut Value, unknown: &Value) {
    match (to, unknown) {
        (Value::Object(to), Value::Object(unknown)) => {
            for (name, value) in unknown {
                match to.get_mut(name) {
                    Some(known) => add(known, value),
                    None => drop(to.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(to), Value::Array(unknown)) if to.len() == unknown.len() => {
            for (to, unknown) in to.iter_mut().zip(unknown) {
                add(to, unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_older_version_has_a_migration() {
        let steps = usize::try_from(record::VERSION - 1).expect("small");
        assert_eq!(SANDBOX_STEPS.len(), steps);
        assert_eq!(CONTAINER_STEPS.len(), steps);
        let mut old = json!({"version": 1, "config": {"image": {"image": "a"}}});
        assert!(migrate(&mut old, CONTAINER_STEPS));
        assert_eq!(old["version"], record::VERSION);
        assert_eq!(old["image_name"], "a");
        let now = old.clone();
        assert!(!migrate(&mut old, CONTAINER_STEPS));
        assert_eq!(old, now);
    }

    #[test]
    fn unknown_fields_are_preserved_at_any_depth() {
        let read = json!({"a": 1, "new": [1], "b": {"c": 2, "new": {}}, "d": [{"e": 1}, {"e": 2, "new": 3}]});
        let known = json!({"a": 1, "b": {"c": 2}, "d": [{"e": 1}, {"e": 2}], "f": null});
        let left = unknown(&read, &known).expect("fields");
        let mut written = json!({"a": 5, "b": {"c": 6}, "d": [{"e": 1}, {"e": 2}], "f": 7});
        add(&mut written, &left);
        let whole = json!({"a": 5, "new": [1], "b": {"c": 6, "new": {}}, "d": [{"e": 1}, {"e": 2, "new": 3}], "f": 7});
        assert_eq!(written, whole);
        assert_eq!(unknown(&known, &known), None);
    }
}

//! Unique names of objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result, What};

/// The names in use, with the ids of their objects.
#[derive(Debug)]
pub(crate) struct Names {
    what: What,
    taken: Mutex<HashMap<String, String>>,
    /// Ids of objects whose names are unknown, because their records cannot be read.
    unknown: Mutex<BTreeSet<String>>,
}

/// A reserved name, released on drop unless it is kept.
#[derive(Debug)]
pub(crate) struct Reservation {
    names: Arc<Names>,
    name: Option<String>,
}

impl Names {
    /// Creates an empty set of names for objects of a kind.
    pub(crate) fn new(what: What) -> Arc<Self> {
        Arc::new(Self {
            what,
            taken: Mutex::default(),
            unknown: Mutex::default(),
        })
    }

    /// Reserves a name for an id, for a new object.
    ///
    /// # Errors
    /// [`Error::Taken`]; [`Error::Unavailable`] if it may be the name of an object whose record cannot be read.
    pub(crate) fn reserve(self: &Arc<Self>, name: &str, id: &str) -> Result<Reservation> {
        let unknown = self.unknown().first().cloned();
        let reservation = self.take(name, id)?;
        match unknown {
            None => Ok(reservation),
            Some(other) => Err(Error::Unavailable(format!(
                "name {name:?} may belong to {} {other}, which runs and whose record cannot be read",
                self.what.name()
            ))),
        }
    }

    /// Registers a running object whose name is unknown: no name can be reserved until it is known.
    pub(crate) fn set_unknown(&self, id: &str) {
        self.unknown().insert(id.to_owned());
    }

    /// Unregisters such an object: its name is known, or the object is gone.
    pub(crate) fn set_known(&self, id: &str) {
        self.unknown().remove(id);
    }

    /// Reserves a name for an existing object.
    ///
    /// # Errors
    /// [`Error::Taken`].
    pub(crate) fn take(self: &Arc<Self>, name: &str, id: &str) -> Result<Reservation> {
        let mut taken = self.taken();
        if let Some(by) = taken.get(name) {
            return Err(Error::Taken {
                what: self.what,
                name: name.to_owned(),
                by: by.clone(),
            });
        }
        taken.insert(name.to_owned(), id.to_owned());
        Ok(Reservation {
            names: Arc::clone(self),
            name: Some(name.to_owned()),
        })
    }

    /// Releases a name if it belongs to this id.
    pub(crate) fn release(&self, name: &str, id: &str) {
        let mut taken = self.taken();
        if taken.get(name).is_some_and(|by| by == id) {
            taken.remove(name);
        }
    }

    fn unknown(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Keeps the name until [`Names::release`].
    pub(crate) fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.names.taken().remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_released_after_a_failure_and_kept_after_success() {
        let names = Names::new(What::Sandbox);
        let first = names.reserve("a", "1").expect("valid");
        let error = names.reserve("a", "2").expect_err("refused");
        assert_eq!(error.code(), tonic::Code::AlreadyExists);
        assert!(error.to_string().contains('1'), "names the owner: {error}");
        drop(first);
        names.reserve("a", "2").expect("valid").keep();
        assert!(names.reserve("a", "3").is_err());
        names.release("a", "3");
        assert!(
            names.reserve("a", "3").is_err(),
            "only its owner can release it"
        );
        names.release("a", "2");
        assert!(names.reserve("a", "3").is_ok());
        names.set_unknown("4");
        let error = names.reserve("b", "5").expect_err("it may be that of 4");
        assert_eq!(error.code(), tonic::Code::Unavailable);
        names.take("b", "4").expect("its own").keep();
        names.set_known("4");
        assert!(names.reserve("c", "5").is_ok());
    }
}

//! Maps ids, and unique prefixes of ids, to objects.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::{Error, Result, What};

/// All objects of a kind.
#[derive(Debug)]
pub(crate) struct ObjectMap<T> {
    what: What,
    objects: RwLock<BTreeMap<String, Arc<T>>>,
    /// Objects that exist but whose records cannot be read, with the reason.
    unread: RwLock<BTreeMap<String, String>>,
}

impl<T> ObjectMap<T> {
    /// An empty map.
    pub(crate) fn new(what: What) -> Self {
        Self {
            what,
            objects: RwLock::default(),
            unread: RwLock::default(),
        }
    }

    /// Adds an object.
    pub(crate) fn insert(&self, id: &str, object: Arc<T>) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert(id.to_owned(), object);
    }

    /// Registers an object whose record cannot be read: calls for it fail with the reason.
    pub(crate) fn set_unread(&self, id: &str, why: String) {
        let mut unread = self.unread.write().unwrap_or_else(PoisonError::into_inner);
        unread.insert(id.to_owned(), why);
    }

    /// Unregisters such an object: its record has become readable, or the object is gone.
    pub(crate) fn set_read(&self, id: &str) {
        let mut unread = self.unread.write().unwrap_or_else(PoisonError::into_inner);
        unread.remove(id);
    }

    fn is_unread(&self, id: &str) -> Result<()> {
        let unread = self.unread.read().unwrap_or_else(PoisonError::into_inner);
        let found = unread.iter().find(|(key, _)| key.starts_with(id));
        match found.filter(|_| !id.is_empty()) {
            None => Ok(()),
            Some((key, why)) => Err(Error::Unavailable(format!(
                "{} {key} cannot be used before its record can be read: {why}",
                self.what.name()
            ))),
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&self, id: &str) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(id);
    }

    /// Returns the object with this id, or the only one whose id has this prefix.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Ambiguous`], [`Error::Unavailable`] if its record cannot be read.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<T>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        if id.is_empty() {
            return Err(Error::not_found(self.what, id));
        }
        let mut found = objects
            .range(id.to_owned()..)
            .take_while(|(key, _)| key.starts_with(id));
        let Some((key, first)) = found.next() else {
            self.is_unread(id)?;
            return Err(Error::not_found(self.what, id));
        };
        // A complete id is never ambiguous.
        if key != id && found.next().is_some() {
            return Err(Error::Ambiguous {
                what: self.what,
                id: id.to_owned(),
            });
        }
        Ok(Arc::clone(first))
    }

    /// Like [`Self::get`]; `None` if the object does not exist.
    ///
    /// # Errors
    /// [`Error::Ambiguous`], [`Error::Unavailable`].
    pub(crate) fn find(&self, id: &str) -> Result<Option<Arc<T>>> {
        match self.get(id) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects, sorted by id.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_prefix_finds_its_object() {
        let shelf = ObjectMap::new(What::Container);
        for id in ["aa1", "aa2", "b", "bc"] {
            shelf.insert(id, Arc::new(id));
        }
        let found = |id| shelf.get(id).map(|found| *found);
        assert_eq!(found("aa1").expect("valid"), "aa1");
        assert_eq!(found("bc").expect("valid"), "bc");
        assert_eq!(
            found("b").expect("valid"),
            "b",
            "a complete id takes precedence"
        );
        assert!(matches!(found("aa"), Err(Error::Ambiguous { .. })));
        for none in ["", "c", "aa11"] {
            assert!(found(none).expect_err("refused").is_not_found(), "{none}");
            assert!(shelf.find(none).expect("valid").is_none());
        }
        shelf.set_unread("dd", "a disk".to_owned());
        for id in ["dd", "d"] {
            let error = shelf.find(id).expect_err("it is there");
            assert_eq!(error.code(), tonic::Code::Unavailable);
        }
        shelf.set_read("dd");
        assert!(shelf.find("dd").expect("valid").is_none());
        shelf.remove("b");
        assert_eq!(found("b").expect("valid"), "bc");
    }
}

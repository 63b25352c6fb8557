//! Lookups: which image of the store a text means, and by which of its names it was found.
//!
//! Everything that has to know what a name in a request means comes here, so that the image that is used and the name that a
//! signature policy judges cannot differ.

use super::error::Result;
use super::image_store::{Image, ImageStore};
use super::reference::Reference;
use super::store::{Resolved, is_part_of_id, whole_id};

/// An image of the store, and how it was found.
#[derive(Clone, Debug)]
pub struct FoundImage {
    /// The image.
    pub image: Image,
    /// The name of the image, in full form, that it was found by. `None` if it was found by its ID or the beginning of that.
    pub name: Option<Reference>,
}

impl ImageStore {
    /// An image by a name, its ID, or the beginning of its ID. `None` if it is not in the store. A short name stands for the names that
    /// `registries.conf` gives it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidReference`](super::Error::InvalidReference), [`Error::AmbiguousId`](super::Error::AmbiguousId).
    pub fn find(&self, text: &str) -> Result<Option<FoundImage>> {
        let Some(Resolved { id, name }) = self.resolve(text)? else {
            return Ok(None);
        };
        // The image may have been removed since.
        let image = self.store.image(&id).map(Image::from);
        Ok(image.map(|image| FoundImage { image, name }))
    }

    /// Like [`Self::find`], without the image.
    pub(crate) fn resolve(&self, text: &str) -> Result<Option<Resolved>> {
        if whole_id(text).is_some() {
            return self.store.resolve(text, Vec::new());
        }
        match self.names_for(text) {
            Ok(names) => self.store.resolve(text, names),
            Err(error) => match self.store.resolve(text, Vec::new())? {
                // A short name that stands for nothing is merely not here.
                None if !is_part_of_id(text) && Reference::parse(text).is_err() => Err(error),
                found => Ok(found),
            },
        }
    }

    /// The full names that a text stands for as a name, in the order in which images are looked for.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidReference`](super::Error::InvalidReference) if it stands for none.
    pub(crate) fn names_for(&self, text: &str) -> Result<Vec<Reference>> {
        self.registries.known_candidates(text)
    }
}

impl Image {
    /// All its names: those with a tag, and those with a digest.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidReference`](super::Error::InvalidReference); names of the store are valid.
    pub(crate) fn names(&self) -> Result<Vec<Reference>> {
        let names = self.tags.iter().chain(&self.digests);
        names.map(|name| Reference::parse(name)).collect()
    }
}

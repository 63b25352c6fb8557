//! Which names of an image a signature policy judges when the image is used.
//!
//! The author of the pod chooses the text of a request: it may be an ID, a short name, or the name of another image. It is looked
//! up as everywhere else, and the judged names are names that the image has:
//!
//! | the text | judged |
//! |---|---|
//! | finds the image by one of its names | that name |
//! | finds the image by its ID, or the beginning of that | all its names |
//! | is a name that the image does not have, or finds another image | all its names, and what the text stands for |
//! | is empty or no name | all its names |

use super::policy::JudgedName;
use crate::error::Result;
use crate::image_store::{Image, ImageStore};
use crate::store::whole_id;

/// The names of an image that a policy must all allow.
#[derive(Debug)]
pub(super) struct NamesToJudge {
    pub(super) names: Vec<JudgedName>,
    /// True if all names of the image are among them, because the text is not one of them.
    pub(super) are_all: bool,
}

impl ImageStore {
    /// Returns the names of an image that are judged if a request uses the image as `text`.
    ///
    /// # Errors
    ///
    /// If a name of the image is not valid.
    pub(super) fn names_to_judge(&self, image: &Image, text: &str) -> Result<NamesToJudge> {
        let found = self.find(text).ok().flatten();
        let found = found.filter(|found| found.image.id == image.id);
        if let Some(name) = found.as_ref().and_then(|found| found.name.clone()) {
            return Ok(NamesToJudge {
                names: vec![JudgedName::Name(name)],
                are_all: false,
            });
        }
        let mut names: Vec<_> = image.names()?.into_iter().map(JudgedName::Name).collect();
        if names.is_empty() {
            names.push(JudgedName::Nameless(image.id.clone()));
        }
        if found.is_none() && whole_id(text).is_none() {
            let claimed = self.names_for(text).unwrap_or_default();
            names.extend(claimed.into_iter().map(JudgedName::Name));
        }
        Ok(NamesToJudge {
            names,
            are_all: true,
        })
    }
}

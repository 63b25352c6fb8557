//! Texts that repeat with every pod, such as the names of steps, plugins and spans, kept once.

use std::collections::HashSet;
use std::sync::Arc;

/// Smallest number of texts for which unused ones are searched.
const MIN_SEARCHED_TEXTS: usize = 256;

/// Texts that are kept once.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTexts {
    known: HashSet<Arc<str>>,
    /// The number that was left by the last search.
    used: usize,
}

impl SharedTexts {
    /// Replaces a text by an equal one that is known, or remembers it.
    pub(super) fn share(&mut self, text: &mut Arc<str>) {
        if let Some(known) = self.known.get(text) {
            *text = Arc::clone(known);
            return;
        }
        if self.known.len() >= MIN_SEARCHED_TEXTS.max(2 * self.used) {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.used = self.known.len();
        }
        self.known.insert(Arc::clone(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once() {
        let mut texts = SharedTexts::default();
        let (mut one, mut other): (Arc<str>, Arc<str>) = ("bridge".into(), "bridge".into());
        texts.share(&mut one);
        texts.share(&mut other);
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn texts_that_are_not_used_any_more_are_forgotten() {
        let mut texts = SharedTexts::default();
        let mut used: Arc<str> = "bridge".into();
        texts.share(&mut used);
        for n in 0..100 * MIN_SEARCHED_TEXTS {
            texts.share(&mut n.to_string().into());
        }
        assert!(
            texts.known.len() <= MIN_SEARCHED_TEXTS,
            "{}",
            texts.known.len()
        );
        assert!(texts.known.contains(&used));
    }
}

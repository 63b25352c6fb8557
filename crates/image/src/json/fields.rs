//! Fields in all the forms that programs write, with a bound on their items: three bytes of JSON can become an item many times that size.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// Maximum number of items in one list or map.
pub(crate) const MAX_ITEMS: usize = 10_000;

/// The forms of several texts.
#[derive(Clone, Copy)]
enum TextForm {
    /// A list.
    List,
    /// The words of a command: a list, or one text, which is one word (moby's `strslice.StrSlice`). An empty text is no word.
    Words,
    /// The members of a set. Go serialises one as a map to empty objects; some programs write a list.
    Members,
}

impl<'de> Visitor<'de> for TextForm {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "a list of texts",
            Self::Words => "a list of texts, or a text",
            Self::Members => "a map, or a list of texts",
        })
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Vec<String>, E> {
        match self {
            Self::Words if word.is_empty() => Ok(Vec::new()),
            Self::Words => Ok(vec![word.to_owned()]),
            other => Err(E::invalid_type(Unexpected::Str(word), &other)),
        }
    }

    fn visit_unit<E>(self) -> Result<Vec<String>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = list.next_element()? {
            all.push(item);
            check_length(all.len())?;
        }
        if matches!(self, Self::Members) {
            all.sort_unstable();
            all.dedup();
        }
        Ok(all)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<String>, A::Error> {
        if !matches!(self, Self::Members) {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        let all = BoundedMap::<IgnoredAny>(PhantomData).visit_map(map)?;
        Ok(all.into_keys().collect())
    }
}

/// A map.
struct BoundedMap<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedMap<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry()? {
            all.insert(key, value);
            check_length(all.len())?;
        }
        Ok(all)
    }
}

fn check_length<E: Error>(length: usize) -> Result<(), E> {
    match length {
        0..=MAX_ITEMS => Ok(()),
        _ => Err(E::custom(format!("more than {MAX_ITEMS} items"))),
    }
}

/// A list of texts.
pub(crate) fn bounded_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(TextForm::List)
}

/// A map from texts.
pub(crate) fn bounded_map<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    deserializer.deserialize_any(BoundedMap(PhantomData))
}

/// The words of a command.
pub(crate) fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(TextForm::Words)
}

/// The members of a set.
pub(crate) fn members<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(TextForm::Members)
}

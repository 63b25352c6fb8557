//! Fields of a configuration in all the forms that programs write.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Maximum number of items in one list or map.
pub(super) const MAX_ITEMS: usize = 10_000;

/// A list or map of at most [`MAX_ITEMS`] items: three bytes of JSON can become an item many times that size.
struct Bounded<T>(T);

impl<'de> Deserialize<'de> for Bounded<Vec<String>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Bounded<Vec<String>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                list: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                collect(list).map(Bounded)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<BTreeMap<String, T>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Map<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = Bounded<BTreeMap<String, T>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((key, value)) = map.next_entry()? {
                    all.insert(key, value);
                    check_length(all.len())?;
                }
                Ok(Bounded(all))
            }
        }
        deserializer.deserialize_map(Map(PhantomData))
    }
}

fn collect<'de, A: SeqAccess<'de>>(mut list: A) -> std::result::Result<Vec<String>, A::Error> {
    let mut all = Vec::new();
    while let Some(item) = list.next_element()? {
        all.push(item);
        check_length(all.len())?;
    }
    Ok(all)
}

fn check_length<E: serde::de::Error>(length: usize) -> std::result::Result<(), E> {
    match length {
        0..=MAX_ITEMS => Ok(()),
        _ => Err(E::custom(format!("more than {MAX_ITEMS} items"))),
    }
}

/// A list of texts.
pub(crate) fn bounded_list<'de, D>(deserializer: D) -> std::result::Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    let list = Option::<Bounded<Vec<String>>>::deserialize(deserializer)?;
    Ok(list.map_or_else(Vec::new, |list| list.0))
}

/// Also used for the annotations of a manifest.
pub(crate) fn bounded_map<'de, D, T>(
    deserializer: D,
) -> std::result::Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let map = Option::<Bounded<BTreeMap<String, T>>>::deserialize(deserializer)?;
    Ok(map.map_or_else(BTreeMap::new, |map| map.0))
}

/// The words of a command: a list, or one text, which is one word (moby's `strslice.StrSlice`). An empty text is no word.
pub(super) fn words<'de, D>(deserializer: D) -> std::result::Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Words;
    impl<'de> Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of texts, or a text")
        }

        fn visit_str<E>(self, word: &str) -> std::result::Result<Self::Value, E> {
            Ok(match word {
                "" => Vec::new(),
                word => vec![word.to_owned()],
            })
        }

        fn visit_unit<E>(self) -> std::result::Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(
            self,
            list: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            collect(list)
        }
    }
    deserializer.deserialize_any(Words)
}

/// The members of a set. Go serialises one as a map to empty objects; some programs write a list.
pub(super) fn members<'de, D>(deserializer: D) -> std::result::Result<Vec<String>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map, or a list of texts")
        }

        fn visit_unit<E>(self) -> std::result::Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(
            self,
            list: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let mut all = collect(list)?;
            all.sort_unstable();
            all.dedup();
            Ok(all)
        }

        fn visit_map<A: MapAccess<'de>>(
            self,
            map: A,
        ) -> std::result::Result<Self::Value, A::Error> {
            let deserializer = serde::de::value::MapAccessDeserializer::new(map);
            let all = Bounded::<BTreeMap<String, IgnoredAny>>::deserialize(deserializer)?;
            Ok(all.0.into_keys().collect())
        }
    }
    deserializer.deserialize_any(Members)
}

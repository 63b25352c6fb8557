//! Strict forms of JSON values: what serde would accept in silence is an error in a policy.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A map in which no key is repeated.
#[derive(Debug)]
pub(super) struct StrictMap<V>(BTreeMap<String, V>);

impl<V> Default for StrictMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> Deref for StrictMap<V> {
    type Target = BTreeMap<String, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for StrictMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = StrictMap<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    if all.contains_key(&key) {
                        return Err(A::Error::custom(format!("key {key:?} is repeated")));
                    }
                    all.insert(key, value);
                }
                Ok(StrictMap(all))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// A list that must not be empty: no requirement at all would allow everything.
#[derive(Debug)]
pub(super) struct NonEmpty<T>(Vec<T>);

impl<T> Deref for NonEmpty<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NonEmpty<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::deserialize(deserializer)?;
        if list.is_empty() {
            Err(D::Error::custom("a list of requirements is empty"))
        } else {
            Ok(Self(list))
        }
    }
}

/// Bytes in base64.
#[derive(Debug)]
pub(super) struct Base64(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text);
        bytes.map(Self).map_err(|_| D::Error::custom("not base64"))
    }
}

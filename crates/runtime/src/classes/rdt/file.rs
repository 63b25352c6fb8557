//! The form of a file of RDT classes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::{ClassFileError, read_text, yaml};
use super::SYSTEM;
use super::share::{Bandwidth, CacheShare};

/// A configuration of partitions and classes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RdtFile {
    #[serde(deserialize_with = "or_default")]
    pub(super) options: Options,
    #[serde(deserialize_with = "or_default")]
    partitions: BTreeMap<String, Option<Partition>>,
}

/// Which resources a node may lack.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Options {
    #[serde(deserialize_with = "or_default")]
    l2: Resource,
    #[serde(deserialize_with = "or_default")]
    l3: Resource,
    #[serde(deserialize_with = "or_default")]
    pub(super) mb: Resource,
}

/// A level of caches.
#[derive(Clone, Copy, Debug)]
pub(super) enum CacheLevel {
    L2,
    L3,
}

impl CacheLevel {
    /// The name in resctrl.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }

    fn select<T>(self, l2: T, l3: T) -> T {
        match self {
            Self::L2 => l2,
            Self::L3 => l3,
        }
    }
}

impl Options {
    pub(super) fn cache(&self, level: CacheLevel) -> &Resource {
        level.select(&self.l2, &self.l3)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Resource {
    pub(super) optional: bool,
}

/// A part of the caches that belongs to its classes only, and a part of the bandwidth.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Partition {
    l2_allocation: Option<PerCache<Split>>,
    l3_allocation: Option<PerCache<Split>>,
    pub(super) mb_allocation: Option<PerCache<Amounts>>,
    #[serde(deserialize_with = "or_default")]
    classes: BTreeMap<String, Option<Class>>,
}

/// Shares of its partition.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Class {
    l2_allocation: Option<PerCache<Split>>,
    l3_allocation: Option<PerCache<Split>>,
    pub(super) mb_allocation: Option<PerCache<Amounts>>,
    #[serde(deserialize_with = "or_default")]
    pub(super) kubernetes: Kubernetes,
}

/// By which annotations a class cannot be chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Kubernetes {
    pub(super) deny_pod_annotation: bool,
    pub(super) deny_container_annotation: bool,
}

/// A key without a value is as if it were missing.
fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl RdtFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or anything in it is not valid on any node.
    pub fn read(path: &Path) -> Result<Self, ClassFileError> {
        Self::parse(&read_text(path)?)
    }

    pub(super) fn parse(text: &str) -> Result<Self, ClassFileError> {
        let mut file: Self = yaml::parse(text)?;
        file.check().map_err(ClassFileError::Invalid)?;
        Ok(file)
    }

    /// Classes are unique across partitions, and the classes of a partition share only its part.
    fn check(&mut self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for (partition, parts) in &mut self.partitions {
            let parts = parts.get_or_insert_default();
            // Another name of the same class.
            if let Some(system) = parts.classes.remove("")
                && parts.classes.insert(SYSTEM.to_owned(), system).is_some()
            {
                return Err(format!("class {SYSTEM:?} is defined twice"));
            }
            for (name, class) in parts.classes() {
                if name != SYSTEM && !is_name(name) {
                    return Err(format!("class {name:?} has not the name of a directory"));
                }
                if !names.insert(name) {
                    return Err(format!("class {name:?} is defined in two partitions"));
                }
                if let Some(key) = without_partition(class, parts) {
                    return Err(format!(
                        "class {name:?} has {key}, and partition {partition:?} has none"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The class of a name.
    pub(super) fn class(&self, name: &str) -> Option<&Class> {
        let name = if name.is_empty() { SYSTEM } else { name };
        let mut parts = self.partitions();
        let class = parts.find_map(|(_, parts)| parts.classes().find(|(one, _)| *one == name));
        class.map(|(_, class)| class)
    }

    /// The partitions by name.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (&str, &Partition)> {
        let parts = self.partitions.iter();
        parts.filter_map(|(name, parts)| Some((name.as_str(), parts.as_ref()?)))
    }
}

impl Class {
    /// The shares of a level of caches, if the file has any.
    pub(super) fn cache(&self, level: CacheLevel) -> Option<&PerCache<Split>> {
        level
            .select(&self.l2_allocation, &self.l3_allocation)
            .as_ref()
    }
}

impl Partition {
    /// The shares of a level of caches, if the file has any.
    pub(super) fn cache(&self, level: CacheLevel) -> Option<&PerCache<Split>> {
        level
            .select(&self.l2_allocation, &self.l3_allocation)
            .as_ref()
    }

    /// The classes by name; one without a value has all of the partition.
    pub(super) fn classes(&self) -> impl Iterator<Item = (&str, &Class)> {
        static WHOLE: Class = Class {
            l2_allocation: None,
            l3_allocation: None,
            mb_allocation: None,
            kubernetes: Kubernetes {
                deny_pod_annotation: false,
                deny_container_annotation: false,
            },
        };
        let classes = self.classes.iter();
        classes.map(|(name, class)| (name.as_str(), class.as_ref().unwrap_or(&WHOLE)))
    }
}

/// The key of a resource that a class has a share of, and its partition has not.
fn without_partition(class: &Class, parts: &Partition) -> Option<&'static str> {
    if class.l2_allocation.is_some() && parts.l2_allocation.is_none() {
        Some("l2Allocation")
    } else if class.l3_allocation.is_some() && parts.l3_allocation.is_none() {
        Some("l3Allocation")
    } else if class.mb_allocation.is_some() && parts.mb_allocation.is_none() {
        Some("mbAllocation")
    } else {
        None
    }
}

/// Returns whether a directory of resctrl can have this name.
pub(super) fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() < 256 && !name.contains(['/', '\n'])
}

/// The shares of a cache: with CDP those of code and data may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) unified: CacheShare,
    /// Shares for code and for data.
    pub(super) apart: Option<(CacheShare, CacheShare)>,
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            unified: CacheShare,
            code: Option<CacheShare>,
            data: Option<CacheShare>,
        }
        struct OfSplit;
        impl<'de> Visitor<'de> for OfSplit {
            type Value = Split;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share of a cache, or unified, code and data")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Split, E> {
                let unified = text.parse().map_err(E::custom)?;
                Ok(Split {
                    unified,
                    apart: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Split, A::Error> {
                let fields = Fields::deserialize(MapAccessDeserializer::new(map))?;
                let apart = match (fields.code, fields.data) {
                    (None, None) => None,
                    (Some(code), Some(data)) => Some((code, data)),
                    _ => {
                        return Err(A::Error::custom(
                            "code and data are given together or not at all",
                        ));
                    }
                };
                Ok(Split {
                    unified: fields.unified,
                    apart,
                })
            }
        }
        from.deserialize_any(OfSplit)
    }
}

/// Bandwidth in each unit; the node uses one of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub(super) struct Amounts(pub(super) Vec<Bandwidth>);

/// A value of each cache. The short form of a file is the value of all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PerCache<T> {
    /// Caches without an entry of their own.
    pub(super) others: Option<T>,
    /// By cache ids.
    pub(super) named: Vec<(BTreeSet<u64>, T)>,
}

impl<T> PerCache<T> {
    /// The value of a cache; `None` if the file has none for it, which means all of it.
    pub(super) fn get(&self, id: u64) -> Option<&T> {
        let named = self.named.iter().rev().find(|(ids, _)| ids.contains(&id));
        named.map(|(_, value)| value).or(self.others.as_ref())
    }

    fn all(value: T) -> Self {
        Self {
            others: Some(value),
            named: Vec::new(),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for PerCache<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfCaches<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for OfCaches<T> {
            type Value = PerCache<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or one for each cache id")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PerCache<T>, E> {
                T::deserialize(StrDeserializer::new(text)).map(PerCache::all)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<PerCache<T>, A::Error> {
                T::deserialize(SeqAccessDeserializer::new(list)).map(PerCache::all)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PerCache<T>, A::Error> {
                let (mut others, mut named) = (None, Vec::new());
                while let Some((key, value)) = map.next_entry::<String, T>()? {
                    match key.as_str() {
                        "all" => others = Some(value),
                        ids => named.push((numbers(ids).map_err(A::Error::custom)?, value)),
                    }
                }
                Ok(PerCache { others, named })
            }
        }
        from.deserialize_any(OfCaches(PhantomData))
    }
}

/// Parses a list of numbers and ranges: `0,2,4-7`.
pub(super) fn numbers(text: &str) -> Result<BTreeSet<u64>, String> {
    let mut numbers = BTreeSet::new();
    for range in text.split(',') {
        let ends = match range.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(range).map(|number| (number, number)),
        };
        match ends {
            Some((first, last)) if first <= last => numbers.extend(first..=last),
            _ => return Err(format!("{text:?} is no list of numbers such as 0,2-3")),
        }
    }
    Ok(numbers)
}

/// Parses the id of a cache, or the number of a bit.
fn number(text: &str) -> Option<u64> {
    /// No node has that many caches, and a mask has 64 bits.
    const MAX_CACHE_ID: u64 = 4096;
    text.parse().ok().filter(|number| *number < MAX_CACHE_ID)
}

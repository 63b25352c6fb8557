//! The schemata of each class on a node.
//!
//! Partitions get bits of a cache that no other one has; classes get a part of those of their partition, which they may share.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::file::{Amounts, CacheLevel, Class, PerCache, RdtFile, Split};
use super::node::{Cache, Facts, Memory, Resctrl};
use super::share::{Bandwidth, CacheShare, block};

/// A file on a node.
#[derive(Debug)]
pub struct Plan {
    pub(super) file: RdtFile,
    /// The lines for the file `schemata` of each class. Empty if the hardware can share nothing that is configured.
    pub(super) schemata: BTreeMap<String, String>,
}

/// The resource of a line of schemata.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Unified,
    Code,
    Data,
}

impl Kind {
    /// A cache, with the suffix of its lines.
    fn for_cache(cache: &Cache) -> &'static [(Self, &'static str)] {
        if cache.cdp {
            &[(Self::Code, "CODE"), (Self::Data, "DATA")]
        } else {
            &[(Self::Unified, "")]
        }
    }

    fn share(self, split: &Split) -> CacheShare {
        match (self, split.apart) {
            (Self::Code, Some((code, _))) => code,
            (Self::Data, Some((_, data))) => data,
            _ => split.unified,
        }
    }
}

impl Plan {
    /// Computes the schemata of all classes of a file.
    ///
    /// # Errors
    /// Why the file does not fit the hardware.
    pub(super) fn new(file: RdtFile, resctrl: &Resctrl) -> Result<Self, String> {
        let facts = resctrl.facts()?;
        let mut lines = BTreeMap::new();
        for name in class_names(&file) {
            lines.insert(name.to_owned(), String::new());
        }
        for (level, cache) in [(CacheLevel::L2, &facts.l2), (CacheLevel::L3, &facts.l3)] {
            let name = level.name();
            match cache {
                Some(cache) => {
                    let added = Shared { level, cache }.add(&file, &mut lines);
                    added.map_err(|error| format!("{name}: {error}"))?;
                }
                None => {
                    let optional = file.options.cache(level).optional;
                    needs(&file, optional, name, &|class| class.cache(level).is_some())?;
                }
            }
        }
        add_memory(&facts, &file, &mut lines)?;
        Ok(Self {
            file,
            schemata: lines,
        })
    }

    /// The number of classes.
    pub fn len(&self) -> usize {
        self.schemata.len()
    }

    /// Returns whether there are no classes.
    pub fn is_empty(&self) -> bool {
        self.schemata.is_empty()
    }
}

fn class_names(file: &RdtFile) -> impl Iterator<Item = &str> {
    let parts = file.partitions();
    parts.flat_map(|(_, parts)| parts.classes().map(|(name, _)| name))
}

/// Checks that no class needs a resource that the hardware cannot share.
fn needs(
    file: &RdtFile,
    optional: bool,
    resource: &str,
    asks: &dyn Fn(&Class) -> bool,
) -> Result<(), String> {
    let mut classes = file.partitions().flat_map(|(_, parts)| parts.classes());
    match classes.find(|(_, class)| !optional && asks(class)) {
        Some((name, _)) => Err(format!(
            "class {name:?} has a share of {resource}, which this node cannot share (options.{}.optional allows that)",
            resource.to_lowercase()
        )),
        None => Ok(()),
    }
}

/// The caches of a level.
struct Shared<'a> {
    level: CacheLevel,
    cache: &'a Cache,
}

impl Shared<'_> {
    /// Adds the lines of this level to each class.
    fn add(&self, file: &RdtFile, lines: &mut BTreeMap<String, String>) -> Result<(), String> {
        for (kind, suffix) in Kind::for_cache(self.cache) {
            let mut bases = BTreeMap::new();
            for id in &self.cache.ids {
                let of_cache = self.partitions(file, *id, *kind);
                let of_cache = of_cache.map_err(|error| format!("cache {id}: {error}"))?;
                bases.insert(*id, of_cache);
            }
            for (partition, parts) in file.partitions() {
                for (name, class) in parts.classes() {
                    let mut values = Vec::new();
                    for (id, of_cache) in &bases {
                        let base = of_cache.get(partition);
                        let base = base.copied().unwrap_or(self.cache.mask);
                        let bits = self.bits(class, *id, *kind, base);
                        let bits = bits.map_err(|error| format!("class {name:?}: {error}"))?;
                        values.push(format!("{id}={bits:x}"));
                    }
                    if let Some(lines) = lines.get_mut(name) {
                        // Writing to a String cannot fail.
                        let level = self.level.name();
                        let _ = writeln!(lines, "{level}{suffix}:{}", values.join(";"));
                    }
                }
            }
        }
        Ok(())
    }

    fn bits(&self, class: &Class, id: u64, kind: Kind, base: u64) -> Result<u64, String> {
        match class.cache(self.level).and_then(|shares| shares.get(id)) {
            Some(split) => kind.share(split).mask(base, self.cache.least),
            None => Ok(base),
        }
    }

    /// The bits of each partition in one cache; empty if none has a share of this level.
    fn partitions<'a>(
        &self,
        file: &'a RdtFile,
        id: u64,
        kind: Kind,
    ) -> Result<BTreeMap<&'a str, u64>, String> {
        const WHOLE: CacheShare = CacheShare::Percent(100);
        let mut shares = BTreeMap::new();
        let mut without = None;
        for (name, parts) in file.partitions() {
            match parts.cache(self.level) {
                Some(of) => {
                    let share = of.get(id).map_or(WHOLE, |split| kind.share(split));
                    shares.insert(name, share);
                }
                None => without = Some(name),
            }
        }
        match without {
            Some(name) if !shares.is_empty() => Err(format!(
                "partition {name:?} has no share, and another one has"
            )),
            _ if shares
                .values()
                .all(|share| matches!(share, CacheShare::Bits(_))) =>
            {
                self.absolute(shares)
            }
            _ => self.relative(&shares),
        }
    }

    /// Partitions that name their bits.
    fn absolute<'a>(
        &self,
        shares: BTreeMap<&'a str, CacheShare>,
    ) -> Result<BTreeMap<&'a str, u64>, String> {
        let (mut taken, mut granted) = (0, BTreeMap::new());
        for (name, share) in shares {
            let bits = share.mask(self.cache.mask, self.cache.least);
            let bits = bits.map_err(|error| format!("partition {name:?}: {error}"))?;
            if bits & taken != 0 {
                return Err(format!("partition {name:?} has bits of another one"));
            }
            taken |= bits;
            granted.insert(name, bits);
        }
        Ok(granted)
    }

    /// Partitions that want percentages: small ones are granted first, since they may have to be rounded up to the least number of
    /// bits; the last one gets the rest. Their bits are in the order of the names.
    fn relative<'a>(
        &self,
        shares: &BTreeMap<&'a str, CacheShare>,
    ) -> Result<BTreeMap<&'a str, u64>, String> {
        let mut wanted = Vec::new();
        for (name, share) in shares {
            match share {
                CacheShare::Percent(percent) => wanted.push((*percent, *name)),
                _ => {
                    return Err(format!(
                        "partition {name:?}: if one partition has a percentage, all have one, and no ranges"
                    ));
                }
            }
        }
        wanted.sort_unstable();
        let total: u64 = wanted.iter().map(|(percent, _)| percent).sum();
        if total > 100 {
            return Err(format!("all partitions have {total}%"));
        }
        let bits = total * u64::from(self.cache.mask.count_ones()) / 100;
        let mut left = bits;
        let mut counts = BTreeMap::new();
        for (at, (percent, name)) in wanted.iter().enumerate() {
            let is_last = at + 1 == wanted.len();
            let left_percent = (left * total).checked_div(bits).filter(|left| *left > 0);
            let count = match left_percent {
                Some(of) if !is_last => (percent * left / of).max(self.cache.least).min(left),
                _ => left,
            };
            if count < self.cache.least {
                return Err(format!("no bits are left for partition {name:?}"));
            }
            left -= count;
            counts.insert(*name, count);
        }
        let mut first = 0;
        let granted = counts.into_iter().map(|(name, count)| {
            let bits = block(count) << first;
            first += count;
            (name, bits)
        });
        Ok(granted.collect())
    }
}

fn add_memory(
    facts: &Facts,
    file: &RdtFile,
    lines: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let Some(memory) = &facts.memory else {
        let optional = file.options.mb.optional;
        return needs(file, optional, "MB", &|class| class.mb_allocation.is_some());
    };
    for (partition, parts) in file.partitions() {
        let of = parts.mb_allocation.as_ref();
        let amounts = memory
            .ids
            .iter()
            .map(|id| Ok((*id, amount(memory, of, *id)?)));
        let amounts: Result<Vec<(u64, u64)>, String> = amounts.collect();
        let amounts = amounts.map_err(|error| format!("MB: partition {partition:?}: {error}"))?;
        for (name, class) in parts.classes() {
            let mut values = Vec::new();
            for (id, of_partition) in &amounts {
                let of_class = amount(memory, class.mb_allocation.as_ref(), *id)
                    .map_err(|error| format!("MB: class {name:?}: {error}"))?;
                let value = if memory.mbps {
                    of_class.min(*of_partition)
                } else {
                    let of_partition = (*of_partition).max(memory.least);
                    (of_class * of_partition / 100).max(memory.least)
                };
                values.push(format!("{id}={value}"));
            }
            if let Some(lines) = lines.get_mut(name) {
                // Writing to a String cannot fail.
                let _ = writeln!(lines, "MB:{}", values.join(";"));
            }
        }
    }
    Ok(())
}

/// The amount of bandwidth in the unit of the node; all of it if the file has none for this controller.
fn amount(memory: &Memory, of: Option<&PerCache<Amounts>>, id: u64) -> Result<u64, String> {
    let Some(amounts) = of.and_then(|of| of.get(id)) else {
        return Ok(if memory.mbps { u32::MAX.into() } else { 100 });
    };
    let found = amounts.0.iter().find_map(|amount| match amount {
        Bandwidth::Percent(percent) if !memory.mbps => Some(*percent),
        Bandwidth::Mbps(mbps) if memory.mbps => Some(*mbps),
        _ => None,
    });
    let unit = if memory.mbps { "MBps" } else { "%" };
    found.ok_or_else(|| format!("no value in {unit}, as resctrl is mounted on this node"))
}

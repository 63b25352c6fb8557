//! The caches and the bandwidth that the hardware can share, as resctrl shows them in `info` and in the `schemata` of its root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::RdtError;
use super::share::is_contiguous;

const MOUNTS: &str = "/proc/self/mountinfo";

/// resctrl of a node.
#[derive(Debug)]
pub struct Resctrl {
    /// Where it is mounted.
    pub(super) root: PathBuf,
    /// True if bandwidth is in megabytes per second.
    mbps: bool,
}

/// A cache level.
#[derive(Debug)]
pub(super) struct Cache {
    /// The ids of its caches, ascending.
    pub(super) ids: Vec<u64>,
    /// The bits that can be shared, one block from bit 0.
    pub(super) mask: u64,
    /// The least bits of a share.
    pub(super) least: u64,
    /// True if code and data have shares of their own (CDP).
    pub(super) cdp: bool,
}

/// Memory bandwidth.
#[derive(Debug)]
pub(super) struct Memory {
    /// The ids of its controllers, ascending.
    pub(super) ids: Vec<u64>,
    /// The least percentage.
    pub(super) least: u64,
    /// True if it is in megabytes per second.
    pub(super) mbps: bool,
}

/// The resources that can be shared; `None` if the hardware cannot.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) l2: Option<Cache>,
    pub(super) l3: Option<Cache>,
    pub(super) memory: Option<Memory>,
}

impl Resctrl {
    /// Finds where resctrl is mounted; `None` if it is not.
    ///
    /// # Errors
    /// [`RdtError::Io`].
    pub fn find() -> Result<Option<Self>, RdtError> {
        let table = fs::read_to_string(MOUNTS).map_err(|source| RdtError::Io {
            path: MOUNTS.into(),
            source,
        })?;
        Ok(Self::find_in_table(&table))
    }

    /// From a table of mounts in the form of `/proc/PID/mountinfo`. The last mount covers others.
    pub(super) fn find_in_table(table: &str) -> Option<Self> {
        table.lines().rev().find_map(|line| {
            let (mount, fs) = line.split_once(" - ")?;
            let mut fs = fs.split(' ');
            if fs.next() != Some("resctrl") {
                return None;
            }
            let options = fs.next_back().unwrap_or_default();
            Some(Self {
                root: mount.split(' ').nth(4)?.into(),
                mbps: options.split(',').any(|option| option == "mba_MBps"),
            })
        })
    }

    /// Reads what the hardware can share.
    ///
    /// # Errors
    /// If a file of resctrl is missing or has another form.
    pub(super) fn facts(&self) -> Result<Facts, String> {
        let path = self.root.join("schemata");
        let schemata = text(&path)?.ok_or_else(|| format!("{} is missing", path.display()))?;
        Ok(Facts {
            l2: self.cache("L2", &schemata)?,
            l3: self.cache("L3", &schemata)?,
            memory: self.memory(&schemata)?,
        })
    }

    fn cache(&self, level: &str, schemata: &str) -> Result<Option<Cache>, String> {
        for (suffix, cdp) in [("", false), ("CODE", true)] {
            let info = self.root.join("info").join(format!("{level}{suffix}"));
            let Some(mask) = text(&info.join("cbm_mask"))? else {
                continue;
            };
            let mask = u64::from_str_radix(mask.trim(), 16).ok();
            let mask = mask.filter(|mask| is_contiguous(*mask) && mask & 1 == 1);
            let mask = mask.ok_or_else(|| format!("{}/cbm_mask is no mask", info.display()))?;
            return Ok(Some(Cache {
                ids: ids(schemata, &format!("{level}{suffix}"))?,
                mask,
                least: number(&info.join("min_cbm_bits"))?.max(1),
                cdp,
            }));
        }
        Ok(None)
    }

    fn memory(&self, schemata: &str) -> Result<Option<Memory>, String> {
        let info = self.root.join("info/MB");
        if !info.exists() {
            return Ok(None);
        }
        Ok(Some(Memory {
            ids: ids(schemata, "MB")?,
            least: number(&info.join("min_bandwidth"))?,
            mbps: self.mbps,
        }))
    }

    /// resctrl in a directory, for tests.
    #[cfg(test)]
    pub(super) fn at(root: &Path, mbps: bool) -> Self {
        let root = root.to_owned();
        Self { root, mbps }
    }
}

/// Reads a file; `None` if there is none.
fn text(path: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn number(path: &Path) -> Result<u64, String> {
    let number = text(path)?.and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| format!("{} is no number", path.display()))
}

/// The ids of a resource in schemata: `L3:0=fffff;1=fffff`.
fn ids(schemata: &str, resource: &str) -> Result<Vec<u64>, String> {
    let lines = schemata
        .lines()
        .filter_map(|line| line.trim().split_once(':'));
    let (_, values) = { lines }
        .find(|(name, _)| *name == resource)
        .ok_or_else(|| format!("the schemata of resctrl have no {resource}"))?;
    let ids = values
        .split(';')
        .map(|value| value.split_once('=')?.0.trim().parse().ok());
    let ids: Option<Vec<u64>> = ids.collect();
    let mut ids = ids.ok_or_else(|| format!("the schemata of resctrl: {resource}:{values}"))?;
    ids.sort_unstable();
    Ok(ids)
}

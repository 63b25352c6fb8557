//! Block I/O classes: weights and limits per device (`doc/blockio.md` of goresctrl).

mod devices;
mod quantity;

use std::collections::BTreeMap;
use std::path::Path;

use glob::Pattern;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxBlockIo, LinuxThrottleDevice, LinuxThrottleDeviceBuilder, LinuxWeightDeviceBuilder,
};
use serde::Deserialize;

pub use self::devices::{DeviceError, Number, matching};
use super::{ClassFileError, yaml};

/// The range of weights (OCI runtime specification, "Block IO").
const WEIGHTS: std::ops::RangeInclusive<u64> = 10..=1000;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "Classes")]
    classes: Option<BTreeMap<String, Option<Vec<Entry>>>>,
}

/// Values of several devices, or the weight of all others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase", default)]
#[derive(Default)]
struct Entry {
    devices: Option<Vec<String>>,
    throttle_read_bps: Option<String>,
    throttle_write_bps: Option<String>,
    #[serde(rename = "ThrottleReadIOPS")]
    throttle_read_iops: Option<String>,
    #[serde(rename = "ThrottleWriteIOPS")]
    throttle_write_iops: Option<String>,
    weight: Option<String>,
}

/// All classes of a file.
#[derive(Debug, Default)]
pub struct Classes(BTreeMap<String, Class>);

impl Classes {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or anything in it is not valid.
    pub fn read(path: &Path) -> Result<Self, ClassFileError> {
        Self::parse(&super::read_text(path)?)
    }

    pub(super) fn parse(text: &str) -> Result<Self, ClassFileError> {
        let file: File = yaml::parse(text)?;
        let mut classes = BTreeMap::new();
        for (name, entries) in file.classes.unwrap_or_default() {
            let entries = entries.unwrap_or_default();
            let entries: Result<_, String> = entries.into_iter().map(Values::parse).collect();
            let entries = entries
                .map_err(|error| ClassFileError::Invalid(format!("class {name:?}: {error}")))?;
            classes.insert(name, Class { entries });
        }
        Ok(Self(classes))
    }

    /// The class of a name.
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.0.get(name)
    }

    /// All classes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Class)> {
        self.0.iter().map(|(name, class)| (name.as_str(), class))
    }
}

/// A class.
#[derive(Debug)]
pub struct Class {
    entries: Vec<Values>,
}

/// The valid form of an [`Entry`].
#[derive(Debug)]
struct Values {
    /// Patterns of paths; `None` in an entry for all other devices.
    devices: Option<Vec<Pattern>>,
    weight: Option<u16>,
    /// In the order of [`Limits::rates`].
    rates: [Option<u64>; 4],
}

impl Values {
    fn parse(entry: Entry) -> Result<Self, String> {
        let rates = [
            rate("ThrottleReadBps", entry.throttle_read_bps.as_deref())?,
            rate("ThrottleWriteBps", entry.throttle_write_bps.as_deref())?,
            rate("ThrottleReadIOPS", entry.throttle_read_iops.as_deref())?,
            rate("ThrottleWriteIOPS", entry.throttle_write_iops.as_deref())?,
        ];
        let devices = entry.devices.map(|devices| {
            let patterns = devices.iter().map(|text| devices::pattern(text));
            patterns.collect::<Result<Vec<_>, _>>()
        });
        let devices = devices.transpose()?;
        if devices.is_none() && rates.iter().any(Option::is_some) {
            return Err("limits need Devices".to_owned());
        }
        Ok(Self {
            devices,
            weight: weight(entry.weight.as_deref())?,
            rates,
        })
    }
}

/// Parses a value; an empty text is none.
fn rate(key: &str, text: Option<&str>) -> Result<Option<u64>, String> {
    let text = text.filter(|text| !text.is_empty());
    let parsed = text.map(quantity::parse).transpose();
    parsed.map_err(|error| format!("{key} {:?}: {error}", text.unwrap_or_default()))
}

fn weight(text: Option<&str>) -> Result<Option<u16>, String> {
    match rate("Weight", text)? {
        Some(value) if !WEIGHTS.contains(&value) => {
            let (least, most) = WEIGHTS.into_inner();
            Err(format!("Weight {value} is not between {least} and {most}"))
        }
        value => Ok(value.and_then(|value| value.try_into().ok())),
    }
}

/// A class with the devices of the node.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The form of the OCI runtime specification.
    pub limits: LinuxBlockIo,
    /// Patterns that mean no block device of the node.
    pub unmatched: Vec<String>,
}

/// The values of each device; later entries replace earlier ones.
#[derive(Default)]
struct Limits {
    weight: Option<u16>,
    weights: BTreeMap<Number, u16>,
    /// Bytes read, bytes written, reads and writes, each per second.
    rates: [BTreeMap<Number, u64>; 4],
}

impl Limits {
    fn add(&mut self, device: Number, values: &Values) {
        if let Some(weight) = values.weight {
            self.weights.insert(device, weight);
        }
        for (to, rate) in self.rates.iter_mut().zip(values.rates) {
            match rate {
                // No limit, also with cgroup v2, whose kernel refuses the number.
                Some(0) => drop(to.remove(&device)),
                Some(rate) => drop(to.insert(device, rate)),
                None => {}
            }
        }
    }

    fn into_oci(self) -> Result<LinuxBlockIo, OciSpecError> {
        let weights = self.weights.into_iter().map(|(device, weight)| {
            LinuxWeightDeviceBuilder::default()
                .major(device.major)
                .minor(device.minor)
                .weight(weight)
                .build()
        });
        let weights: Vec<_> = weights.collect::<Result<_, _>>()?;
        let [read_bytes, write_bytes, reads, writes] = self.rates;
        let mut limits = LinuxBlockIo::default();
        limits
            .set_weight(self.weight)
            .set_weight_device(Some(weights).filter(|weights| !weights.is_empty()))
            .set_throttle_read_bps_device(throttles(read_bytes)?)
            .set_throttle_write_bps_device(throttles(write_bytes)?)
            .set_throttle_read_iops_device(throttles(reads)?)
            .set_throttle_write_iops_device(throttles(writes)?);
        Ok(limits)
    }
}

fn throttles(
    rates: BTreeMap<Number, u64>,
) -> Result<Option<Vec<LinuxThrottleDevice>>, OciSpecError> {
    let devices = rates.into_iter().map(|(device, rate)| {
        LinuxThrottleDeviceBuilder::default()
            .major(device.major)
            .minor(device.minor)
            .rate(rate)
            .build()
    });
    let devices: Vec<_> = devices.collect::<Result<_, _>>()?;
    Ok(Some(devices).filter(|devices| !devices.is_empty()))
}

impl Class {
    /// Finds the devices of the class with a function that returns those of a pattern.
    ///
    /// # Errors
    /// The errors of the function.
    pub fn resolve(
        &self,
        matching: &dyn Fn(&Pattern) -> Result<Vec<Number>, DeviceError>,
    ) -> Result<Resolved, DeviceError> {
        let mut limits = Limits::default();
        let mut unmatched = Vec::new();
        for values in &self.entries {
            let Some(patterns) = &values.devices else {
                limits.weight = values.weight.or(limits.weight);
                continue;
            };
            for pattern in patterns {
                let devices = matching(pattern)?;
                if devices.is_empty() {
                    unmatched.push(pattern.as_str().to_owned());
                }
                for device in devices {
                    limits.add(device, values);
                }
            }
        }
        Ok(Resolved {
            limits: limits.into_oci()?,
            unmatched,
        })
    }
}

#[cfg(test)]
mod tests;

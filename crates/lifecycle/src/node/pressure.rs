//! Pressure stall information (`/proc/pressure`, kernel documentation `accounting/psi`): the time during which some task
//! waited for CPU, memory or I/O. A kernel may lack it, or have it off.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use criscope_cri::units::times::{UnixMicros, micros_of};

/// The resources, in the order of [`PressureSample::some`].
const RESOURCES: [&str; 3] = ["cpu", "memory", "io"];

/// Share of the time from which waiting counts as contention.
const MIN_CONTENTION_SHARE: f64 = 0.25;

/// Totals of pressure since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PressureSample {
    /// Time of the sample.
    pub(crate) at: UnixMicros,
    /// Microseconds in which some task waited, by resource.
    pub(crate) some: [u64; 3],
}

impl PressureSample {
    /// Reads the files in `dir`, `/proc/pressure` outside of tests; `None` if the kernel has none.
    pub(crate) fn read(dir: &Path, at: UnixMicros) -> Option<Self> {
        let mut some = [0; 3];
        for (total, resource) in some.iter_mut().zip(RESOURCES) {
            *total = parse(&fs::read_to_string(dir.join(resource)).ok()?)?;
        }
        Some(Self { at, some })
    }
}

/// The total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line.split(' ').find_map(|word| word.strip_prefix("total="));
    total?.parse().ok()
}

/// Pressure between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PressureSpan {
    first: PressureSample,
    last: PressureSample,
}

/// The resource that tasks of the node waited for most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PressureShare {
    /// `cpu`, `memory` or `io`.
    pub(crate) resource: &'static str,
    /// The part of the time during which some task waited, up to 1.
    pub(crate) share: f64,
    /// The time between the two samples.
    pub(crate) over: Duration,
}

impl PressureSpan {
    /// Pressure from this sample on.
    pub(super) fn new(first: PressureSample) -> Self {
        Self { first, last: first }
    }

    /// Adds the time up to this sample.
    pub(crate) fn extend(&mut self, sample: PressureSample) {
        self.last = sample;
    }

    /// The resource that tasks waited for most, if the share is high. Samples across a boot or a clock change yield none.
    pub(crate) fn short_of(&self) -> Option<PressureShare> {
        let over = self.last.at.since(self.first.at);
        let micros = Some(micros_of(over)).filter(|micros| *micros > 0)?;
        let shares = (0..RESOURCES.len()).filter_map(|i| {
            let waited = self.last.some[i].checked_sub(self.first.some[i])?;
            Some(PressureShare {
                resource: RESOURCES[i],
                share: (waited as f64 / micros as f64).min(1.0),
                over,
            })
        });
        let most = shares.max_by(|a, b| a.share.total_cmp(&b.share))?;
        (most.share >= MIN_CONTENTION_SHARE).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, some: [u64; 3]) -> PressureSample {
        let at = UnixMicros::new(at);
        PressureSample { at, some }
    }

    #[test]
    fn the_scarcest_resource_is_named_with_its_share() {
        let mut span = PressureSpan::new(sample(1_000_000, [5, 5, 1000]));
        assert_eq!(span.short_of(), None);
        span.extend(sample(41_000_000, [4_000_005, 5, 24_801_000]));
        let short = span.short_of().expect("io");
        assert_eq!(
            (short.resource, short.over),
            ("io", Duration::from_secs(40))
        );
        assert!((short.share - 0.62).abs() < 1e-9, "{short:?}");
        span.extend(sample(41_000_000, [5, 5, 2_000_000]));
        assert_eq!(span.short_of(), None, "a little is no contention");
        span.extend(sample(900_000, [0, 0, 0]));
        assert_eq!(span.short_of(), None, "the clock was set back");
    }

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |name: &str, total: u64| {
            let text = format!(
                "some avg10=1.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
            );
            fs::write(dir.path().join(name), text).expect("written");
        };
        put("cpu", 11);
        put("memory", 22);
        assert_eq!(
            PressureSample::read(dir.path(), UnixMicros::new(7)),
            None,
            "one is missing"
        );
        put("io", 33);
        assert_eq!(
            PressureSample::read(dir.path(), UnixMicros::new(7)),
            Some(sample(7, [11, 22, 33]))
        );
        fs::write(dir.path().join("io"), "off").expect("written");
        assert_eq!(PressureSample::read(dir.path(), UnixMicros::new(7)), None);
    }
}

//! The level of x86-64 that the CPU of this machine has.

use std::fs::File;
use std::io::{BufRead as _, BufReader};

/// The features that each level adds (System V ABI, "Micro-Architecture Levels"), by their names in `/proc/cpuinfo`. The kernel leaves
/// out the features that programs may not use.
const LEVELS: [(&str, &[&str]); 3] = [
    (
        "v2",
        &[
            "cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3",
        ],
    ),
    (
        "v3",
        &[
            "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave",
        ],
    ),
    (
        "v4",
        &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
    ),
];

/// The features come within this many lines.
const MAX_LINES: usize = 64;

/// The variant of `amd64` that stands for the highest level; empty for the first one, or if it is not known.
pub(super) fn amd64_variant() -> &'static str {
    let Ok(file) = File::open("/proc/cpuinfo") else {
        return "";
    };
    let mut lines = BufReader::new(file).lines().take(MAX_LINES);
    let flags = lines.find_map(|line| {
        let line = line.ok()?;
        let (name, flags) = line.split_once(':')?;
        (name.trim() == "flags").then(|| flags.to_owned())
    });
    flags.map_or("", |flags| level(&flags))
}

fn level(flags: &str) -> &'static str {
    let all: Vec<_> = flags.split_whitespace().collect();
    let reached = LEVELS
        .iter()
        .take_while(|(_, features)| features.iter().all(|feature| all.contains(feature)));
    reached.last().map_or("", |(level, _)| level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_needs_all_features_of_those_below() {
        let of = |upto: usize| {
            let features = LEVELS[..upto].iter().flat_map(|(_, features)| *features);
            features.copied().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(level("fpu sse sse2"), "");
        assert_eq!(level(&of(1)), "v2");
        assert_eq!(level(&of(2)), "v3");
        assert_eq!(level(&of(3)), "v4");
        assert_eq!(level(&of(3).replace("ssse3", "")), "");
        assert_eq!(level(&of(3).replace("bmi2", "")), "v2");
    }

    /// The compiler's own detection is asked, which reads the CPU and not the kernel's file.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_cpu_has_what_the_level_promises() {
        let has_v2 = is_x86_feature_detected!("sse4.2")
            && is_x86_feature_detected!("ssse3")
            && is_x86_feature_detected!("popcnt");
        let has_v3 = has_v2
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("fma");
        let variant = amd64_variant();
        assert!(variant.is_empty() || has_v2, "{variant}");
        assert!(!matches!(variant, "v3" | "v4") || has_v3, "{variant}");
    }
}

//! Platforms: selects the image of an index for this machine.

mod cpu;

use std::fmt;

use serde::Deserialize;

/// Operating system, architecture and variant, named as in Go (`GOOS`, `GOARCH`) and in images. All may be empty if an index or a
/// configuration declares them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct Platform {
    /// `linux`, except in tests.
    pub os: String,
    /// Such as `amd64`, `arm64`.
    pub architecture: String,
    /// Such as `v8`; for `amd64` the highest level of x86-64 that the CPU has. Empty if there is none.
    pub variant: String,
}

/// True if an image runs on a platform, by its declaration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fit {
    /// The image runs.
    Runs,
    /// Nothing is declared.
    Silent,
    /// The image is for another platform.
    Other,
}

/// How well an image fits: larger is better.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Rank {
    /// The image is for an older architecture, which most of these CPUs run as well.
    Older(Level),
    /// The image is for a later minor version of the architecture: it may use instructions that this CPU does not have.
    Later(std::cmp::Reverse<Level>),
    /// The image is for this CPU or an earlier version of it.
    Own(Level),
}

/// A version of an architecture, such as 8 and 2 for `v8.2`.
type Level = (u32, u32);

impl Platform {
    /// The platform of this machine.
    #[must_use]
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", cpu::amd64_variant()),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" => ("ppc64le", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        }
    }

    /// Returns whether it names no machine.
    pub(super) fn is_silent(&self) -> bool {
        let is_ours = self.os.is_empty() || self.os.eq_ignore_ascii_case("linux");
        self.architecture.is_empty() && is_ours
    }

    /// Returns how well an image fits; `None` if it does not run here. The order is that of containerd's package `platforms`, with the
    /// levels of x86-64: the best that the CPU can run, down to the first version, then the 32-bit architecture.
    pub(super) fn rank(&self, offered: &Self) -> Option<Rank> {
        // Like in containerd, an empty name is that of this system.
        if !offered.os.is_empty() && !offered.os.eq_ignore_ascii_case(&self.os) {
            return None;
        }
        let (architecture, theirs) = normal(&offered.architecture, &offered.variant);
        let (own, ours) = normal(&self.architecture, &self.variant);
        if architecture == own {
            if theirs <= ours {
                return Some(Rank::Own(theirs));
            }
            return (theirs.0 == ours.0).then_some(Rank::Later(std::cmp::Reverse(theirs)));
        }
        let runs_older = matches!(
            (own.as_str(), architecture.as_str()),
            ("amd64", "386") | ("arm64", "arm")
        );
        let is_old_enough = architecture == "386" || theirs.0 <= ours.0;
        (runs_older && is_old_enough).then_some(Rank::Older(theirs))
    }

    /// Returns whether an image runs here.
    pub(super) fn fit(&self, offered: &Self) -> Fit {
        match self.rank(offered) {
            _ if offered.is_silent() => Fit::Silent,
            Some(_) => Fit::Runs,
            None => Fit::Other,
        }
    }
}

/// Normalises the alternative names found in real images, and reads the variant.
fn normal(architecture: &str, variant: &str) -> (String, Level) {
    let architecture = architecture.to_ascii_lowercase();
    let (architecture, usual) = match architecture.as_str() {
        "x86_64" | "x86-64" | "amd64" => ("amd64", (1, 0)),
        "aarch64" | "arm64" => ("arm64", (8, 0)),
        "i386" | "i486" | "i586" | "i686" | "x86" | "386" => ("386", (1, 0)),
        "armel" => ("arm", (6, 0)),
        "armhf" | "arm" => ("arm", (7, 0)),
        other => (other, (1, 0)),
    };
    (architecture.to_owned(), level(variant).unwrap_or(usual))
}

/// The version in a variant such as `v8`, `8` or `v8.2`.
fn level(variant: &str) -> Option<Level> {
    let number = variant.strip_prefix(['v', 'V']).unwrap_or(variant);
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    Some((major.parse().ok()?, minor.parse().unwrap_or(0)))
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", cut(&self.os), cut(&self.architecture))?;
        if self.variant.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", cut(&self.variant))
    }
}

/// Truncates untrusted text.
fn cut(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Platform {
            os: next(),
            architecture: next(),
            variant: next(),
        }
    }

    /// Each platform runs these, the best first, and nothing else of all.
    #[test]
    fn variants_are_ordered_and_what_does_not_run_is_left_out() {
        let all = [
            "linux/amd64/v4",
            "linux/amd64/v3",
            "linux/amd64/v2",
            "linux/amd64/v1",
            "linux/386",
            "linux/arm64/v9",
            "linux/arm64/v8.2",
            "linux/arm64/v8",
            "linux/arm/v8",
            "linux/arm/v7",
            "linux/arm/v6",
            "linux/arm/v5",
            "windows/amd64",
            "unknown/unknown",
            "linux/riscv64",
        ];
        for (own, runs) in [
            ("linux/amd64/v4", &all[..5]),
            ("linux/amd64/v3", &all[1..5]),
            ("linux/amd64/v2", &all[2..5]),
            ("linux/amd64", &all[3..5]),
            (
                "linux/arm64/v8",
                &[
                    "linux/arm64/v8",
                    "linux/arm64/v8.2",
                    "linux/arm/v8",
                    "linux/arm/v7",
                    "linux/arm/v6",
                    "linux/arm/v5",
                ],
            ),
            ("linux/arm/v7", &all[9..12]),
            ("linux/arm/v6", &all[10..12]),
            ("linux/386", &all[4..5]),
            ("linux/riscv64", &all[14..]),
        ] {
            let own = platform(own);
            let mut found: Vec<_> = all
                .iter()
                .filter_map(|text| Some((own.rank(&platform(text))?, *text)))
                .collect();
            found.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
            let found: Vec<_> = found.into_iter().map(|(_, text)| text).collect();
            assert_eq!(found, runs, "{own}");
        }
    }

    #[test]
    fn other_names_mean_the_same() {
        for (own, other) in [
            ("linux/amd64", "Linux/x86_64"),
            ("linux/amd64", "linux/X86-64/v1"),
            ("linux/amd64", "/amd64"),
            ("linux/386", "linux/i386"),
            ("linux/arm64/v8", "linux/aarch64"),
            ("linux/arm64/v8", "linux/arm64/8"),
            ("linux/arm/v7", "linux/armhf"),
            ("linux/arm/v6", "linux/armel"),
            ("linux/arm/v7", "linux/arm"),
        ] {
            assert_eq!(platform(own).fit(&platform(other)), Fit::Runs, "{other}");
        }
        let own = platform("linux/arm/v6");
        assert_eq!(own.fit(&platform("linux/armhf")), Fit::Other);
    }

    #[test]
    fn a_platform_without_an_architecture_tells_nothing() {
        let own = platform("linux/amd64");
        for silent in ["", "linux", "linux/"] {
            assert_eq!(own.fit(&platform(silent)), Fit::Silent, "{silent}");
        }
        assert_eq!(own.fit(&platform("windows/")), Fit::Other);
        assert_eq!(own.fit(&platform("linux/s390x")), Fit::Other);
    }
}

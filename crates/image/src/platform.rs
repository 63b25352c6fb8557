//! Platforms: selects the image of an index for this machine.

use std::fmt;

use serde::Deserialize;

/// Operating system, architecture and variant, named as in Go (`GOOS`, `GOARCH`) and in images.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Platform {
    /// `linux`, except in tests.
    pub os: String,
    /// Such as `amd64`, `arm64`.
    pub architecture: String,
    /// Such as `v8`; empty if there is none.
    pub variant: String,
}

impl Platform {
    /// The platform of this machine.
    #[must_use]
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
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

    /// Returns how well an image fits: `None` if it does not run here; larger is better.
    pub(super) fn fits(&self, offered: &DeclaredPlatform) -> Option<u32> {
        let architecture = normal(&offered.architecture);
        if !offered.os.eq_ignore_ascii_case(&self.os) || architecture != self.architecture {
            return None;
        }
        let ours = level(&self.architecture, &self.variant);
        let theirs = level(&self.architecture, &offered.variant);
        (theirs <= ours).then_some(theirs)
    }
}

/// Normalises alternative names found in real images.
fn normal(architecture: &str) -> &str {
    match architecture {
        "x86_64" | "x86-64" => "amd64",
        "aarch64" => "arm64",
        "i386" => "386",
        "armhf" | "armel" => "arm",
        other => other,
    }
}

/// The number of a variant: 8 for `v8`. The default is `v8` for arm64, `v7` for arm, and `v1` for others.
fn level(architecture: &str, variant: &str) -> u32 {
    let number = variant.strip_prefix('v').unwrap_or(variant);
    let major = number.split('.').next().unwrap_or_default();
    major.parse().unwrap_or(match architecture {
        "arm64" => 8,
        "arm" => 7,
        _ => 1,
    })
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_platform(f, &self.os, &self.architecture, &self.variant)
    }
}

/// The platform that an index or a configuration declares for an image. Fields may be empty.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct DeclaredPlatform {
    /// Such as `linux`.
    #[serde(default)]
    pub os: String,
    /// Such as `amd64`.
    #[serde(default)]
    pub architecture: String,
    /// Such as `v8`.
    #[serde(default)]
    pub variant: String,
}

impl fmt::Display for DeclaredPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_platform(f, &self.os, &self.architecture, &self.variant)
    }
}

fn write_platform(f: &mut fmt::Formatter<'_>, os: &str, arch: &str, variant: &str) -> fmt::Result {
    // Untrusted text is truncated.
    let cut = |text: &str| text.chars().take(32).collect::<String>();
    write!(f, "{}/{}", cut(os), cut(arch))?;
    if variant.is_empty() {
        return Ok(());
    }
    write!(f, "/{}", cut(variant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(architecture: &str, variant: &str) -> Platform {
        Platform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        }
    }

    fn offered(architecture: &str, variant: &str) -> DeclaredPlatform {
        DeclaredPlatform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.to_owned(),
        }
    }

    #[test]
    fn the_best_fitting_variant_is_chosen() {
        let arm = platform("arm", "v7");
        assert_eq!(arm.fits(&offered("arm", "v7")), Some(7));
        assert_eq!(arm.fits(&offered("arm", "v6")), Some(6));
        assert_eq!(arm.fits(&offered("arm", "v8")), None);
        assert_eq!(
            platform("arm64", "v8").fits(&offered("aarch64", "")),
            Some(8)
        );
        assert_eq!(platform("amd64", "").fits(&offered("amd64", "v3")), None);
        assert_eq!(platform("amd64", "").fits(&offered("amd64", "")), Some(1));
        assert_eq!(platform("amd64", "").fits(&offered("unknown", "")), None);
        let windows = DeclaredPlatform {
            os: "windows".to_owned(),
            ..offered("amd64", "")
        };
        assert_eq!(platform("amd64", "").fits(&windows), None);
    }
}

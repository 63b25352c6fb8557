//! Name and version of an OCI runtime, and known facts about versions.

/// The first version of runc that runs `createContainer` hooks without the environment of the container.
const FIXED_RUNC: (u32, u32) = (1, 3);

/// The output of `--version`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    /// `runc` or `crun`, as the program prints it.
    pub name: String,
    /// The version.
    pub version: String,
    /// The version of the OCI specification that it implements.
    pub spec: String,
}

impl Version {
    /// From the output of `--version`; `None` if it has no line with a version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut version = Self::default();
        for line in text.lines() {
            if let Some((name, number)) = line.split_once(" version ") {
                version.name = name.trim().to_owned();
                version.version = number.trim().to_owned();
            } else if let Some(spec) = line.strip_prefix("spec: ") {
                version.spec = spec.trim().to_owned();
            }
        }
        (!version.name.is_empty()).then_some(version)
    }

    /// Returns whether a `createContainer` hook without an environment of its own gets one that the image chooses.
    ///
    /// runc sets the variables of the container in its own process before it runs these hooks, until commit 06f1e076 of 1.3; the
    /// candidates of that version still set `PATH`. crun passes its own environment since 1.4.5, and none before. A suffix of a
    /// distribution, such as `1.3.0-0ubuntu2`, makes no candidate.
    #[must_use]
    pub fn gives_hooks_the_image_environment(&self) -> bool {
        if self.name != "runc" {
            return false;
        }
        let mut numbers = self.version.trim_start_matches('v').split('.');
        let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
            return false;
        };
        let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else {
            return false;
        };
        let is_candidate = numbers.next().is_some_and(|rest| rest.starts_with("0-rc"));
        (major, minor) < FIXED_RUNC || ((major, minor) == FIXED_RUNC && is_candidate)
    }
}

impl Version {
    /// The first version without the known faults by which a container reaches the node, if this one has some. Distributions mend
    /// faults without a new number.
    #[must_use]
    pub fn mended_in(&self) -> Option<&'static str> {
        let number = self.number()?;
        let mended = match self.name.as_str() {
            // CVE-2025-31133, CVE-2025-52565, CVE-2025-52881, CVE-2026-41579
            "runc" if number < (1, 3, 6) => "1.3.6",
            "runc" if ((1, 4, 0)..(1, 4, 3)).contains(&number) => "1.4.3",
            // CVE-2026-47766
            "crun" if number < (1, 30, 0) => "1.30",
            // CVE-2025-62161, CVE-2025-62596
            "youki" if number < (0, 5, 7) => "0.5.7",
            _ => return None,
        };
        Some(mended)
    }

    /// Major, minor and patch, without the suffixes of candidates and distributions.
    fn number(&self) -> Option<(u32, u32, u32)> {
        let parts = self.version.trim_start_matches('v').splitn(3, '.');
        let mut numbers = parts.chain(["0", "0"]).map(leading_number);
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    }
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_faults_are_told_from_mended_ones() {
        for (text, mended) in [
            ("runc version 1.1.12-0ubuntu3", Some("1.3.6")),
            ("runc version 1.1.5+ds1", Some("1.3.6")),
            ("runc version 1.3.5", Some("1.3.6")),
            ("runc version 1.3.6", None),
            ("runc version 1.4.0-rc.1", Some("1.4.3")),
            ("runc version 1.4.2", Some("1.4.3")),
            ("runc version 1.4.3", None),
            ("runc version 2.0", None),
            ("crun version 1.8.1", Some("1.30")),
            ("crun version 1.29.9", Some("1.30")),
            ("crun version 1.30", None),
            ("youki version 0.5.6", Some("0.5.7")),
            ("youki version 0.5.7", None),
            ("runc version unknown", None),
            ("other version 0.1.0", None),
        ] {
            let version = Version::parse(text).expect("a version");
            assert_eq!(version.mended_in(), mended, "{text}");
        }
    }

    #[test]
    fn runc_before_1_3_gives_hooks_the_environment_of_the_image() {
        for (text, expected) in [
            (
                "runc version 1.1.5+ds1\ncommit: 1.1.5\nspec: 1.0.2-dev",
                true,
            ),
            ("runc version 1.0.0-rc95", true),
            ("runc version 1.2.6-0ubuntu1~24.04", true),
            ("runc version 1.3.0-rc.2", true),
            ("runc version 1.3.0", false),
            ("runc version 1.3.0-0ubuntu2", false),
            ("runc version 1.4.0-rc.1", false),
            ("runc version 2.0.0", false),
            ("runc version unknown", false),
            ("crun version 1.8.1", false),
            ("youki version 0.5.3", false),
        ] {
            let version = Version::parse(text).expect("a version");
            assert_eq!(
                version.gives_hooks_the_image_environment(),
                expected,
                "{text}"
            );
        }
        assert_eq!(Version::parse("spec: 1.0.2"), None);
    }
}

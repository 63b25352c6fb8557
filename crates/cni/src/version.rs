//! Versions of the specification.

use std::fmt;

/// A supported version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u16, u16, u16);

impl Version {
    /// The first version with lists of plugins.
    pub const V0_3_0: Self = Self(0, 3, 0);
    /// Same as 0.3.0.
    pub const V0_3_1: Self = Self(0, 3, 1);
    /// Adds CHECK.
    pub const V0_4_0: Self = Self(0, 4, 0);
    /// Addresses no longer name their family.
    pub const V1_0_0: Self = Self(1, 0, 0);
    /// Adds STATUS and GC.
    pub const V1_1_0: Self = Self(1, 1, 0);
    /// All supported versions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// Parses a version; `None` if it is not supported.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.to_string() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

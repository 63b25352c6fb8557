//! Patterns of image names.

/// An image name in which a leading or trailing `*` matches any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePattern(String);

impl ImagePattern {
    /// Returns `None` if `*` is elsewhere or alone, or if there is a space.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('*').unwrap_or(text);
        let inner = inner.strip_suffix('*').unwrap_or(inner);
        let right = !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_graphic() && b != b'*');
        right.then(|| Self(text.to_owned()))
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether it matches a full image name such as `docker.io/library/busybox:1.36`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match (self.0.strip_prefix('*'), self.0.strip_suffix('*')) {
            (None, None) => self.0 == name,
            (Some(end), None) => name.ends_with(end),
            (None, Some(start)) => name.starts_with(start),
            (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        }
    }
}

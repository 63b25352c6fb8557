//! The choice of an image from an index.

use super::descriptor::Descriptor;
use super::error::{Error, Result};
use super::platform::Platform;

/// Maximum number of manifests that are read to find one for this platform, where indexes do not tell.
pub(super) const MAX_UNDECLARED: usize = 16;

/// The entries of an index for a platform.
#[derive(Debug)]
pub(super) enum Choice<'a> {
    /// The best of the ones that name their platform.
    Declared(&'a Descriptor),
    /// None of those fits. These do not name a platform, and are to be tried in this order.
    Undeclared(Vec<&'a Descriptor>),
}

/// Chooses the best manifest for a platform.
pub(super) fn choose<'a>(
    what: &str,
    manifests: &'a [Descriptor],
    platform: &Platform,
) -> Result<Choice<'a>> {
    let fitting = manifests.iter().filter_map(|descriptor| {
        let offered = descriptor.platform.as_ref()?;
        Some((platform.rank(offered)?, descriptor))
    });
    // The first one if several fit equally well.
    if let Some((_, best)) = fitting.rev().max_by_key(|(rank, _)| *rank) {
        return Ok(Choice::Declared(best));
    }
    let silent: Vec<_> = manifests
        .iter()
        .filter(|descriptor| {
            let platform = descriptor.platform.as_ref();
            platform.is_none_or(Platform::is_silent)
        })
        .take(MAX_UNDECLARED)
        .collect();
    if silent.is_empty() {
        return Err(no_platform(what, manifests, platform));
    }
    Ok(Choice::Undeclared(silent))
}

/// The error of an index without an image for a platform.
pub(super) fn no_platform(what: &str, manifests: &[Descriptor], platform: &Platform) -> Error {
    Error::NoPlatform {
        what: what.to_owned(),
        wanted: platform.to_string(),
        offered: offers(manifests),
    }
}

fn offers(manifests: &[Descriptor]) -> String {
    let all = manifests.iter().filter_map(|d| d.platform.as_ref());
    let some: Vec<_> = all.take(20).map(Platform::to_string).collect();
    if some.is_empty() {
        "nothing".to_owned()
    } else {
        some.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::manifest::Manifest;

    fn descriptor(kind: &str, platform: Option<&str>) -> serde_json::Value {
        let mut value = serde_json::json!({
            "mediaType": kind, "digest": Digest::sha256(kind.as_bytes()), "size": 3,
        });
        if let Some((os, arch)) = platform.and_then(|p| p.split_once('/')) {
            value["platform"] = serde_json::json!({"os": os, "architecture": arch});
        }
        value
    }

    fn parse(value: &serde_json::Value, kind: &str) -> Result<Manifest> {
        Manifest::parse(value.to_string().as_bytes(), kind)
    }

    #[test]
    fn the_best_platform_is_chosen() {
        let index = serde_json::json!({"manifests": [
            descriptor("a", Some("unknown/unknown")),
            descriptor("b", Some("linux/amd64")),
            descriptor("c", Some("linux/arm64")),
            descriptor("d", Some("linux/amd64")),
        ]});
        let Ok(Manifest::Index(manifests)) = parse(&index, "") else {
            panic!("not an index");
        };
        let mut platform = Platform::host();
        platform.architecture = "amd64".to_owned();
        platform.variant.clear();
        let chosen = choose("x", &manifests, &platform).expect("one");
        assert!(matches!(chosen, Choice::Declared(one) if one.media_type == "b"));
        platform.architecture = "s390x".to_owned();
        let error = choose("x", &manifests, &platform)
            .expect_err("none")
            .to_string();
        assert!(
            error.contains("linux/s390x") && error.contains("linux/arm64"),
            "{error}"
        );
    }

    #[test]
    fn the_best_variant_is_chosen_and_entries_without_a_platform_come_last() {
        let entry = |kind: &str, variant: &str| {
            let mut entry = descriptor(kind, Some("linux/amd64"));
            entry["platform"]["variant"] = variant.into();
            entry
        };
        let mut silent = descriptor("silent", None);
        silent["platform"] = serde_json::json!({"os": "", "architecture": ""});
        let index = serde_json::json!({"manifests": [
            silent, descriptor("null", None), entry("1", "v1"), entry("4", "v4"), entry("2", "v2"), entry("3", "v3"),
        ]});
        let Ok(Manifest::Index(all)) = parse(&index, "") else {
            panic!("not an index");
        };
        let mut platform = Platform::host();
        platform.architecture = "amd64".to_owned();
        for (variant, best) in [("", "1"), ("v2", "2"), ("v3", "3"), ("v4", "4")] {
            platform.variant = variant.to_owned();
            let chosen = choose("x", &all, &platform).expect("one");
            assert!(matches!(chosen, Choice::Declared(one) if one.media_type == best));
        }
        platform.architecture = "s390x".to_owned();
        let Ok(Choice::Undeclared(tried)) = choose("x", &all, &platform) else {
            panic!("those without a platform");
        };
        let tried: Vec<_> = tried.iter().map(|one| one.media_type.as_str()).collect();
        assert_eq!(tried, ["silent", "null"]);
    }
}

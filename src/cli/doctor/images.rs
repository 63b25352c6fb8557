//! Checks the configuration files for images: registries, credentials, verification and key providers.

use super::super::output::ReportFinding;
use crate::app::unusable_image_files;
use crate::config::Runtime;

const TOPIC: &str = "images";

/// No finding if all can be used, or none is configured.
pub(super) fn check(runtime: &Runtime) -> Vec<ReportFinding> {
    let unusable = unusable_image_files(runtime).into_iter();
    let findings =
        unusable.map(|file| ReportFinding::fail(TOPIC, file.reason).hint(file.affected.words()));
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::output::FindingLevel;
    use super::*;
    use crate::config::{Config, FlagOverrides};

    #[test]
    fn files_that_refuse_images_are_failures() {
        let dir = tempfile::tempdir().expect("made");
        let missing = dir.path().join("verifiers");
        let findings = |more: &str| {
            let text = format!("[runtime.images]\n{more}");
            let config = Config::from_text("test", &text, &FlagOverrides::default());
            check(&config.expect("valid").runtime.expect("built in"))
        };
        assert!(findings("").is_empty());
        let found = findings(&format!("verifier_bin_dir = {missing:?}\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, FindingLevel::Fail);
        std::fs::create_dir(&missing).expect("made");
        let providers = dir.path().join("providers.json");
        std::fs::write(&providers, r#"{"key-providers": {}}"#).expect("written");
        let found = findings(&format!("keyprovider_config = {providers:?}\n"));
        assert!(found.is_empty());
    }
}

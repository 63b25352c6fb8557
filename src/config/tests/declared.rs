//! Requirements on every declaration.

use std::collections::HashSet;

use super::*;

#[test]
fn every_key_stands_in_a_described_section_once() {
    let schema = SettingsSchema::from_section::<Config>();
    let mut seen = HashSet::new();
    for key in &schema.keys {
        let mut sections = schema.sections.iter();
        let section = sections.find(|(path, _)| *path == key.section);
        let (_, about) = section.expect(key.section);
        assert!(about.ends_with('.'), "{}", key.section);
        assert!(seen.insert((key.section, key.name)), "{}", key.name);
        assert!(key.help.ends_with('.'), "{}", key.name);
    }
    for (section, _) in &schema.sections {
        assert!(
            schema.keys.iter().any(|key| key.section == *section),
            "{section}"
        );
    }
}

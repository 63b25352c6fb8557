//! Every declared setting is read by the product: one that nothing reads would be accepted and have no effect.

use std::collections::BTreeSet;

use criscope::config::Config;
use criscope::settings::SettingsSchema;
use proc_macro2::TokenTree;

use super::source::{product_files, test_modules};

#[test]
fn every_setting_is_read() {
    let files = product_files();
    let tests = test_modules(&files);
    let mut read = BTreeSet::new();
    for file in &files {
        file.walk_product(&tests, &mut |tokens| {
            if let [TokenTree::Punct(dot), TokenTree::Ident(field), ..] = tokens
                && dot.as_char() == '.'
            {
                read.insert(field.to_string());
            }
        });
    }
    let schema = SettingsSchema::from_section::<Config>();
    assert!(schema.keys.len() > 100, "{}", schema.keys.len());
    for key in &schema.keys {
        let (section, name) = (key.section, key.name);
        assert!(read.contains(name), "nothing reads {section}.{name}");
    }
}

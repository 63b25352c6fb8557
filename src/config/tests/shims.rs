//! Handlers of shims of containerd.

use super::*;

#[test]
fn a_runtime_type_is_checked_and_needed_by_its_options() {
    let text = "[runtime]\ndefault_handler = \"a\"\n[runtime.handlers.a]\nconfig_path = \"/c\"\n\
        [runtime.handlers.d]\nruntime_type = \"kata\"\n";
    let found = errors(text);
    let expected = [
        "c.toml:4: runtime.handlers.a.config_path: has no effect without runtime_type",
        "c.toml:6: runtime.handlers.d.runtime_type: neither a type",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

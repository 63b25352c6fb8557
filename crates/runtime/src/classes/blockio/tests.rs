//! Block I/O classes.

use std::fs;
use std::os::unix::fs::symlink;

use oci_spec::runtime::LinuxBlockIo;
use serde_json::{Value, json};

use super::*;

/// The devices of a node, by pattern.
fn devices(pattern: &Pattern) -> Result<Vec<Number>, DeviceError> {
    let number = |major, minor| Number { major, minor };
    Ok(match pattern.as_str() {
        "/dev/sd[a-z]" => vec![number(8, 0), number(8, 16)],
        "/dev/disk/by-id/*SSD*" => vec![number(8, 16)],
        _ => Vec::new(),
    })
}

fn resolved(text: &str) -> Resolved {
    let classes = Classes::parse(text).expect("valid");
    let class = classes.get("a").expect("defined");
    class.resolve(&devices).expect("resolved")
}

fn json(limits: &LinuxBlockIo) -> Value {
    serde_json::to_value(limits).expect("JSON")
}

#[test]
fn later_entries_replace_what_they_say_of_a_device() {
    let text = "
Classes:
  a:
  - Weight: 80
  - Devices: ['/dev/sd[a-z]', /dev/nvme*]
    ThrottleReadBps: 50M
    ThrottleWriteBps: 10M
    ThrottleReadIOPS: 10k
    ThrottleWriteIOPS: 5k
    Weight: 50
  - Devices:
    - /dev/disk/by-id/*SSD*
    ThrottleReadBps: 64Mi
    ThrottleWriteBps: 0
    Weight: \"60\"
  - Weight: 90
  b:
";
    let found = resolved(text);
    let expected = json!({
        "weight": 90,
        "weightDevice": [
            {"major": 8, "minor": 0, "weight": 50},
            {"major": 8, "minor": 16, "weight": 60},
        ],
        "throttleReadBpsDevice": [
            {"major": 8, "minor": 0, "rate": 50_000_000},
            {"major": 8, "minor": 16, "rate": 64 << 20},
        ],
        // 0 is no limit.
        "throttleWriteBpsDevice": [{"major": 8, "minor": 0, "rate": 10_000_000}],
        "throttleReadIOPSDevice": [
            {"major": 8, "minor": 0, "rate": 10_000},
            {"major": 8, "minor": 16, "rate": 10_000},
        ],
        "throttleWriteIOPSDevice": [
            {"major": 8, "minor": 0, "rate": 5_000},
            {"major": 8, "minor": 16, "rate": 5_000},
        ],
    });
    assert_eq!(json(&found.limits), expected);
    assert_eq!(found.unmatched, ["/dev/nvme*"]);
}

#[test]
fn an_empty_class_has_no_limits() {
    for text in [
        "Classes: {a: }",
        "Classes: {a: []}",
        "Classes: {a: [{Devices: [], Weight: 10}]}",
    ] {
        assert_eq!(json(&resolved(text).limits), json!({}), "{text}");
    }
    for text in ["", "---\n", "Classes:\n", "{}"] {
        let classes = Classes::parse(text).expect("valid");
        assert!(classes.get("a").is_none() && classes.iter().next().is_none());
    }
}

#[test]
fn broken_files_are_refused_with_the_reason() {
    for (text, reason) in [
        ("Classes: [", "at line 1"),
        ("Class: {}", "unknown field `Class`"),
        (
            "Classes: {a: [{ThrottleReadBPS: 1}]}",
            "unknown field `ThrottleReadBPS`",
        ),
        ("Classes: {a: [], a: []}", "duplicate"),
        (
            "Classes: {a: [{Weight: 9}]}",
            "class \"a\": Weight 9 is not between 10 and 1000",
        ),
        (
            "Classes: {a: [{Weight: 1001}]}",
            "class \"a\": Weight 1001 ",
        ),
        (
            "Classes: {a: [{ThrottleReadBps: 1}]}",
            "class \"a\": limits need Devices",
        ),
        (
            "Classes: {a: [{Devices: [/x], ThrottleWriteIOPS: 5K}]}",
            "ThrottleWriteIOPS \"5K\": not a quantity",
        ),
        (
            "Classes: {a: [{Devices: [/x], ThrottleWriteBps: -1}]}",
            "ThrottleWriteBps \"-1\": ",
        ),
        (
            "Classes: {a: [{Devices: [sda]}]}",
            "device \"sda\" is no absolute path",
        ),
        (
            "Classes: {a: [{Devices: [\"/dev/[a\"]}]}",
            "device \"/dev/[a\": ",
        ),
    ] {
        let error = Classes::parse(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn patterns_mean_block_devices_only() {
    let dir = tempfile::tempdir().expect("made");
    fs::write(dir.path().join("file"), "").expect("written");
    symlink("/dev/null", dir.path().join("null")).expect("linked");
    symlink("/no/such/device", dir.path().join("gone")).expect("linked");
    let pattern = |text: &str| {
        let text = format!("{}/{text}", dir.path().display());
        devices::pattern(&text).expect("a pattern")
    };
    for text in [
        "*", "[!x]*", "[^x]ile", "nul?", "gone", "missing", "no/dir/*",
    ] {
        let found = matching(&pattern(text)).expect(text);
        assert!(found.is_empty(), "{text}");
    }
    for text in ["file", "null"] {
        let error = matching(&pattern(text)).expect_err(text);
        assert!(matches!(error, DeviceError::Other(_)), "{error}");
    }
    assert!(
        devices::pattern("/dev/[^a]")
            .expect("a pattern")
            .matches("/dev/b")
    );
}

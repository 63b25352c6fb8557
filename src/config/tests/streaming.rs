//! `[streaming]`

use std::time::Duration;

use super::*;

#[test]
fn streaming_has_the_defaults_of_its_peers() {
    let streaming = Config::builtin().streaming;
    assert_eq!(streaming.listen.to_string(), "127.0.0.1:0");
    assert_eq!(streaming.idle_timeout, Duration::from_secs(4 * 3600));
    assert_eq!(streaming.creation_timeout, Duration::from_secs(30));
    assert_eq!(streaming.max_sessions, 1000);
    assert!(streaming.observe && !streaming.audit_commands);
    assert_eq!((streaming.tls(), streaming.base_url), (None, None));
}

#[test]
fn streaming_is_read_and_shown() {
    let text = "[streaming]\nlisten = \"[::1]:10010\"\nbase_url = \"https://node:1/\"\ntls_cert = \"/c\"\ntls_key = \"/k\"\nidle_timeout = \"1m\"\ncreation_timeout = \"5s\"\nmax_sessions = 7\naudit_commands = true\nobserve = false\n";
    let config = load(text).expect("valid");
    let expected = crate::config::StreamingSettings {
        listen: "[::1]:10010".parse().expect("an address"),
        base_url: Some("https://node:1".into()),
        tls_cert: Some("/c".into()),
        tls_key: Some("/k".into()),
        idle_timeout: Duration::from_secs(60),
        creation_timeout: Duration::from_secs(5),
        max_sessions: 7,
        audit_commands: true,
        observe: false,
    };
    assert_eq!(config.streaming, expected);
    let settings = config.settings();
    assert_eq!(settings["streaming.tls_key"].value, "\"/k\"");
    assert_eq!(settings["streaming.max_sessions"].value, "7");
}

#[test]
fn a_certificate_needs_its_key() {
    for (one, other) in [("tls_cert", "tls_key"), ("tls_key", "tls_cert")] {
        let text = format!("[streaming]\n{one} = \"/x\"\n");
        let expected = format!("c.toml:2: streaming.{one}: has no effect without {other}");
        assert_eq!(errors(&text), [expected]);
    }
}

//! Reloading a configuration.

use std::fs;

use super::*;

#[test]
fn a_reload_tells_what_takes_effect_and_what_waits() {
    let old = load(ONE).expect("valid");
    assert_eq!(reload_diff(&old, &old), ChangedSettings::default());
    let new = load(&format!(
        "[server]\nmode = \"0600\"\nowner = \"0:0\"\n\
         {ONE}[backends.b]\nkind = \"upstream\"\nendpoint = \"/run/b.sock\"\n\
         [routing]\ndefault = \"containerd\"\n\
         [telemetry]\nlog.level = \"debug\"\nsampling.polls = 0.1\nsampling.methods = [{{ method = \"Exec\", slow = \"5s\" }}]\nlog.format = \"text\"\n"
    ))
    .expect("valid");
    let diff = reload_diff(&old, &new);
    assert_eq!(
        diff.reloadable,
        [
            "telemetry.log.level",
            "telemetry.sampling.methods[0].method",
            "telemetry.sampling.methods[0].slow",
            "telemetry.sampling.polls"
        ]
    );
    let waits = [
        "backends.b.answer_runtime_config",
        "backends.b.endpoint",
        "backends.b.join_retries",
        "backends.b.kind",
        "server.mode",
        "server.owner",
        "telemetry.log.format",
    ];
    assert_eq!(diff.restart, waits);

    let after = old.with_reloadable_of(&new);
    let diff = reload_diff(&after, &new);
    assert!(diff.reloadable.is_empty(), "{diff:?}");
    assert_eq!(diff.restart, waits);
    assert!(reload_diff(&old, &after).restart.is_empty());

    // A removed key is pending as well.
    assert_eq!(reload_diff(&new, &old).restart, waits);
}

#[test]
fn a_reload_reads_the_same_file_with_the_same_flags() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("c.toml");
    fs::write(&path, ONE).expect("written");
    let flags = FlagOverrides {
        admin: Some("off".to_owned()),
        ..FlagOverrides::default()
    };
    let loaded = Config::load(Some(&path), &flags).expect("valid");
    fs::write(&path, format!("{ONE}[telemetry.log]\nlevel = \"debug\"\n")).expect("written");
    let again = loaded.reload().expect("valid");
    assert_eq!(again.config.telemetry.log.level, "debug");
    assert_eq!(again.config.admin.listen, None);

    fs::write(&path, format!("[server]\nmode = 1\n{ONE}")).expect("written");
    let error = loaded.reload().expect_err("refused").to_string();
    assert!(
        error.starts_with(&format!("{}:2: server.mode: ", path.display())),
        "{error}"
    );
}

#[test]
fn the_fingerprint_follows_every_value() {
    let one = load(ONE).expect("valid");
    let print = one.fingerprint();
    assert_eq!(print.len(), 12);
    assert!(print.bytes().all(|b| b.is_ascii_hexdigit()), "{print}");
    // Writing a default explicitly changes nothing.
    let same = load(&format!("{ONE}[telemetry.log]\nlevel = \"info\"\n")).expect("valid");
    assert_eq!(same.fingerprint(), print);
    let other = load(&format!("{ONE}[telemetry.log]\nlevel = \"debug\"\n")).expect("valid");
    assert_ne!(other.fingerprint(), print);
}

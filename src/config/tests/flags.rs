//! Flags that replace keys of a file.

use super::*;

#[test]
fn flags_win_over_the_file() {
    let text = format!("[server]\nlisten = \"/run/file.sock\"\n[admin]\nlisten = \"off\"\n{ONE}");
    let flags = FlagOverrides {
        listen: Some("unix:///run/flag.sock".to_owned()),
        upstream: None,
        admin: Some("127.0.0.1:1".to_owned()),
    };
    let config = load_with(&text, &flags).expect("valid");
    assert_eq!(config.server.listen, Path::new("/run/flag.sock"));
    assert_eq!(
        config.admin.listen.map(|a| a.to_string()).as_deref(),
        Some("127.0.0.1:1")
    );
    let file = load(&text).expect("valid");
    assert_eq!(file.server.listen, Path::new("/run/file.sock"));
    assert_eq!(file.admin.listen, None);
}

#[test]
fn bad_flags_are_named() {
    let flags = FlagOverrides {
        listen: Some("here".to_owned()),
        upstream: Some("https://x".to_owned()),
        admin: Some("9478".to_owned()),
    };
    assert_eq!(
        load_with("[server]\nx = 1\n", &flags)
            .expect_err("refused")
            .lines()
            .collect::<Vec<_>>(),
        [
            "c.toml:2: server.x: unknown key; known here: drain_timeout, handover_timeout, listen, max_message_bytes, mode, owner",
            "--listen: \"here\" is not an absolute path; write unix:///path",
            "--admin: \"9478\" is not an IP address with a port; write one such as \"127.0.0.1:9478\", or \"off\"",
            "--upstream: \"https://x\" is not a unix socket; write unix:///path",
        ]
    );
}

#[test]
fn the_upstream_flag_replaces_its_backend_or_adds_one() {
    let flag = upstream("/run/flag.sock");
    let endpoint = |config: &Config, name: &str| {
        let backend = config.backends.iter().find(|backend| backend.name == name);
        backend.and_then(|backend| backend.endpoint.as_deref().map(Path::to_owned))
    };

    let config = load_with("[server]\n", &flag).expect("the flag is the only backend");
    assert_eq!(config.routing.default, "upstream");

    let named = ONE.replace("containerd", "upstream");
    let config = load_with(&named, &flag).expect("replaced");
    assert_eq!(config.backends.len(), 1);
    assert_eq!(endpoint(&config, "upstream"), Some("/run/flag.sock".into()));

    let text = format!("{ONE}[routing]\ndefault = \"upstream\"\nimages = \"containerd\"\n");
    let config = load_with(&text, &flag).expect("the file says which is the default");
    assert_eq!(config.routing.default, "upstream");
    assert_eq!(config.routing.images, "containerd");
    assert_eq!(config.backends.len(), 2);

    assert_eq!(
        load_with(ONE, &flag),
        Err("--upstream: adds the backend \"upstream\" to \"containerd\", and routing.default does not say which one is the default; set routing.default, or change the endpoint in the file instead".to_owned())
    );
}

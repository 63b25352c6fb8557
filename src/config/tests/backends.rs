//! `[backends]` and `[routing]`: rules about several of them

use super::*;

#[test]
fn several_backends_need_a_default() {
    let two = format!(
        "{ONE}[backends.crio]\nkind = \"upstream\"\nendpoint = \"/run/crio.sock\"\n[routing]\n"
    );
    assert_eq!(
        errors(&two),
        [
            "c.toml:7: routing.default: missing; name the default among the backends: \"containerd\", \"crio\""
        ]
    );
    let config = load(&format!("{two}default = \"crio\"\n")).expect("valid");
    assert_eq!(config.routing.default, "crio");
    assert_eq!(config.routing.images, "crio");
}

/// A pod mounts the directory of the socket for agents, with all that is in it.
#[test]
fn the_socket_for_agents_has_a_directory_of_its_own() {
    let with = |socket: &str| format!("{ONE}[admin]\nagent_socket = \"{socket}\"\n");
    for (socket, key) in [
        ("/run/criscope/agent.sock", "server.listen"),
        ("/var/run/criscope/./agent.sock", "server.listen"),
        ("unix:///run/agent.sock", "server.listen"),
    ] {
        let problem = format!(
            "c.toml:5: admin.agent_socket: {key} is in its directory, which pods mount; give it a directory of its own"
        );
        assert_eq!(errors(&with(socket)), [problem], "{socket}");
    }
    let other = format!(
        "{}socket = \"/run/other/below/admin.sock\"\n",
        with("/run/other/agent.sock")
    );
    assert!(errors(&other)[0].contains("admin.socket is in its directory"));
    load(&with("/run/criscope/agent/criscope.sock")).expect("valid");
}

#[test]
fn a_backend_is_neither_criscope_itself_nor_another() {
    assert_eq!(
        errors(&format!(
            "{ONE}[backends.self]\nkind = \"upstream\"\nendpoint = \"/var/run/criscope/criscope.sock\"\n\
             [backends.same]\nkind = \"upstream\"\nendpoint = \"unix:///run//c.sock\"\n[routing]\ndefault = \"same\"\n"
        )),
        [
            "c.toml:6: backends.self.endpoint: /var/run/criscope/criscope.sock is the socket criscope itself listens on; calls would loop",
            "c.toml:9: backends.same.endpoint: /run//c.sock is already the endpoint of backend \"containerd\"; every pod would be listed twice",
        ]
    );
    let mut flags = upstream("/run/a.sock");
    flags.listen = Some("unix:///run/a.sock".to_owned());
    assert_eq!(
        Config::load(None, &flags).expect_err("refused").to_string(),
        "--upstream: /run/a.sock is the socket criscope itself listens on; calls would loop"
    );
}

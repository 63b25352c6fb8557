//! Complete files: their values, and every error message.

mod backends;
mod declared;
mod drop_ins;
mod flags;
mod otlp;
mod programs;
mod reload;
mod runtime;
mod shims;
mod streaming;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::cri::Method;
use crate::runtime::sections::ProgramError;
use crate::settings::{FileOwner, SeccompProfile, SettingsSchema};
use crate::telemetry::settings::{
    LogFormat, MethodSampling, OnUnsampledParent, OtlpCompression, OtlpProtocol,
};

fn load(text: &str) -> Result<Config, String> {
    load_with(text, &FlagOverrides::default())
}

fn load_with(text: &str, flags: &FlagOverrides) -> Result<Config, String> {
    Config::from_text("c.toml", text, flags).map_err(|errors| errors.to_string())
}

fn errors(text: &str) -> Vec<String> {
    let errors = load(text).expect_err("has errors");
    errors.lines().map(str::to_owned).collect()
}

fn upstream(uri: &str) -> FlagOverrides {
    FlagOverrides {
        upstream: Some(uri.to_owned()),
        ..FlagOverrides::default()
    }
}

const ONE: &str = "[backends.containerd]\nkind = \"upstream\"\nendpoint = \"unix:///run/c.sock\"\n";

#[test]
fn one_upstream_is_enough() {
    let loaded = Config::load(None, &upstream("unix:///run/c.sock")).expect("enough");
    assert_eq!(
        loaded.config,
        Config::with_upstream(PathBuf::from("/run/c.sock"))
    );
    assert_eq!(loaded.path, None);
}

#[test]
fn the_defaults_are_those_of_the_plan() {
    let config = Config::with_upstream(PathBuf::from("/run/c.sock"));
    assert_eq!(
        config.server.listen,
        Path::new("/run/criscope/criscope.sock")
    );
    assert_eq!(config.server.mode, 0o660);
    assert_eq!(config.server.max_message_bytes, 16 * 1024 * 1024);
    assert_eq!(
        config.admin.listen.map(|a| a.to_string()).as_deref(),
        Some("127.0.0.1:9478")
    );
    assert_eq!(config.telemetry.sampling.slow, Duration::from_secs(1));
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load(Some(Path::new("/no/such.toml")), &FlagOverrides::default())
        .expect_err("refused");
    assert_eq!(
        error.to_string(),
        "/no/such.toml: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn every_key_is_read() {
    let config = load(
        r#"
[server]
listen = "/run/x.sock"
mode = "0600"
owner = "1:2"
max_message_bytes = "32MiB"
drain_timeout = "5s"
handover_timeout = "5m"
[admin]
listen = "off"
socket = "unix:///run/x.adm"
agent_socket = "unix:///run/agent/x.sock"
agent_group = 7
allowed_hosts = ["Node1.example.com"]
trace_url = "https://t/{trace_id}"
debug = false
[metrics]
listen = "0.0.0.0:1"
web_config = "/web.yaml"
[backends.two]
kind = "upstream"
endpoint = "unix:///run/two.sock"
[backends.one]
kind = "upstream"
endpoint = "unix:///run/one.sock"
[routing]
default = "one"
images = "two"
[[routing.rules]]
runtime_handler = "kata"
backend = "two"
[[routing.rules]]
runtime_handler = ""
backend = "one"
[telemetry]
log = { format = "text", level = "info,criscope::rpc=debug" }
otlp.endpoint = "https://collector.example/otlp"
otlp.traces_endpoint = "https://collector.example/spans"
otlp.protocol = "http/protobuf"
otlp.timeout = "2s"
otlp.compression = "gzip"
otlp.metrics = true
otlp.metrics_endpoint = "https://collector.example/numbers"
otlp.metrics_interval = "5s"
otlp.logs = true
otlp.logs_endpoint = "https://collector.example/lines"
otlp.tls_ca = "/ca.crt"
otlp.tls_cert = "/client.crt"
otlp.tls_key = "/client.key"
otlp.headers_file = "/headers"
[telemetry.sampling]
mutating = 0.5
polls = 1
slow = "250ms"
episodes = 0.25
on_unsampled_parent = "respect"
[[telemetry.sampling.methods]]
method = "PullImage"
ratio = 0.5
slow = "30s"
[[telemetry.sampling.methods]]
method = "Version"
[telemetry.identity]
sandboxes = 10
containers = 20
[story]
state_dir = "/var/lib/x"
kubelet_dir = "/var/lib/k"
episodes = 99
quiet = "3s"
slow = "4s"
give_up = "1m"
[sampler]
enabled = false
after = "1s"
period = "50ms"
[containerd]
pull_progress = false
events = false
[receiver]
listen = "127.0.0.1:4319"
allowed_uids = [65534]
[recorder]
calls = 5
polls = 6
dumps = 0
max_dump_bytes = "1MiB"
[faults]
enabled = true
"#,
    )
    .expect("valid");
    let backend = |name: &str| {
        let endpoint = PathBuf::from(format!("/run/{name}.sock"));
        BackendSettings::upstream(name, endpoint)
    };
    let rule = |runtime_handler: &str, backend: &str| RoutingRuleSettings {
        runtime_handler: runtime_handler.to_owned(),
        backend: backend.to_owned(),
    };
    let expected = Config {
        server: ServerSettings {
            listen: PathBuf::from("/run/x.sock"),
            mode: 0o600,
            owner: Some(FileOwner { uid: 1, gid: 2 }),
            max_message_bytes: 32 << 20,
            drain_timeout: Duration::from_secs(5),
            handover_timeout: Duration::from_secs(300),
        },
        admin: AdminSettings {
            listen: None,
            debug: false,
            trace_url: Some("https://t/{trace_id}".to_owned()),
            socket: Some(PathBuf::from("/run/x.adm")),
            agent_socket: Some(PathBuf::from("/run/agent/x.sock")),
            agent_group: 7,
            allowed_hosts: vec!["node1.example.com".to_owned()],
        },
        metrics: MetricsEndpointSettings {
            listen: Some(SocketAddr::from(([0, 0, 0, 0], 1))),
            web_config: PathBuf::from("/web.yaml"),
        },
        // In the order of the file, not alphabetical.
        backends: vec![backend("two"), backend("one")],
        routing: RoutingSettings {
            default: "one".to_owned(),
            images: "two".to_owned(),
            rules: vec![rule("kata", "two"), rule("", "one")],
        },
        telemetry: TelemetrySettings {
            log: LogSettings {
                format: LogFormat::Text,
                level: "info,criscope::rpc=debug".to_owned(),
            },
            otlp: OtlpSettings {
                endpoint: Some("https://collector.example/otlp".to_owned()),
                traces_endpoint: Some("https://collector.example/spans".to_owned()),
                metrics: true,
                metrics_endpoint: Some("https://collector.example/numbers".to_owned()),
                metrics_interval: Duration::from_secs(5),
                logs: true,
                logs_endpoint: Some("https://collector.example/lines".to_owned()),
                protocol: OtlpProtocol::HttpProtobuf,
                timeout: Duration::from_secs(2),
                compression: OtlpCompression::Gzip,
                tls_ca: Some(PathBuf::from("/ca.crt")),
                tls_cert: Some(PathBuf::from("/client.crt")),
                tls_key: Some(PathBuf::from("/client.key")),
                headers_file: Some(PathBuf::from("/headers")),
            },
            sampling: SamplingSettings {
                mutating: 0.5,
                polls: 1.0,
                slow: Duration::from_millis(250),
                episodes: 0.25,
                on_unsampled_parent: OnUnsampledParent::Respect,
                methods: vec![
                    MethodSampling {
                        method: Method::PullImage,
                        ratio: Some(0.5),
                        slow: Some(Duration::from_secs(30)),
                    },
                    MethodSampling {
                        method: Method::Version,
                        ratio: None,
                        slow: None,
                    },
                ],
            },
            identity: IdentityLimits {
                sandboxes: 10,
                containers: 20,
            },
        },
        story: StorySettings {
            state_dir: PathBuf::from("/var/lib/x"),
            kubelet_dir: PathBuf::from("/var/lib/k"),
            episodes: 99,
            quiet: Duration::from_secs(3),
            slow: Duration::from_secs(4),
            give_up: Duration::from_secs(60),
        },
        sampler: SamplerSettings {
            enabled: false,
            after: Duration::from_secs(1),
            period: Duration::from_millis(50),
        },
        containerd: ContainerdSettings {
            pull_progress: false,
            events: false,
        },
        receiver: ReceiverSettings {
            listen: Some(([127, 0, 0, 1], 4319).into()),
            allowed_uids: vec![65534],
        },
        recorder: RecorderSettings {
            calls: 5,
            polls: 6,
            dumps: 0,
            max_dump_bytes: 1 << 20,
        },
        faults: FaultSettings { enabled: true },
        streaming: Config::builtin().streaming,
        runtime: None,
    };
    assert_eq!(config, expected);
}

#[test]
fn everything_wrong_is_reported_at_once_in_the_order_of_the_file() {
    let text = r#"sever = 1
[server]
mdoe = "0660"
mode = 660
listen = "tcp://0.0.0.0:1"
drain_timeout = 10
max_message_bytes = "16MB"
owner = "nobody"
[admin]
listen = "localhost:9478"
debug = "yes"
[backends.Bad_Name]
kind = "upstream"
endpoint = "unix:///run/b.sock"
[backends.c]
kind = "upstraem"
endpoint = "relative.sock"
[backends.d]
[backends.e]
kind = "builtin"
knd = 1
[routing]
default = "cc"
rule = []
[[routing.rules]]
runtime_handler = "kata"
backend = "none-of-these"
[[routing.rules]]
runtime_handler = "kata"
backend = "c"
[[routing.rules]]
backends = "c"
[telemetry]
level = "info"
[telemetry.log]
level = "inof"
format = "xml"
[telemetry.otlp]
endpoint = "https://a:4317/v1/traces"
timeout = "1ms"
[telemetry.sampling]
polls = 1.5
slow = "soon"
on_unsampled_parent = "root"
[[telemetry.sampling.methods]]
method = "PullImages"
ratio = 2
[[telemetry.sampling.methods]]
method = "Exec"
[[telemetry.sampling.methods]]
method = "Exec"
slow = 5
[[telemetry.sampling.methods]]
slo = "1s"
[telemetry.identity]
sandboxes = 0
containers = "many"
"#;
    let expected = [
        "c.toml:1: sever: unknown key; did you mean `server`?",
        "c.toml:3: server.mdoe: unknown key; did you mean `mode`?",
        "c.toml:4: server.mode: 660 is not a mode; write the permission bits in octal as a string, such as \"0660\"",
        "c.toml:5: server.listen: \"tcp://0.0.0.0:1\" is not a unix socket; write unix:///path",
        "c.toml:6: server.drain_timeout: 10 has no unit; write \"10s\" or \"10ms\"",
        "c.toml:7: server.max_message_bytes: \"16MB\" is ambiguous; write \"16MiB\"",
        "c.toml:8: server.owner: \"nobody\" is not an owner; write \"uid:gid\" or \"user:group\"",
        "c.toml:10: admin.listen: \"localhost:9478\" is not an IP address with a port; write one such as \"127.0.0.1:9478\", or \"off\"",
        "c.toml:11: admin.debug: expected true or false, found \"yes\"",
        "c.toml:12: backends.Bad_Name: \"Bad_Name\" is not a name for a backend; use 1 to 32 of a-z, 0-9 and `-`, and begin with a letter or digit",
        "c.toml:16: backends.c.kind: expected \"upstream\" or \"builtin\", found \"upstraem\"",
        "c.toml:17: backends.c.endpoint: \"relative.sock\" is not an absolute path; write unix:///path",
        "c.toml:18: backends.d.kind: missing; write \"upstream\" or \"builtin\"",
        "c.toml:18: backends.d.endpoint: missing; write a unix socket such as \"unix:///run/name.sock\"",
        "c.toml:21: backends.e.knd: unknown key; did you mean `kind`?",
        "c.toml:23: routing.default: there is no backend \"cc\"; did you mean `c`?",
        "c.toml:24: routing.rule: unknown key; did you mean `rules`?",
        "c.toml:27: routing.rules[0].backend: there is no backend \"none-of-these\"; known here: Bad_Name, c, d, e",
        "c.toml:29: routing.rules[1].runtime_handler: the handler \"kata\" already has a rule on line 26; the first match wins",
        "c.toml:31: routing.rules[2].runtime_handler: missing; write the handler of a RuntimeClass such as \"kata\"; \"\" for pods that name none",
        "c.toml:31: routing.rules[2].backend: missing; write the name of a backend",
        "c.toml:32: routing.rules[2].backends: unknown key; did you mean `backend`?",
        "c.toml:34: telemetry.level: unknown key; did you mean `log.level`?",
        "c.toml:36: telemetry.log.level: \"inof\" is not a log level: did you mean `info`?",
        "c.toml:37: telemetry.log.format: expected \"auto\" or \"json\" or \"text\", found \"xml\"",
        "c.toml:39: telemetry.otlp.endpoint: OTLP over gRPC has no path; set protocol = \"http/protobuf\"",
        "c.toml:40: telemetry.otlp.timeout: \"1ms\" is out of range; it must be from 100ms to 5m",
        "c.toml:42: telemetry.sampling.polls: expected a number from 0.0 to 1.0, found 1.5",
        "c.toml:43: telemetry.sampling.slow: expected a duration such as \"500ms\", \"10s\", \"2m\" or \"1h\", found \"soon\"",
        "c.toml:44: telemetry.sampling.on_unsampled_parent: expected \"episode\" or \"respect\", found \"root\"",
        "c.toml:46: telemetry.sampling.methods[0].method: there is no call \"PullImages\" in the CRI; did you mean `PullImage`?",
        "c.toml:47: telemetry.sampling.methods[0].ratio: expected a number from 0.0 to 1.0, found 2",
        "c.toml:51: telemetry.sampling.methods[2].method: Exec already has a row on line 49",
        "c.toml:52: telemetry.sampling.methods[2].slow: 5 has no unit; write \"5s\" or \"5ms\"",
        "c.toml:53: telemetry.sampling.methods[3].method: missing; write the name of a call such as \"PullImage\"",
        "c.toml:54: telemetry.sampling.methods[3].slo: unknown key; did you mean `slow`?",
        "c.toml:56: telemetry.identity.sandboxes: 0 is out of range; it must be from 1 to 1048576",
        "c.toml:57: telemetry.identity.containers: expected a whole number, found \"many\"",
    ];
    let found = errors(text);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn tables_and_values_in_each_others_place_are_told() {
    assert_eq!(
        errors(&format!(
            "server = 1\nbackends.x = \"unix:///a\"\nrouting.rules = {{}}\n{ONE}"
        )),
        [
            "c.toml:1: server: expected a table, found a number",
            "c.toml:2: backends.x: expected a table, found a string",
            "c.toml:3: routing.rules: expected an array of tables, found a table",
            "c.toml:3: routing.default: missing; name the default among the backends: \"x\", \"containerd\"",
        ]
    );
    assert_eq!(
        errors(&format!(
            "server = 1\n[routing]\nrules = [1, {{}}]\n[admin.listen]\n{ONE}"
        )),
        [
            "c.toml:1: server: expected a table, found a number",
            "c.toml:3: routing.rules[0]: expected a table, found a number",
            "c.toml:3: routing.rules[1].runtime_handler: missing; write the handler of a RuntimeClass such as \"kata\"; \"\" for pods that name none",
            "c.toml:3: routing.rules[1].backend: missing; write the name of a backend",
            "c.toml:4: admin.listen: expected an IP address with a port such as \"127.0.0.1:9478\", or \"off\", found a table",
        ]
    );
}

#[test]
fn all_syntax_errors_come_together_with_their_lines() {
    let found = errors("[server]\nmode = 0660\nlisten = \n[admin\n");
    let lines: Vec<_> = found
        .iter()
        .map(|error| error.split(": not valid TOML: ").next().unwrap_or(error))
        .collect();
    assert_eq!(lines, ["c.toml:2", "c.toml:3", "c.toml:4"], "{found:#?}");
}

#[test]
fn a_path_over_the_limit_of_the_kernel_is_explained() {
    let path = format!("/run/{}", "x".repeat(110));
    assert_eq!(
        errors(&format!("[server]\nlisten = \"unix://{path}\"\n{ONE}")),
        [
            "c.toml:2: server.listen: the path is 115 bytes long; the kernel takes at most 107 for a unix socket"
        ]
    );
}

//! `[telemetry.otlp]`

use super::*;

#[test]
fn keys_of_a_collector_that_depend_on_each_other() {
    let table = [
        (
            "endpoint = \"https://a:4317/v1/traces\"",
            "endpoint: OTLP over gRPC has no path; set protocol = \"http/protobuf\"",
        ),
        (
            "tls_cert = \"/c\"",
            "tls_cert: has no effect without tls_key",
        ),
        (
            "tls_key = \"/k\"",
            "tls_key: has no effect without tls_cert",
        ),
        (
            "endpoint = \"http://me:hunter2@a:4317\"",
            "endpoint: not the URL of an OTLP collector: no user and password belong there; write one such as http://127.0.0.1:4317",
        ),
        (
            "protocol = \"http/json\"",
            "protocol: expected \"grpc\" or \"http/protobuf\", found \"http/json\"",
        ),
        (
            "compression = \"zstd\"",
            "compression: expected \"none\" or \"gzip\", found \"zstd\"",
        ),
    ];
    for (line, wanted) in table {
        let found = errors(&format!("[telemetry.otlp]\n{line}\n"));
        assert_eq!(found, [format!("c.toml:2: telemetry.otlp.{wanted}")]);
    }
}

#[test]
fn a_collector_is_shown_without_its_headers() {
    let text = "[telemetry.otlp]\nendpoint = \"https://a\"\nheaders_file = \"/h\"\n";
    let settings = load(text).expect("valid").settings();
    let value = |key: &str| settings[&format!("telemetry.otlp.{key}")].value.clone();
    assert_eq!(value("endpoint"), "\"https://a\"");
    assert_eq!(value("headers_file"), "\"/h\"");
    assert_eq!(value("protocol"), "\"grpc\"");
}

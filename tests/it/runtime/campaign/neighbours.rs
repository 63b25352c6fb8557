//! Attacks by local users and CNI plugins.

use std::net::TcpStream;

use super::stage::Stage;
use crate::harness::raise_descriptor_limit;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_local_user_who_keeps_connections_open() {
    const CONNECTIONS: usize = 2000;
    raise_descriptor_limit();
    let stage = Stage::new().await;
    let port = stage.daemon.program().admin_port();
    stage
        .withstands(async {
            let mut open = Vec::new();
            for _ in 0..CONNECTIONS {
                // Connections beyond the listen backlog fail.
                let address = ([127, 0, 0, 1], port).into();
                match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                    Ok(connection) => open.push(connection),
                    Err(_) => break,
                }
                tokio::task::yield_now().await;
            }
            assert!(open.len() > 64, "{} connections", open.len());
            // The attack lasts, so that there are calls about the healthy pod meanwhile.
            tokio::time::sleep(Duration::from_secs(2)).await;
        })
        .await;
    stage.end().await;
}

/// Writes 64 MB to both streams for pods called `hostile-*`, and passes the result on for others.
const PLUGIN: &str = r#"#!/bin/sh
input=$(cat)
case "$CNI_COMMAND $CNI_ARGS" in
ADD*K8S_POD_NAME=hostile*)
    dd if=/dev/zero bs=1000000 count=64 2>/dev/null
    dd if=/dev/zero bs=1000000 count=64 2>/dev/null >&2
    exit 1 ;;
VERSION*) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD*) echo '{"cniVersion": "1.0.0"}' ;;
esac
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_cni_plugin_that_writes_without_end() {
    let daemon = Daemon::prepared(crate::CRISCOPE).await;
    daemon.add_program("flood", PLUGIN);
    daemon.set_network(&daemon.bridge(r#"{"type": "flood"},"#));
    let mut daemon = daemon;
    daemon.start().await;
    let stage = Stage::of(daemon).await;
    let kubelet = &stage.kubelet;
    stage
        .withstands(async {
            for _ in 0..4 {
                let config = kubelet.pod_config("hostile-network");
                let failed = kubelet.try_run(config, "").await;
                let error = failed.err().expect("the plugin has failed");
                // The error reaches the kubelet, but not with 64 MB.
                assert!(
                    error.message().len() < 64 << 10,
                    "{}",
                    error.message().len()
                );
            }
        })
        .await;
    stage.end().await;
}

//! Clients that read late or never.

use super::node::Node;
use super::{WAYS, kubelet_says_hello};
use crate::prelude::*;
use crate::streaming::client::{Client, lazy};

/// Maximum memory that one client may occupy, in bytes.
const EACH: usize = 4 << 20;

/// Longer than the shim waits for an attached client that does not read.
const PAUSE: Duration = Duration::from_secs(12);

/// Clients that are attached and do not read yet, when the container may go on.
async fn attached_lazily(node: &Node) -> Vec<Client> {
    let mut clients = Vec::new();
    for way in WAYS {
        clients.push(lazy(&node.attach("o").await, way).await);
    }
    until_true("all to be attached", async || {
        node.open().await == clients.len() as f64
    })
    .await;
    node.kubelet.says(&node.container, "touch /go").await;
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_loses_nothing_and_costs_little() {
    const LENGTH: usize = 48 << 20;
    let node = Node::with(idle("main")).await;
    let before = node.memory();
    let mut clients = Vec::new();
    for way in WAYS.into_iter().cycle().take(6) {
        let script = format!(
            "/bin/busybox dd if=/dev/zero bs=65536 count={} 2>/dev/null; exit 7",
            LENGTH >> 16
        );
        clients.push(lazy(&node.exec(&script, "o").await, way).await);
    }
    until_true("the commands to run", async || {
        let all = node.processes();
        let run = all
            .iter()
            .filter(|what| what.starts_with("/bin/busybox dd"));
        run.count() == clients.len()
    })
    .await;
    // Others are not affected meanwhile.
    let since = Instant::now();
    while since.elapsed() < PAUSE {
        kubelet_says_hello(&node).await;
        let url = node.exec("cat", "io").await;
        let mut other = Client::connect(&url, WAYS[0], "io").await;
        other.send(0, b"to and fro").await;
        assert_eq!(other.output(10).await, b"to and fro");
        other.end_input().await;
        other.finish().await;
        let more = node.memory().saturating_sub(before);
        assert!(more < clients.len() * EACH, "{more} bytes more");
    }
    for mut client in clients {
        client.begin_to_read();
        let said = client.finish().await;
        assert_eq!(said.out.len(), LENGTH);
        assert!(said.error.contains("\"7\""), "{}", said.error);
    }
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_gets_all_output_of_an_exited_container() {
    // It writes until it blocks, and has exited when its clients start reading.
    const LENGTH: usize = 1 << 20;
    let line = "all of it".repeat(100);
    let script = format!(
        "until [ -e /go ]; do sleep 0.1; done; /bin/busybox yes {line:?} & \
         until [ -e /enough ]; do sleep 0.1; done; kill -9 $!"
    );
    let node = Node::with(shell("main", &script)).await;
    let clients = attached_lazily(&node).await;
    let log = node.kubelet.status(&node.container).await.log_path;
    until_still("the writer to block", || {
        let length = fs::metadata(&log).expect("log").len();
        // Including the prefix of each line.
        (length > 2 * LENGTH as u64).then_some(length)
    })
    .await;
    node.kubelet.says(&node.container, "touch /enough").await;
    let status = node.kubelet.ended(&node.container).await;
    // The shim has to give up on clients that do not read.
    tokio::time::sleep(PAUSE).await;
    let log = fs::read_to_string(&status.log_path).expect("log");
    let mut logged = String::new();
    for line in log.lines() {
        // Time, stream, tag (F for a full line), text.
        let parts: Vec<_> = line.splitn(4, ' ').collect();
        logged.push_str(parts[3]);
        logged.push_str(if parts[2] == "F" { "\n" } else { "" });
    }
    for mut client in clients {
        client.begin_to_read();
        let said = client.finish().await;
        assert_eq!(said.error, r#"{"status":"Success"}"#);
        assert!(said.out.len() > LENGTH, "{} bytes", said.out.len());
        assert!(
            said.out == logged.as_bytes(),
            "{} bytes of {}",
            said.out.len(),
            logged.len()
        );
    }
    node.no_session_is_left().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_that_is_cut_off_reports_it() {
    // More than all buffers between the container and a client that does not read.
    const LENGTH: usize = 48 << 20;
    let script = format!(
        "until [ -e /go ]; do sleep 0.1; done; \
         /bin/busybox dd if=/dev/zero bs=65536 count={} 2>/dev/null; touch /done; \
         trap 'exit 0' TERM; sleep 1000000 & wait",
        LENGTH >> 16
    );
    let node = Node::with(shell("main", &script)).await;
    let clients = attached_lazily(&node).await;
    // The container is no longer blocked.
    until_true("all of it to be written", async || {
        let done = node.kubelet.exec(&node.container, "[ -e /done ]").await;
        done.code == 0
    })
    .await;
    for mut client in clients {
        client.begin_to_read();
        let said = client.finish().await;
        assert!(said.out.len() < LENGTH, "{} bytes", said.out.len());
        assert!(said.error.contains("Failure"), "{}", said.error);
        assert!(said.error.contains("not taken"), "{}", said.error);
    }
    node.logged("attach", "failed").await;
    node.no_session_is_left().await;
    node.end().await;
}

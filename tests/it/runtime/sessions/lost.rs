//! Shims that die or are unreachable.

use nix::sys::signal;

use super::WAYS;
use super::node::Node;
use crate::prelude::*;
use crate::streaming::client::Client;

/// Longer than `drain_exec_sync_io_timeout`, and shorter than a shim may take to respond after that.
const PAUSE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_shim_is_reported_to_clients() {
    let node = Node::with(idle("main")).await;
    let mut clients = Vec::new();
    for way in WAYS {
        let url = node.exec("echo up; sleep 54321", "o").await;
        let command = Client::connect(&url, way, "o").await;
        command.output(3).await;
        clients.push(command);
        clients.push(Client::connect(&node.attach("o").await, way, "o").await);
    }
    until_true("all sessions to be open", async || {
        node.open().await == clients.len() as f64
    })
    .await;
    signal::kill(node.shim(), Signal::SIGKILL).expect("killed");
    for client in clients {
        let said = client.finish().await;
        assert!(said.error.contains("Failure"), "{}", said.error);
        assert!(said.error.contains("shim"), "{}", said.error);
    }
    for kind in ["exec", "attach"] {
        node.logged(kind, "failed").await;
    }
    node.no_session_is_left().await;
    node.kubelet.ended(&node.container).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_unreachable_streams_leaves_nothing() {
    let node = Node::with(idle("main")).await;
    let socket = node.pod_dir().join("shim.sock");
    let aside = node.pod_dir().join("aside");
    for way in WAYS {
        // The daemon is already connected.
        fs::rename(&socket, &aside).expect("away");
        let url = node.exec("sleep 54321", "io").await;
        let said = Client::connect(&url, way, "io").await.finish().await;
        fs::rename(&aside, &socket).expect("back");
        assert!(said.error.contains("no connection"), "{}", said.error);
    }
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_shim_is_reported_after_the_exit_of_a_command() {
    for sync in [false, true] {
        let node = Node::with(idle("main")).await;
        // The command exits, and its child holds the output open.
        let script = "sleep 54321 & echo x; exit 3";
        let said = match sync {
            true => {
                let kubelet = node.kubelet.runtime.clone();
                let request =
                    requests::exec_sync(&node.container, requests::shell_command(script), 0);
                let running = tokio::spawn(async move {
                    let answer = { kubelet }.exec_sync(request).await;
                    answer.map_or_else(|error| error.to_string(), |_| "success".to_owned())
                });
                kill_the_shim_of_a_child(&node).await;
                soon("the answer", running).await.expect("no panic")
            }
            false => {
                let url = node.exec(script, "o").await;
                let client = Client::connect(&url, WAYS[0], "o").await;
                kill_the_shim_of_a_child(&node).await;
                client.finish().await.error
            }
        };
        assert!(said.contains("shim"), "{said}");
        node.kubelet.ended(&node.container).await;
        node.end().await;
    }
}

/// Kills the shim once a command has exited and only its child is left.
async fn kill_the_shim_of_a_child(node: &Node) {
    until_true("only the child to run", async || {
        let all = node.processes();
        let is_there = |part: &str| all.iter().any(|what| what.contains(part));
        is_there("sleep 54321") && !is_there("exit 3")
    })
    .await;
    signal::kill(node.shim(), Signal::SIGKILL).expect("killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_is_held_up_is_not_taken_for_the_end_of_output() {
    let node = Node::with(idle("main")).await;
    let script = "(until [ -e /go ]; do sleep 0.1; done; echo late) & echo x; exit 3";
    let shim = node.shim();
    for way in WAYS {
        let client = Client::connect(&node.exec(script, "o").await, way, "o").await;
        client.output(2).await;
        let child = until("only the child to run", || async {
            let all = leaks::processes(node.daemon.name());
            let scripts = all.iter().filter(|(_, what)| what.contains("/go"));
            let scripts: Vec<_> = scripts.map(|(pid, _)| *pid).collect();
            (scripts.len() == 1).then(|| scripts[0])
        })
        .await;
        halt(shim);
        // Within the grace period, after which silence counts as the end.
        let go = format!("/proc/{child}/root/go");
        fs::write(&go, "").expect("written");
        // The silence itself is what is tested.
        tokio::time::sleep(PAUSE).await;
        signal::kill(shim, Signal::SIGCONT).expect("continued");
        let said = client.finish().await;
        assert_eq!(String::from_utf8_lossy(&said.out), "x\nlate\n");
        assert!(said.error.contains("\"3\""), "{}", said.error);
        node.kubelet.says(&node.container, "rm /go").await;
    }
    node.is_quiet().await;
    node.end().await;
}

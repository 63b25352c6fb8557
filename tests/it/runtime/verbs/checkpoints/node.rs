//! The network of the node, of which CRIU locks single connections.

use super::{Dumps, checkpoint};
use crate::prelude::*;

/// A connection between addresses of documentations (RFC 5737), as CRIU locks it.
const RULES: [&str; 2] = [
    "INPUT -p tcp -m mark ! --mark 0xC114 -s 192.0.2.77 --sport 4711 -d 192.0.2.78 --dport 80 -j DROP",
    "OUTPUT -p tcp -m mark ! --mark 0xC114 -s 192.0.2.78 --sport 80 -d 192.0.2.77 --dport 4711 -j DROP",
];

const LOG: &str = "(00.01) Locked 192.0.2.78:80 - 192.0.2.77:4711 connection
(00.02) Locked 192.0.2.77:4711 - 192.0.2.78:80 connection
";

/// One of another dump.
const OTHER: &str = "INPUT -p tcp -m mark ! --mark 0xC114 -s 192.0.2.77 --sport 4712 -d 192.0.2.78 --dport 80 -j DROP";

/// Removes the rules even if the test fails.
struct Rules;

impl Drop for Rules {
    fn drop(&mut self) {
        for rule in [RULES[0], RULES[1], OTHER] {
            let mut command = Command::new("iptables");
            let _gone = command.args(["-w", "-D"]).args(rule.split(' ')).output();
        }
    }
}

fn left() -> usize {
    let rules = Command::new("iptables").args(["-w", "-S"]).output();
    let rules = String::from_utf8(rules.expect("iptables").stdout).expect("text");
    rules.matches("192.0.2.77").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_the_node_are_unlocked_when_criu_is_killed() {
    program("iptables", "iptables");
    let (daemon, kubelet, dumps) = Dumps::start().await;
    let config = kubelet.host_network_config("node");
    let pod = kubelet.run_with(config, "second").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let lines = [RULES[0], RULES[1], OTHER].map(|rule| format!("-I {rule}\n"));
    let lines = lines.concat();
    fs::write(dumps.gate.join("log"), LOG).expect("gate");
    let table = format!("*filter\n{lines}COMMIT\n");
    fs::write(dumps.gate.join("rules"), table).expect("gate");
    // Read by a process of the daemon.
    fs::write(dumps.gate.join("lock"), "/proc/self/ns/net").expect("gate");
    let _rules = Rules;
    dumps.set("open");
    let error = checkpoint(&kubelet, &id, &dumps.archive(), 0).await;
    let error = error.expect_err("killed");
    assert_eq!(error.code(), Code::Unknown, "{error}");
    assert!(dumps.gate.join("dumped").exists());
    assert_eq!(left(), 1, "only that of the other dump");
    daemon.end(&kubelet, [&pod]).await;
}

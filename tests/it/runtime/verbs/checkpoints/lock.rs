//! The rules with which CRIU locks the network of a pod while it dumps.

use super::{Dumps, assert_untouched, checkpoint};
use crate::prelude::*;

/// What CRIU writes to `iptables-restore` when a dump begins.
const LOCK: &str = "*filter
:CRIU - [0:0]
-I INPUT -j CRIU
-I OUTPUT -j CRIU
-A CRIU -m mark --mark 0xC114 -j ACCEPT
-A CRIU -j DROP
COMMIT
";

/// A CRIU that is killed cannot remove its rules, which drop every packet of the pod.
#[tokio::test(flavor = "multi_thread")]
async fn the_network_of_a_pod_is_unlocked_when_criu_is_killed() {
    program("iptables", "iptables");
    let (daemon, kubelet, dumps) = Dumps::start().await;
    dumps.set("open");
    let pod = kubelet
        .run_with(kubelet.pod_config("locked"), "second")
        .await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let namespace = daemon.state().join("state/ns").join(&pod.id).join("net");
    fs::write(dumps.gate.join("rules"), LOCK).expect("gate");
    fs::write(dumps.gate.join("lock"), namespace.display().to_string()).expect("gate");
    let archive = dumps.archive();
    let rules = || {
        let mut command = Command::new("nsenter");
        let net = format!("--net={}", namespace.display());
        let done = command.args([&net, "iptables", "-S"]).output();
        String::from_utf8(done.expect("iptables").stdout).expect("text")
    };
    let before = rules();
    let error = checkpoint(&kubelet, &id, &archive, 0)
        .await
        .expect_err("killed");
    assert_eq!(error.code(), Code::Unknown, "{error}");
    assert_eq!(rules(), before);
    assert_untouched(&daemon, &kubelet, &id).await;
    let ping = "busybox ping -c 1 -W 5 127.0.0.1 > /dev/null && echo reached";
    assert_eq!(kubelet.says(&id, ping).await, "reached");
    fs::remove_file(dumps.gate.join("lock")).expect("gate");
    checkpoint(&kubelet, &id, &archive, 0)
        .await
        .expect("CheckpointContainer");
    daemon.end(&kubelet, [&pod]).await;
}

//! With CRIU itself, where it works on this kernel: it does in the virtual machine of tests/v2.

use std::env;

use super::{assert_untouched, begin, checkpoint, ended, files, record};
use crate::prelude::*;

/// Set where CRIU has to work.
const REQUIRED: &str = "CRISCOPE_TEST_CRIU";
/// Remembers what no file has.
const SCRIPT: &str = "secret=remembered-$((20+22)); echo here > /file; while :; do sleep 0.1; done";

fn works() -> bool {
    let check = Command::new(program("criu", "criu")).arg("check").output();
    let check = check.expect("criu");
    let said = String::from_utf8_lossy(&check.stderr);
    let works = check.status.success();
    assert!(works || env::var_os(REQUIRED).is_none(), "{said}");
    works
}

/// Where CRIU does not work, its reason is told.
#[tokio::test(flavor = "multi_thread")]
async fn it_dumps_a_container_that_runs_on() {
    let works = works();
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    daemon.set_runtime("enable_criu = true\n");
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("criu").await;
    let mut terminal = shell("terminal", SCRIPT);
    terminal.tty = true;
    for config in [shell("main", SCRIPT), terminal] {
        let id = kubelet.launch(&pod, config).await;
        kubelet
            .says(&id, "until [ -e /file ]; do sleep 0.02; done")
            .await;
        let archive = daemon.root().join("c.tar");
        let made = checkpoint(&kubelet, &id, &archive, 120).await;
        assert_untouched(&daemon, &kubelet, &id).await;
        if works {
            made.expect("CheckpointContainer");
            let found = files(&fs::read(&archive).expect("an archive"));
            let names: Vec<_> = found.keys().collect();
            let wanted = b"remembered-42";
            let remembers = |(name, content): (&String, &Vec<u8>)| {
                name.starts_with("checkpoint/pages-")
                    && content.windows(wanted.len()).any(|it| it == wanted)
            };
            assert!(found.iter().any(remembers), "{names:?}");
            for name in [
                "checkpoint/inventory.img",
                "checkpoint/pstree.img",
                "stats-dump",
            ] {
                assert!(found.contains_key(name), "{name}: {names:?}");
            }
            let log = String::from_utf8_lossy(&found["dump.log"]);
            assert!(log.contains("Dumping finished successfully"), "{log}");
            assert_eq!(files(&found["rootfs-diff.tar"])["file"], b"here\n");
            fs::remove_file(&archive).expect("removed");
        } else {
            let error = made.expect_err("CRIU does not work here");
            assert!(error.message().contains("Error (criu/"), "{error}");
            assert!(!archive.exists());
        }
    }
    daemon.end(&kubelet, [&pod]).await;
}

/// CRIU drops all packets of the pod during a dump, and would leave the rules behind if it were killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_takes_too_long_unlocks_the_network() {
    if !works() {
        return;
    }
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let gate = daemon.root().join("gate");
    fs::create_dir(&gate).expect("gate");
    let script = format!(
        "#!/bin/sh\n'{real}' \"$@\" || exit 1\necho x > '{gate}/locked'\nuntil [ -e '{gate}/open' ]; do sleep 0.05; done\n",
        real = program("iptables-restore", "iptables").display(),
        gate = gate.display(),
    );
    daemon.add_program("iptables-restore", &script);
    let path = env::var("PATH").expect("a path");
    let own = daemon.root().join("bin");
    daemon.env("PATH", &format!("{}:{path}", own.display()));
    daemon.set_runtime("enable_criu = true\n");
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("late").await;
    let id = kubelet.launch(&pod, shell("main", SCRIPT)).await;
    let pid = record(&daemon, &id).0["pid"].to_string();
    let rules = || {
        let mut command = Command::new(program("nsenter", "util-linux"));
        let output = command.args(["-t", &pid, "-n", "iptables-save"]).output();
        String::from_utf8(output.expect("nsenter").stdout).expect("text")
    };
    let archive = daemon.root().join("c.tar");
    // Until the gate is open the dump cannot end.
    let call = begin(&kubelet, &id, &archive, 10);
    let locked = gate.join("locked");
    until_true("the lock", async || locked.exists()).await;
    assert!(rules().contains("CRIU"), "{}", rules());
    let error = call.await.expect("ended").expect_err("late");
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    fs::write(gate.join("open"), "").expect("gate");
    ended(&daemon, &id).await;
    assert!(!rules().contains("CRIU"), "{}", rules());
    assert_untouched(&daemon, &kubelet, &id).await;
    assert!(!archive.exists());
    daemon.end(&kubelet, [&pod]).await;
}

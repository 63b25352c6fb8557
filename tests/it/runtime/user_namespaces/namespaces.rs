//! The namespaces, and the helper that creates them.

use criscope::runtime::code::GrpcCode as _;
use criscope_linux::namespace::{Error, Kind, Pins, Request, State};
use criscope_linux::rootfs::list_mounts_below;
use criscope_linux::sysctl::Sysctl;

use super::{SHIM, pins, request, scratch};
use crate::prelude::*;

/// The number of helper processes among the children of this process.
fn helpers() -> usize {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").expect("proc").flatten();
    entries
        .filter(|entry| {
            let read = |name| fs::read(entry.path().join(name)).unwrap_or_default();
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            let parent = stat.rsplit(") ").next().and_then(|s| s.split(' ').nth(1));
            parent == Some(&own) && read("cmdline").windows(14).any(|w| w == b"user-namespace")
        })
        .count()
}

async fn no_helper_left() {
    until_true("the end of every helper", async || helpers() == 0).await;
}

/// Runs a shell as root in the namespaces of a pod; returns its output.
fn as_root_of(pins: &Pins, id: &str, script: &str) -> String {
    let mut command = Command::new("nsenter");
    // The PID namespace needs an init.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pid) {
        let path = pins.path(id, kind);
        command.arg(format!("--{}={}", kind.name(), path.display()));
    }
    let output = command
        .args(["--", "/bin/busybox", "sh", "-c", script])
        .output()
        .expect("nsenter is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}{error}");
    said
}

#[tokio::test]
async fn the_namespaces_are_owned_by_the_pods_user_namespace() {
    let dir = scratch();
    let pins = pins(&dir);
    let hostname = fs::read("/proc/sys/kernel/hostname").expect("read");
    pins.make("a", request()).await.expect("make");
    no_helper_left().await;
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pid) {
        assert_eq!(pins.state("a", kind).expect("state"), State::Pinned);
    }
    let map = as_root_of(&pins, "a", "cat /proc/self/uid_map /proc/self/gid_map");
    let expected = ["0", "2000000", "65536"].repeat(2);
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), expected);
    let told = as_root_of(
        &pins,
        "a",
        "hostname; cat /proc/sys/kernel/domainname /proc/sys/net/ipv4/ip_unprivileged_port_start \
         /proc/sys/kernel/shm_rmid_forced; cat /sys/class/net/lo/operstate >/dev/null; ping -c1 -W2 127.0.0.1 >/dev/null \
         && echo up",
    );
    assert_eq!(
        told.split_whitespace().collect::<Vec<_>>(),
        ["inside", "pods", "0", "1", "up"]
    );
    // Only an owner may do this: the pod's root has no privileges in the node's namespaces.
    as_root_of(
        &pins,
        "a",
        "hostname other && echo 1 > /proc/sys/net/ipv4/ip_forward",
    );
    // Where SELinux is enabled an OCI runtime sets its label as this user.
    let owner = as_root_of(
        &pins,
        "a",
        "unshare -m sh -c 'mount -t mqueue queues /mnt && stat -c %u:%g /mnt'",
    );
    assert_eq!(owner.trim(), "0:0");
    assert_eq!(
        fs::read("/proc/sys/kernel/hostname").expect("read"),
        hostname
    );
    assert_eq!(pins.counters("a").await.expect("counters")[0].name, "lo");
    assert_eq!(pins.list().expect("list"), ["a"]);
    pins.remove("a").await.expect("remove");
    assert!(
        list_mounts_below(dir.path()).expect("table").is_empty(),
        "nothing stays"
    );
    assert!(pins.list().expect("list").is_empty());
}

#[tokio::test]
async fn a_helper_that_fails_and_a_step_that_fails_leave_nothing() {
    let dir = scratch();
    let mut bad = request();
    bad.sysctls
        .push(Sysctl::new("net.ipv4.no_such_thing", "1").expect("valid"));
    let failed = pins(&dir).make("a", bad).await.expect_err("no such thing");
    assert!(matches!(failed, Error::Sysctl(_)), "{failed}");
    // Invalid ids are refused earlier, so the helper fails here by being no program, exiting early, or reporting an
    // error.
    let script = dir.path().join("script");
    executable(&script, "#!/bin/sh\necho no room >&2; exit 1\n");
    for (program, why) in [
        (Path::new("/no/such/program"), "No such file"),
        (Path::new("/bin/true"), ""),
        (&script, "no room"),
    ] {
        let pins = Pins::new(dir.path().join("pins")).with_helper(program);
        let failed = pins.make("a", request()).await.expect_err("no namespaces");
        assert!(matches!(failed, Error::Helper { .. }), "{failed}");
        assert!(failed.to_string().contains(why), "{failed}");
    }
    let without = Pins::new(dir.path().join("pins"));
    let refused = without.make("a", request()).await.expect_err("no program");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let unmapped = Request {
        kinds: Kind::ALL.to_vec(),
        ..Request::default()
    };
    let refused = pins(&dir).make("a", unmapped).await.expect_err("no users");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    no_helper_left().await;
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
    assert!(pins(&dir).list().expect("list").is_empty());
}

#[test]
fn the_helper_ends_with_the_daemon() {
    let mut helper = Command::new(SHIM)
        .args(["user-namespace", "net"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut said = [0; 6];
    let mut stdout = helper.stdout.take().expect("piped");
    std::io::Read::read_exact(&mut stdout, &mut said).expect("ready");
    assert_eq!(&said, b"ready\n");
    // The kernel closes the descriptors of a killed process.
    drop(helper.stdin.take());
    assert!(helper.wait().expect("ends").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_and_concurrent_callers_leave_nothing() {
    let dir = scratch();
    let pins = pins(&dir);
    let make = (0..12).map(|pod| {
        let pins = pins.clone();
        tokio::spawn(async move {
            let id = format!("p{pod}");
            let make = pins.make(&id, request());
            // The last four callers are cancelled.
            let wait = if pod < 8 {
                PATIENCE
            } else {
                Duration::from_millis(1)
            };
            tokio::time::timeout(wait, make).await
        })
    });
    for (pod, made) in make.collect::<Vec<_>>().into_iter().enumerate() {
        let made = made.await.expect("join");
        assert!(pod >= 8 || matches!(made, Ok(Ok(()))), "{made:?}");
    }
    for pod in 8..12 {
        let id = format!("p{pod}");
        until_true(&format!("{id}, which was begun"), async || {
            pins.state(&id, Kind::User).expect("state") == State::Pinned
        })
        .await;
    }
    no_helper_left().await;
    for id in pins.list().expect("list") {
        pins.remove(&id).await.expect("remove");
    }
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}

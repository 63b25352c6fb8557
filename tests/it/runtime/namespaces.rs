//! Creating, pinning, entering and removing namespaces leaves nothing behind. Needs root.

use criscope::runtime::code::GrpcCode as _;
use criscope_linux::namespace::{Error, Kind, Pins, Request, State, run_in};
use criscope_linux::sysctl::Sysctl;

use super::Scratch;
use crate::prelude::*;

fn pins() -> (Scratch, Pins) {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test creates namespaces: it needs root"
    );
    let dir = Scratch::new();
    let pins = Pins::new(dir.path().join("pins"));
    (dir, pins)
}

fn all() -> Request {
    Request {
        kinds: vec![Kind::Net, Kind::Ipc, Kind::Uts],
        hostname: Some("inside".to_owned()),
        sysctls: vec![
            Sysctl::new("net.ipv4.ip_unprivileged_port_start", "0").expect("valid"),
            Sysctl::new("kernel.shm_rmid_forced", "1").expect("valid"),
        ],
        user: None,
    }
}

fn mounts_below(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    table
        .lines()
        .filter(|line| line.contains(&*dir.to_string_lossy()))
        .count()
}

async fn read_in(pins: &Pins, id: &str, kind: Kind, file: &'static str) -> String {
    let namespace = pins.open(id, kind).expect("pinned");
    let text = run_in(
        move || Ok(namespace),
        kind,
        move || fs::read_to_string(file),
    )
    .await;
    text.expect("enter").expect("read").trim().to_owned()
}

#[tokio::test]
async fn settings_apply_inside_and_not_outside() {
    let (dir, pins) = pins();
    let port_start = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let outside = (
        fs::read(port_start).expect("read"),
        fs::read("/proc/sys/kernel/hostname").expect("read"),
    );
    pins.make("a", all()).await.expect("make");
    assert_eq!(read_in(&pins, "a", Kind::Net, port_start).await, "0");
    assert_eq!(
        read_in(&pins, "a", Kind::Uts, "/proc/sys/kernel/hostname").await,
        "inside"
    );
    assert_eq!(
        read_in(&pins, "a", Kind::Ipc, "/proc/sys/kernel/shm_rmid_forced").await,
        "1"
    );
    // Loopback is up.
    let netns = pins.open("a", Kind::Net).expect("pinned");
    let talked = run_in(
        move || Ok(netns),
        Kind::Net,
        || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            std::net::TcpStream::connect(listener.local_addr()?)
        },
    );
    talked.await.expect("enter").expect("lo is up");
    let counters = pins.counters("a").await.expect("counters");
    assert_eq!(counters.len(), 1);
    assert_eq!(counters[0].name, "lo");
    assert!(counters[0].rx_bytes > 0, "{counters:?}");
    let now = (
        fs::read(port_start).expect("read"),
        fs::read("/proc/sys/kernel/hostname").expect("read"),
    );
    assert_eq!(now, outside);
    assert!(matches!(
        pins.make("a", all()).await,
        Err(Error::Exists { .. })
    ));
    pins.remove("a").await.expect("remove");
    pins.remove("a").await.expect("again");
    assert_eq!(pins.state("a", Kind::Net).expect("state"), State::Absent);
    assert_eq!(mounts_below(dir.path()), 0);
    assert!(pins.list().expect("list").is_empty());
}

#[tokio::test]
async fn a_failed_make_leaves_nothing() {
    let (dir, pins) = pins();
    let mut request = all();
    request
        .sysctls
        .push(Sysctl::new("net.ipv4.no_such_thing", "1").expect("valid"));
    assert!(matches!(
        pins.make("a", request.clone()).await,
        Err(Error::Sysctl(_))
    ));
    assert_eq!(mounts_below(dir.path()), 0);
    assert!(pins.list().expect("list").is_empty());
    // Sysctls that would apply to the node are refused before anything is created.
    request.kinds = vec![Kind::Ipc, Kind::Uts];
    let refused = pins
        .make("a", request)
        .await
        .expect_err("shares the node's network");
    assert_eq!(refused.code(), Code::InvalidArgument);
    for id in ["", ".", "..", "a/b"] {
        assert!(
            matches!(pins.make(id, all()).await, Err(Error::Id { .. })),
            "{id}"
        );
    }
}

#[tokio::test]
async fn pins_are_lost_after_a_reboot_and_can_be_removed() {
    let (_dir, pins) = pins();
    let path = pins.path("a", Kind::Net);
    fs::create_dir_all(path.parent().expect("parent")).expect("dir");
    fs::write(&path, "").expect("a file nothing is mounted on");
    assert_eq!(pins.state("a", Kind::Net).expect("state"), State::Lost);
    assert_eq!(pins.state("a", Kind::Uts).expect("state"), State::Absent);
    assert!(matches!(
        pins.open("a", Kind::Net),
        Err(Error::NotPinned { .. })
    ));
    assert_eq!(pins.list().expect("list"), ["a"]);
    pins.remove("a").await.expect("remove");
    assert!(pins.list().expect("list").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_are_created_and_removed_concurrently() {
    let (dir, pins) = pins();
    let before = namespaces();
    let make = (0..50).map(|pod| {
        let pins = pins.clone();
        tokio::spawn(async move { pins.make(&format!("p{pod}"), all()).await })
    });
    for made in make.collect::<Vec<_>>() {
        made.await.expect("join").expect("make");
    }
    assert_eq!(mounts_below(dir.path()), 150);
    let inodes: std::collections::BTreeSet<_> = (0..50)
        .map(|pod| {
            use std::os::unix::fs::MetadataExt as _;
            pins.open(&format!("p{pod}"), Kind::Net)
                .expect("open")
                .metadata()
                .expect("stat")
                .ino()
        })
        .collect();
    assert_eq!(inodes.len(), 50, "each has its own");
    for id in pins.list().expect("list") {
        pins.remove(&id).await.expect("remove");
    }
    assert_eq!(mounts_below(dir.path()), 0);
    until_true("no thread of ours in a namespace", async || {
        namespaces() <= before
    })
    .await;
}

/// The number of network namespaces of our threads.
fn namespaces() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("tasks");
    let links: std::collections::BTreeSet<_> = tasks
        .flatten()
        .filter_map(|task| fs::read_link(task.path().join("ns/net")).ok())
        .collect();
    links.len()
}

#[tokio::test]
async fn a_cancelled_caller_leaves_nothing_that_a_remove_does_not_clean_up() {
    let (dir, pins) = pins();
    for wait in [0_u64, 50, 200, 1000] {
        let made = tokio::time::timeout(Duration::from_micros(wait), pins.make("a", all()));
        let _ = made.await;
        // The operation completes even without a waiting caller.
        until_true("the operation to complete", async || {
            pins.state("a", Kind::Uts).expect("state") == State::Pinned
        })
        .await;
        pins.remove("a").await.expect("remove");
        assert_eq!(mounts_below(dir.path()), 0);
    }
}

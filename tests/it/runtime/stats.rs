//! Statistics match the usage of processes in a real cgroup. Needs root.

use criscope_linux::namespace::{Kind, Pins, Request};

use super::Scratch;
use super::node::Own;
use crate::prelude::*;
use criscope::runtime::code::GrpcCode as _;
use criscope::runtime::stats::message::{Layer, container_stats};
use criscope::runtime::stats::metrics::Filesystem;
use criscope::runtime::stats::{Rates, disk, network_usage, processes};
use criscope_linux::cgroup::Cgroup;
use criscope_linux::cgroup::usage::{Detail, Usage, read};

/// Polls the statistics until they satisfy `ready`.
fn until(cgroup: &Cgroup, ready: impl Fn(&Usage) -> bool) -> Usage {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let usage = read(cgroup, Detail::All).expect("there");
        if ready(&usage) {
            return usage;
        }
        assert!(Instant::now() < deadline, "{usage:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn cpu(usage: &Usage) -> u64 {
    usage.cpu.as_ref().map_or(0, |cpu| cpu.usage)
}

#[test]
fn cpu_and_memory_of_a_process_are_accounted() {
    let mut own = Own::new("burn");
    let cgroup = own.cgroup.clone();
    let idle = read(&cgroup, Detail::All).expect("there");
    assert!(cpu(&idle) < 50_000_000, "{idle:?}");
    // 24 MiB in a shell variable, then a busy loop.
    let script = "x=$(head -c 25165824 /dev/zero | tr '\\0' x); while :; do :; done";
    own.run(&cgroup, script);
    let rates = Rates::default();
    let rate = |usage: &Usage| rates.observe("c", usage.at, cpu(usage));
    assert_eq!(rate(&idle), None);
    // Only the shell, after its input has been read.
    let alone = |usage: &Usage| usage.pids.is_some_and(|pids| pids.current == 1);
    let holds = |usage: &Usage| {
        let memory = usage.memory.as_ref();
        memory.is_some_and(|memory| memory.rss > 24 << 20)
    };
    let busy = until(&cgroup, |usage| {
        cpu(usage) > 300_000_000 && alone(usage) && holds(usage)
    });
    assert!(rate(&busy).is_some_and(|rate| rate > 0), "{busy:?}");
    let memory = busy.memory.clone().expect("accounted");
    assert!(memory.usage > 16 << 20, "{memory:?}");
    assert!(
        memory.page_faults > 6000,
        "one for each of its pages: {memory:?}"
    );
    let stats = container_stats(
        v1::ContainerAttributes::default(),
        Some(&busy),
        rate(&busy),
        Layer {
            mountpoint: Path::new("/"),
            measured: None,
        },
    );
    let told = stats.cpu.and_then(|cpu| cpu.usage_core_nano_seconds);
    assert_eq!(told.map(|told| told.value), Some(cpu(&busy)));
    assert!(
        stats
            .memory
            .is_some_and(|memory| memory.available_bytes.is_none())
    );
}

#[test]
fn limits_and_processes_are_those_of_the_cgroup() {
    let mut own = Own::new("limits");
    let cgroup = own.cgroup.clone();
    let set = |controller: &str, files: &[&str], value: &str| {
        let dir = cgroup.dir(controller).expect("mounted");
        let mut files = files.iter().map(|name| dir.join(name));
        let file = files.find(|file| file.exists()).expect("a file for it");
        fs::write(file, value).expect("written");
    };
    set(
        "memory",
        &["memory.limit_in_bytes", "memory.max"],
        "67108864",
    );
    set("pids", &["pids.max"], "32");
    own.run(&cgroup, "sleep 60 & exec 5</dev/null; wait");
    let usage = until(&cgroup, |usage| {
        usage.pids.is_some_and(|pids| pids.current == 2)
    });
    assert_eq!(usage.pids.and_then(|pids| pids.limit), Some(32));
    let memory = usage.memory.expect("accounted");
    assert_eq!(memory.limit, Some(64 << 20));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = processes::look(&cgroup).expect("there");
        assert_eq!(seen.processes, 2);
        assert!(seen.max_open_files.is_some());
        // Three each, and one more.
        if seen.files.is_some_and(|files| files.file_descriptors >= 7) {
            break;
        }
        assert!(Instant::now() < deadline, "{seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    cgroup.remove(PATIENCE).expect("removed");
    let gone = read(&cgroup, Detail::All).expect_err("gone");
    assert_eq!(gone.code(), Code::NotFound);
}

#[test]
fn a_mount_in_a_layer_is_not_counted() {
    let dir = Scratch::new();
    let top = dir.path().join("upper");
    let inner = top.join("mnt");
    fs::create_dir_all(&inner).expect("dir");
    nix::mount::mount(
        Some("none"),
        &inner,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        None::<&str>,
    )
    .expect("this test mounts: it needs root");
    fs::write(inner.join("file"), vec![1; 1 << 20]).expect("write");
    let go = std::sync::atomic::AtomicBool::new(false);
    let size = disk::usage(&top, &go).expect("measured");
    assert_eq!(size.inodes, 1, "{size:?}");
    let filesystem = Filesystem::measure(&top, size).expect("there");
    assert!(filesystem.bytes > 0 && filesystem.device.contains(':'));
    assert_eq!(filesystem.used, size);
}

#[tokio::test]
async fn the_network_of_a_pod_is_that_of_its_namespace() {
    let dir = Scratch::new();
    let pins = Pins::new(dir.path().join("pins"));
    let request = Request {
        kinds: vec![Kind::Net],
        ..Request::default()
    };
    pins.make("pod", request).await.expect("make");
    let counters = pins.counters("pod").await.expect("counters");
    let usage = network_usage(&counters, 1);
    assert!(
        usage.default_interface.is_none() && usage.interfaces.is_empty(),
        "only lo is there"
    );
    pins.remove("pod").await.expect("remove");
}

//! Features of this machine, and creating, joining and removing cgroups in its hierarchies. Needs root.

use std::process::Child;
use std::sync::atomic::AtomicU32;

use criscope::runtime::code::GrpcCode as _;
use criscope::runtime::node::{NodeOptions, detect};
use criscope::runtime::oci::OciRuntime;
use criscope::runtime::oci::spec::{CgroupVersion, Host as _, Machine};
use criscope_linux::cgroup::{Cgroup, Error, Hierarchies, processes};

use crate::prelude::*;

/// A private cgroup with its processes; both are removed on drop, even if the test fails.
pub(super) struct Own {
    pub(super) all: Hierarchies,
    pub(super) path: PathBuf,
    pub(super) cgroup: Cgroup,
    children: Vec<Child>,
}

impl Own {
    pub(super) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test creates cgroups: it needs root"
        );
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!(
            "/criscope-test-{name}-{}-{number}",
            std::process::id()
        ));
        let all = Hierarchies::detect().expect("mounted");
        let cgroup = all.make(&path).expect("made");
        Self {
            all,
            path,
            cgroup,
            children: Vec::new(),
        }
    }

    /// Runs a shell script in a cgroup. It first waits for a line, so that everything it does is accounted.
    pub(super) fn run(&mut self, cgroup: &Cgroup, script: &str) -> u32 {
        let child = Command::new("/bin/sh")
            .args(["-c", &format!("read line; {script}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        self.children.push(child);
        let child = self.children.last_mut().expect("there");
        cgroup.join(child.id()).expect("joined");
        let mut input = child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, b"go\n").expect("written");
        child.id()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ended = child.kill();
            let _reaped = child.wait();
        }
        let _gone = self.cgroup.remove(PATIENCE);
    }
}

#[tokio::test]
async fn detected_features_match_the_files_of_this_machine() {
    let runtime = OciRuntime::new("runc", "/tmp/criscope-none");
    let options = NodeOptions {
        runtime_features: Some(runtime.features().await.expect("runc has the verb")),
        pids_limit: 77,
        // Otherwise a profile would stay loaded.
        disable_apparmor: true,
        ..NodeOptions::default()
    };
    let facts = detect(&options).expect("facts");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("read");
    let (major, minor) = facts.kernel;
    assert!(
        release.starts_with(&format!("{major}.{minor}")),
        "{release}"
    );
    let unified = fs::exists("/sys/fs/cgroup/cgroup.controllers").expect("readable");
    assert_eq!(facts.cgroup_version == CgroupVersion::V2, unified);
    assert!(facts.seccomp, "supported by runc and by the kernel");
    assert_eq!(facts.recursive_read_only, facts.kernel >= (5, 12));
    assert_eq!(facts.pids_limit, 77);
    let devices = Machine.devices("/dev".as_ref()).expect("readable");
    let null = |path: &str| devices.iter().any(|node| node.path == *path);
    assert!(null("/dev/null") && !null("/dev/pts/0"));
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.expect("there").trim(), 16).expect("a mask")
    };
    assert_eq!(
        facts.all_capabilities.len(),
        mask("CapBnd:").count_ones() as usize
    );
    let own = fs::read_to_string("/proc/self/oom_score_adj").expect("read");
    let floor = (mask("CapEff:") >> 24 & 1 == 0).then(|| own.trim().parse().expect("a number"));
    assert_eq!(facts.oom_score_adj_floor, floor);
}

#[test]
fn a_leftover_cgroup_is_removed_with_its_processes() {
    let mut own = Own::new("remove");
    let below = own.all.make(&own.path.join("child")).expect("made");
    let top = own.cgroup.clone();
    let first = own.run(&top, "sleep 60 & sleep 60");
    let second = own.run(&below, "exec sleep 60");
    let found = processes(&top).expect("read");
    assert!(found.contains(&first) && found.contains(&second));
    assert_eq!(
        own.all.pid_cgroup(second).expect("there").dir("pids"),
        below.dir("pids")
    );
    // Frozen processes are killed too.
    if let Some(freezer) = below.dir("freezer") {
        let frozen = freezer.join("freezer.state");
        if frozen.exists() {
            fs::write(frozen, "FROZEN").expect("frozen");
        }
    }
    top.remove(PATIENCE).expect("removed");
    assert!(!top.exists() && !below.exists());
    top.remove(Duration::ZERO).expect("again");
    assert!(processes(&top).expect("none").is_empty());
    for child in &mut own.children {
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().expect("wait").is_none() {
            assert!(Instant::now() < deadline, "{} lives", child.id());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(matches!(top.join(1), Err(Error::NotFound { .. })));
}

#[test]
fn the_root_cgroup_and_our_own_are_never_removed() {
    let own = Own::new("refuse");
    let root = own.all.at("/".as_ref()).expect("valid");
    let refused = root.remove(Duration::ZERO).expect_err("a root");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let ours = own.all.pid_cgroup(std::process::id()).expect("there");
    let refused = ours.remove(Duration::ZERO).expect_err("our own");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(own.all.at("/a/../b".as_ref()).is_err());
    let gone = own
        .all
        .pid_cgroup(u32::MAX - 1)
        .expect_err("no such process");
    assert_eq!(gone.code(), Code::NotFound);
}

#[test]
fn a_hierarchy_in_which_no_cgroup_can_be_created_is_skipped() {
    let own = Own::new("partly");
    let read_only = tempfile::tempdir().expect("dir");
    let mut table = fs::read_to_string("/proc/self/mountinfo").expect("read");
    // A mount entry below a regular file: no cgroup can be created there.
    let file = read_only.path().join("file");
    fs::write(&file, "").expect("write");
    table += &format!(
        "1 2 0:3 / {} rw - cgroup cgroup rw,hugetlb\n",
        file.display()
    );
    let all = Hierarchies::parse(table.as_bytes()).expect("mounted");
    if all.version() == CgroupVersion::V1 {
        let made = all.make(&own.path).expect("made in the others");
        assert_eq!(made.dir("hugetlb"), None);
        assert_eq!(made.dirs().count(), all.iter().count() - 1);
    }
    let alone = format!(
        "1 2 0:3 / {} rw - cgroup cgroup rw,hugetlb\n",
        file.display()
    );
    let alone = Hierarchies::parse(alone.as_bytes()).expect("mounted");
    assert!(matches!(alone.make(&own.path), Err(Error::Io { .. })));
}

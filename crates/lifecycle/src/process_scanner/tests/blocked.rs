//! Processes that cannot go on: in a simulated `/proc`, and real ones.

use std::ffi::CString;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use super::*;
use crate::TEST_TIMEOUT;
use crate::process_scanner::WorkKind;
use criscope_cri::call::steps::RuntimeSteps;

const UID: &str = "0b5e0000-0000-4000-8000-000000000001";

/// Where the simulated threads have their path arguments.
const ADDRESS: u64 = 0x100;

impl Node {
    fn state(&self, pid: u32, state: char) {
        let path = self.path(pid).join("stat");
        let text = fs::read_to_string(&path).expect("stat");
        let (before, after) = text.rsplit_once(") ").expect("stat");
        fs::write(&path, format!("{before}) {state}{}", &after[1..])).expect("stat");
    }

    /// A thread in this state and system call.
    fn thread(&self, pid: u32, thread: u32, state: char, syscall: &str) {
        let dir = self.path(pid).join(format!("task/{thread}"));
        fs::create_dir_all(&dir).expect("dir");
        let zeros = "0 ".repeat(17);
        let stat = format!("{thread} (x) {state} 1 {zeros}50 0 0\n");
        fs::write(dir.join("stat"), stat).expect("stat");
        fs::write(dir.join("syscall"), syscall).expect("syscall");
        fs::write(dir.join("wchan"), "rpc_wait_bit_killable").expect("wchan");
    }

    /// The memory of a process, with this path in it.
    fn memory(&self, pid: u32, path: &str) {
        let memory = fs::File::create(self.path(pid).join("mem")).expect("mem");
        let text = CString::new(path).expect("no zero");
        memory
            .write_all_at(text.as_bytes_with_nul(), ADDRESS)
            .expect("mem");
        let mounts = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {} rw - nfs4 server:/{CANARY} rw\n",
            volume(UID)
        );
        fs::write(self.path(pid).join("mountinfo"), mounts).expect("mountinfo");
    }
}

fn volume(uid: &str) -> String {
    format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~nfs/vol1")
}

fn umount() -> String {
    format!(
        "{} {ADDRESS:#x} 0x8 0x0 0x0 0x0 0x0 0x7f 0x7f\n",
        libc::SYS_umount2
    )
}

/// A call for a pod with this uid.
fn of_uid(seq: u64, method: Method, uid: &str, ids: [Option<&str>; 2]) -> Arc<Call> {
    let mut call = Call::example(method);
    call.seq = seq;
    let pod = PodIdentity {
        namespace: "shop".into(),
        name: "cart".into(),
        uid: uid.into(),
        attempt: 0,
    };
    let subject = Subject {
        pod: Some(Arc::new(pod)),
        sandbox_id: ids[0].map(Arc::from),
        container_id: ids[1].map(Arc::from),
        ..Subject::default()
    };
    call.subject.set(subject).expect("once");
    Arc::new(call)
}

/// Scans until something holds up the call, and returns that.
fn held(scanner: &mut ProcessScanner, calls: &[Arc<Call>], seq: u64) -> Vec<Observation> {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let found = scanner.scan(calls).expect("scan");
        let mut held = observations_of(&found, seq);
        held.retain(|it| it.work == WorkKind::Blocked);
        if !held.is_empty() {
            assert!(!format!("{found:?}").contains(CANARY));
            return held;
        }
        assert!(Instant::now() < end, "{found:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Scans for longer than it takes to say that something is held up.
fn nothing_holds(scanner: &mut ProcessScanner, calls: &[Arc<Call>]) {
    let end = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < end {
        let found = scanner.scan(calls).expect("scan");
        assert!(found.calls.is_empty(), "{found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn phrases(held: &[Observation]) -> Vec<String> {
    held.iter().map(Observation::phrase).collect()
}

#[test]
fn a_thread_of_the_runtime_in_a_mount_of_the_pod() {
    let node = Node::new();
    let mut scanner = node.scanner();
    node.thread(
        DAEMON,
        DAEMON,
        'S',
        "202 0x0 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n",
    );
    node.thread(DAEMON, 101, 'D', &umount());
    node.memory(DAEMON, &volume(UID));
    let calls = [
        of_uid(1, Method::StopPodSandbox, UID, [Some("s1"), None]),
        of_uid(2, Method::StopPodSandbox, "other", [Some("s2"), None]),
    ];
    let held = held(&mut scanner, &calls, 1);
    let place = format!("blocked in umount of {} (nfs4)", volume(UID));
    assert_eq!(phrases(&held), [format!("in containerd, {place}")]);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(
        observations_of(&found, 2),
        [],
        "the other pod has no part in it"
    );
}

#[test]
fn what_the_runtime_does_for_other_pods_or_all_the_time_holds_up_no_call() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let other = "0b5e0000-0000-4000-8000-00000000ffff";
    node.thread(DAEMON, 101, 'D', &umount());
    node.memory(DAEMON, &volume(other));
    // Idle, and at the end of a FIFO.
    node.thread(DAEMON, 102, 'S', "202 0x0 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n");
    let open = format!(
        "{} 0xffffff9c {ADDRESS:#x} 0x0 0x0 0x0 0x0 0x7f 0x7f\n",
        libc::SYS_openat
    );
    node.thread(DAEMON, 103, 'S', &open);
    let calls = [of_uid(1, Method::StopPodSandbox, UID, [Some("s1"), None])];
    nothing_holds(&mut scanner, &calls);
}

#[test]
fn a_runtime_a_shim_and_a_container_that_cannot_go_on() {
    let node = Node::new();
    node.add(150, "containerd-shim", 1, 70);
    node.cmdline(
        150,
        &["containerd-shim-runc-v2", "-id", "s1", "-address", SOCKET],
    );
    node.add(151, "app", 150, 71);
    fs::write(
        node.path(151).join("cgroup"),
        "0::/kubepods/cri-containerd-c1.scope\n",
    )
    .expect("cgroup");
    node.thread(151, 151, 'D', "74 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n");
    let calls = [
        of_uid(1, Method::StopContainer, UID, [Some("s1"), Some("c1")]),
        of_uid(2, Method::StopContainer, UID, [Some("s1"), Some("c2")]),
    ];
    let mut scanner = node.scanner();
    let own = held(&mut scanner, &calls, 1);
    assert!(
        own[0].name.contains("process 151 of the container"),
        "{own:?}"
    );
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(observations_of(&found, 2), [], "it is in another container");

    node.state(150, 'T');
    let calls = [of_uid(3, Method::StopPodSandbox, UID, [Some("s1"), None])];
    let mut scanner = node.scanner();
    let shim = held(&mut scanner, &calls, 3);
    assert!(
        phrases(&shim).contains(&"in containerd-shim, stopped by a signal".to_owned()),
        "{shim:?}"
    );

    node.state(DAEMON, 'T');
    let calls = [
        of_uid(4, Method::PullImage, "other", [None; 2]),
        of_uid(5, Method::RunPodSandbox, "third", [None; 2]),
    ];
    let mut scanner = node.scanner();
    let pull = held(&mut scanner, &calls, 4);
    assert_eq!(phrases(&pull), ["in containerd, stopped by a signal"]);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 5), ["in containerd, stopped by a signal"]);
}

/// The built-in runtime records its steps, but not what holds them up.
#[test]
fn a_container_of_the_built_in_runtime_that_cannot_go_on() {
    let node = Node::new();
    node.add(160, "criscope-shim", 1, 70);
    node.cmdline(160, &["criscope-shim", "/run/criscope/sandboxes/s1"]);
    node.add(161, "app", 160, 71);
    let cgroup = "0::/kubepods/criscope-c1.scope\n";
    fs::write(node.path(161).join("cgroup"), cgroup).expect("cgroup");
    node.thread(161, 161, 'D', "74 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n");
    let call = of_uid(1, Method::StopContainer, UID, [Some("s1"), Some("c1")]);
    assert!(call.steps.set(Arc::new(RuntimeSteps::new(None))).is_ok());
    let mut scanner = node.scanner();
    node.plugin(300, "calico", DAEMON, "DEL", "s1", "cart");
    let own = held(&mut scanner, &[call], 1);
    let phrases = phrases(&own);
    assert_eq!(phrases.len(), 1, "the steps show its plugins: {phrases:?}");
    assert!(
        phrases[0].contains("process 161 of the container"),
        "{phrases:?}"
    );
}

/// A child that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A scanner of this machine for a runtime with this process.
fn real(pid: u32) -> ProcessScanner {
    let mut scanner = ProcessScanner::new(ProcFs::new(Path::new("/proc")));
    scanner.set_upstreams(vec![Upstream {
        backend: "main".into(),
        socket: SOCKET.into(),
        pid: Some(pid),
        is_containerd: true,
    }]);
    scanner
}

fn cat() -> Running {
    let mut cat = Command::new("/bin/cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::null());
    Running(cat.spawn().expect("start"))
}

#[test]
fn a_real_process_that_is_stopped() {
    let runtime = cat();
    let pid = runtime.0.id();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGSTOP).expect("stop");
    let calls = [of_uid(1, Method::StopPodSandbox, UID, [Some("s1"), None])];
    let mut scanner = real(pid);
    let held = held(&mut scanner, &calls, 1);
    assert_eq!(phrases(&held), ["in cat, stopped by a signal"]);
    let last = held[0].last_seen;
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT).expect("continue");
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        let found = scanner.scan(&calls).expect("scan");
        let late = observations_of(&found, 1)[0].last_seen.duration_since(last);
        // One look may have been made before.
        assert!(
            late.expect("after") < Duration::from_millis(700),
            "{found:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_real_process_that_waits_for_a_lock() {
    let dir = tempfile::tempdir().expect("dir");
    let file = fs::File::create(dir.path().join("lock")).expect("file");
    file.lock().expect("lock");
    let mut flock = Command::new("flock");
    flock.arg(dir.path().join("lock")).arg("true");
    let runtime = Running(flock.spawn().expect("start flock (package util-linux)"));
    let calls = [of_uid(1, Method::StopPodSandbox, UID, [Some("s1"), None])];
    let held = held(&mut real(runtime.0.id()), &calls, 1);
    let phrase = held[0].phrase();
    assert!(
        phrase.starts_with("in flock, blocked in flock on /"),
        "{phrase}"
    );
}

/// The caller of vfork is in an uninterruptible sleep until its child starts a program, which opens a FIFO first.
#[test]
fn a_real_thread_in_uninterruptible_sleep() {
    use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
    let dir = tempfile::tempdir().expect("dir");
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).expect("fifo");
    let path = fifo.clone();
    let spawning = std::thread::spawn(move || {
        let mut actions = PosixSpawnFileActions::init().expect("actions");
        let mode = Mode::empty();
        actions
            .add_open(0, &path, OFlag::O_RDONLY, mode)
            .expect("action");
        let attributes = PosixSpawnAttr::init().expect("attributes");
        let args = [CString::new("cat").expect("text")];
        let none: [CString; 0] = [];
        posix_spawn(Path::new("/bin/cat"), &actions, &attributes, &args, &none).expect("spawn")
    });
    let calls = [of_uid(1, Method::StopPodSandbox, UID, [Some("s1"), None])];
    let mut scanner = real(std::process::id());
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let phrases = phrases(&held(&mut scanner, &calls, 1));
        if phrases
            .iter()
            .any(|it| it.contains("blocked in the kernel"))
        {
            break;
        }
        assert!(Instant::now() < end, "{phrases:?}");
    }
    let mut other_end = fs::OpenOptions::new()
        .write(true)
        .open(&fifo)
        .expect("open");
    let cat = spawning.join().expect("spawned");
    other_end.write_all(b"\n").expect("write");
    drop(other_end);
    nix::sys::wait::waitpid(cat, None).expect("wait");
}

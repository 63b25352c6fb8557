//! Whole runs against a fake runtime: the sequence of calls, and that every failure is cleaned up.

mod fake;

use std::sync::Arc;

use tempfile::TempDir;
use tokio::sync::mpsc::Sender;
use tonic::Code;

use self::fake::FakeRuntime;
use super::busybox::tests::elf;
use super::*;

/// Every call of a run that succeeds.
const CALLS: [&str; 14] = [
    "Version",
    "Status",
    "RuntimeConfig",
    "PullImage",
    "RunPodSandbox",
    "CreateContainer",
    "StartContainer",
    "ExecSync",
    "ContainerStatus",
    "PodSandboxStatus",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
];

struct SilentProgress;

impl StepProgress for SilentProgress {
    fn begins(&mut self, _: &'static str) {}
    fn ended(&mut self, _: &FinishedStep) {}
}

/// The options of a run without a runtime.
pub(super) fn options() -> SmokeOptions {
    SmokeOptions {
        socket: PathBuf::new(),
        run: "run-1".into(),
        name: "web".into(),
        command: None,
        registry_delay: Duration::ZERO,
        image: None,
        busybox: None,
        handler: None,
        host_network: false,
        keep: false,
        registry_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        log_dir: PathBuf::new(),
        cgroup_parent: None,
        timeout: Duration::from_secs(30),
    }
}

/// Counts the looks at a pod before it is removed.
#[derive(Default)]
struct LookCounter(u32);

impl StepProgress for LookCounter {
    fn begins(&mut self, _: &'static str) {}
    fn ended(&mut self, _: &FinishedStep) {}
    fn before_removal(&mut self) -> futures_util::future::BoxFuture<'_, ()> {
        self.0 += 1;
        Box::pin(std::future::ready(()))
    }
}

/// A fake runtime, and the options of a run against it.
struct SmokeBench {
    dir: TempDir,
    fake: Arc<FakeRuntime>,
    options: SmokeOptions,
    interrupt: Sender<&'static str>,
    interrupts: mpsc::Receiver<&'static str>,
}

impl SmokeBench {
    fn new(fake: FakeRuntime) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("cri.sock");
        let busybox = dir.path().join("busybox");
        fs::write(&busybox, elf(2, 62, 1)).expect("write");
        let logs = dir.path().join("logs");
        fs::create_dir(&logs).expect("mkdir");
        let (interrupt, interrupts) = mpsc::channel(4);
        Self {
            fake: fake.serve(&socket),
            options: SmokeOptions {
                socket,
                busybox: Some(busybox),
                log_dir: logs,
                ..options()
            },
            dir,
            interrupt,
            interrupts,
        }
    }

    async fn run(&mut self) -> SmokeReport {
        run(&self.options, &mut SilentProgress, &mut self.interrupts).await
    }

    /// Asserts that neither the runtime nor the disk has any object of the run.
    fn assert_clean(&self, report: &SmokeReport) {
        assert_eq!(report.left, Vec::<LeftoverObject>::new());
        let objects = self.fake.objects();
        assert_eq!(objects.sandboxes.len(), 0, "{:?}", objects.calls);
        assert_eq!(objects.images, Vec::<String>::new(), "{:?}", objects.calls);
        let mut logs = fs::read_dir(self.dir.path().join("logs")).expect("readable");
        assert!(logs.next().is_none());
    }
}

#[tokio::test]
async fn a_run_makes_every_call_once_and_leaves_nothing() {
    let mut bench = SmokeBench::new(FakeRuntime::default());
    let report = bench.run().await;
    assert!(report.ok, "{:?}", report.failed());
    assert_eq!(
        report.runtime.as_ref().map(|it| it.name.as_str()),
        Some("fake")
    );
    let calls = bench.fake.objects().calls.clone();
    assert_eq!(calls[..CALLS.len()], CALLS);
    assert_eq!(calls[CALLS.len()..], ["RemoveImage"]);
    bench.assert_clean(&report);

    let json = serde_json::to_value(&report).expect("serializes");
    assert_eq!(json["steps"].as_array().map(Vec::len), Some(18));
    assert_eq!(json["steps"][1]["name"], "Version");
    assert!(json["steps"][1]["took_ms"].as_f64() > Some(0.0));
}

#[tokio::test]
async fn a_pod_can_be_looked_at_before_it_is_removed_even_if_it_failed() {
    for (fails, looks) in [
        (None, 1),
        (Some(("StartContainer", Code::Internal)), 1),
        (Some(("RunPodSandbox", Code::Internal)), 0),
    ] {
        let mut bench = SmokeBench::new(FakeRuntime {
            fails,
            ..FakeRuntime::default()
        });
        bench.options.command = Some("/usr/bin/servd".to_owned());
        let mut seen = LookCounter::default();
        let report = run(&bench.options, &mut seen, &mut bench.interrupts).await;
        assert_eq!((report.ok, seen.0), (fails.is_none(), looks), "{fails:?}");
        bench.assert_clean(&report);
        let calls = bench.fake.objects().calls.clone();
        assert!(
            !calls.iter().any(|call| call == "ExecSync"),
            "another program has no shell: {calls:?}"
        );
    }
}

#[tokio::test]
async fn every_failure_is_cleaned_up() {
    // A permanently failing removal of a sandbox is reported; the next test checks that for the image.
    for (index, method) in CALLS[..12].iter().copied().enumerate() {
        let mut bench = SmokeBench::new(FakeRuntime {
            fails: Some((method, Code::Internal)),
            ..FakeRuntime::default()
        });
        let report = bench.run().await;
        assert!(!report.ok);
        let failed = report.failed().expect("a step");
        assert_eq!(failed.name, method);
        bench.assert_clean(&report);
        assert_eq!(bench.fake.objects().calls[..=index], CALLS[..=index]);
    }
}

#[tokio::test]
async fn objects_that_cannot_be_removed_are_reported() {
    let mut bench = SmokeBench::new(FakeRuntime {
        fails: Some(("RemoveImage", Code::Internal)),
        ..FakeRuntime::default()
    });
    let report = bench.run().await;
    assert_eq!(report.failed().map(|step| step.name), Some("RemoveImage"));
    let [left] = &report.left[..] else {
        panic!("{:?}", report.left);
    };
    assert!(left.what.starts_with("image 127.0.0.1:"), "{left:?}");
    assert!(left.remove.contains(" rmi 127.0.0.1:"), "{left:?}");
}

#[tokio::test]
async fn an_interrupt_lets_the_call_in_flight_end() {
    let mut bench = SmokeBench::new(FakeRuntime {
        held: Some("StartContainer"),
        ..FakeRuntime::default()
    });
    let (fake, interrupt) = (Arc::clone(&bench.fake), bench.interrupt.clone());
    let person = tokio::spawn(async move {
        fake.reached.take().await;
        interrupt.send("interrupted").await.expect("listens");
        // The run must receive it before the call continues.
        interrupt.reserve_many(4).await.expect("listens");
        fake.release.add();
    });
    let report = bench.run().await;
    person.await.expect("no panic");
    let start = report
        .steps
        .iter()
        .find(|step| step.name == "StartContainer");
    assert!(start.is_some_and(FinishedStep::ok));
    assert_eq!(report.failed().map(|step| step.name), Some("ExecSync"));
    assert!(!bench.fake.objects().calls.contains(&"ExecSync".to_owned()));
    bench.assert_clean(&report);
}

#[tokio::test]
async fn a_second_interrupt_aborts_and_late_objects_are_removed() {
    for method in ["PullImage", "RunPodSandbox"] {
        let mut bench = SmokeBench::new(FakeRuntime {
            held: Some(method),
            ..FakeRuntime::default()
        });
        let (fake, interrupt) = (Arc::clone(&bench.fake), bench.interrupt.clone());
        let person = tokio::spawn(async move {
            fake.reached.take().await;
            interrupt.send("interrupted").await.expect("listens");
            interrupt.send("interrupted").await.expect("listens");
            interrupt.reserve_many(4).await.expect("listens");
            // The caller has disconnected, or does so now; the runtime continues and creates it.
            fake.release.add();
        });
        let report = bench.run().await;
        person.await.expect("no panic");
        assert_eq!(report.failed().map(|step| step.name), Some(method));
        assert!(
            report
                .steps
                .iter()
                .any(|step| step.name == "clean up" && step.ok())
        );
        bench.assert_clean(&report);
    }
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_the_timeout() {
    let mut bench = SmokeBench::new(FakeRuntime {
        held: Some("ExecSync"),
        ..FakeRuntime::default()
    });
    // Long enough to get this far on any machine. Then the clock is advanced, but not past the deadline of the cleanup,
    // which uses the same clock.
    let timeout = CLEANUP_TIMEOUT / 2;
    bench.options.timeout = timeout;
    let fake = Arc::clone(&bench.fake);
    let clock = tokio::spawn(async move {
        fake.reached.take().await;
        tokio::time::pause();
        tokio::time::advance(timeout).await;
        tokio::time::resume();
    });
    let report = bench.run().await;
    clock.await.expect("no panic");
    let failed = report.failed().expect("a step");
    assert_eq!(failed.name, "ExecSync");
    assert!(failed.took < CLEANUP_TIMEOUT);
    bench.assert_clean(&report);
}

#[tokio::test]
async fn keep_leaves_and_reports_everything() {
    let mut bench = SmokeBench::new(FakeRuntime::default());
    bench.options.keep = true;
    let report = bench.run().await;
    assert!(report.ok && report.kept);
    assert_eq!(bench.fake.objects().sandboxes.len(), 1);
    assert_eq!(report.left.len(), 3, "{:?}", report.left);
}

#[tokio::test]
async fn a_given_image_is_not_pulled_again_and_never_removed() {
    let mut bench = SmokeBench::new(FakeRuntime::default());
    bench.options.image = Some("registry.example/busybox:1".into());
    for pulls in [1, 1] {
        let report = bench.run().await;
        assert!(report.ok, "{:?}", report.failed());
        let objects = bench.fake.objects();
        let count = objects
            .calls
            .iter()
            .filter(|call| *call == "PullImage")
            .count();
        assert_eq!(count, pulls);
        assert_eq!(objects.images, ["registry.example/busybox:1"]);
    }
}

#[tokio::test]
async fn the_parent_cgroup_fits_the_driver_unless_given() {
    for (named, parent) in [(None, "system.slice"), (Some("/mine"), "/mine")] {
        let mut bench = SmokeBench::new(FakeRuntime::default());
        bench.options.keep = true;
        bench.options.cgroup_parent = named.map(str::to_owned);
        assert!(bench.run().await.ok);
        let objects = bench.fake.objects();
        let pod = objects.sandboxes.values().next().expect("kept");
        let linux = pod.linux.as_ref().expect("linux");
        assert_eq!(linux.cgroup_parent, parent);
    }
}

#[tokio::test]
async fn a_missing_socket_is_a_failed_step() {
    let mut bench = SmokeBench::new(FakeRuntime::default());
    bench.options.socket = bench.dir.path().join("absent.sock");
    let report = bench.run().await;
    let failed = report.failed().expect("a step");
    assert_eq!(failed.name, "connect");
    assert!(matches!(&failed.ended, timeline::StepOutcome::Failed(it) if it.hint.is_some()));
    bench.assert_clean(&report);
}

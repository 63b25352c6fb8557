//! Containers whose cgroup is frozen: by an administrator, by a nested container runtime, by a checkpoint that was interrupted.

use std::sync::atomic::AtomicBool;

use criscope_linux::cgroup::{self, Cgroup};

use super::cgroups::Parent;
use crate::prelude::*;

/// Frozen cgroups, which are thawed even if the test fails.
struct Frozen(Vec<PathBuf>);

impl Frozen {
    /// Freezes a cgroup by the hierarchy that has its processes, and waits until they are.
    fn new(cgroup: &Cgroup) -> Self {
        Self::at(cgroup.dir("freezer").expect("a freezer"))
    }

    fn at(dir: &Path) -> Self {
        let this = Self(vec![dir.to_owned()]);
        this.freeze();
        let end = Instant::now() + Duration::from_secs(10);
        while !is_frozen(dir) {
            assert!(Instant::now() < end, "{} does not freeze", dir.display());
        }
        this
    }

    fn freeze(&self) {
        for dir in &self.0 {
            // The cgroup may be gone.
            for (file, value) in [("freezer.state", "FROZEN"), ("cgroup.freeze", "1")] {
                let file = dir.join(file);
                let _gone = file.exists().then(|| fs::write(file, value));
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for dir in &self.0 {
            cgroup::thaw(dir).expect("thawed");
        }
    }
}

fn is_frozen(dir: &Path) -> bool {
    [("freezer.state", "FROZEN"), ("cgroup.events", "frozen 1")]
        .iter()
        .any(|(file, line)| {
            let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
            text.lines().any(|one| one == *line)
        })
}

/// The init process of a container.
fn init(daemon: &Daemon, id: &str) -> u32 {
    let record = daemon.root().join("root/containers").join(id);
    let record = fs::read(record.join("record.json")).expect("a record");
    let record: Value = serde_json::from_slice(&record).expect("json");
    let pid = record["pid"].as_u64().expect("a pid");
    u32::try_from(pid).expect("a pid")
}

/// Moves all but the init of a container into a cgroup two levels below it, as nested containers have, and freezes that.
fn freeze_nested(daemon: &Daemon, parent: &Parent, id: &str) -> Frozen {
    let dir = parent.container(id);
    let dir = dir.dir("freezer").expect("a freezer").to_owned();
    let nested = dir.join("nested/container");
    fs::create_dir_all(&nested).expect("nested");
    let own = init(daemon, id).to_string();
    let all = fs::read_to_string(dir.join("cgroup.procs")).expect("processes");
    let others: Vec<_> = all.lines().filter(|pid| **pid != own).collect();
    assert!(!others.is_empty(), "{all}");
    for pid in others {
        fs::write(nested.join("cgroup.procs"), pid).expect("moved");
    }
    Frozen::at(&nested)
}

/// Places at which a container can be frozen.
#[derive(Clone, Copy, Debug)]
enum Place {
    Container,
    Pod,
    Nested,
    /// The hierarchy of version 2 beside those of version 1.
    Unified,
}

impl Place {
    const ALL: [Self; 4] = [Self::Container, Self::Pod, Self::Nested, Self::Unified];

    fn freeze(self, daemon: &Daemon, parent: &Parent, id: &str) -> Option<Frozen> {
        let container = parent.container(id);
        Some(match self {
            Self::Container => Frozen::new(&container),
            Self::Pod => Frozen::new(&container.parent().expect("the pod's")),
            Self::Nested => freeze_nested(daemon, parent, id),
            Self::Unified => {
                let mut dirs = container.dirs();
                let dir = dirs.find(|dir| dir.join("cgroup.freeze").exists())?;
                Frozen::at(dir)
            }
        })
    }
}

/// A pod with a cgroup of its own.
async fn run(kubelet: &Kubelet, parent: &Parent, name: &str) -> Pod {
    let mut config = kubelet.pod_config(name);
    let linux = config.linux.get_or_insert_default();
    linux.cgroup_parent = parent.path().to_owned();
    kubelet.run(config).await
}

/// A container with two processes that do not end by a signal other than SIGKILL.
fn stubborn(name: &str) -> v1::ContainerConfig {
    shell(name, "trap '' TERM; sleep 1000000 & while :; do wait; done")
}

/// Waits until the sleeping process of a container is there.
async fn has_child(kubelet: &Kubelet, id: &str) {
    let script = "until busybox ps -o args | grep -q '^sleep 1000000'; do sleep 0.02; done";
    kubelet.says(id, script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_container_ends_by_itself_with_its_stop() {
    let (daemon, kubelet) = node().await;
    let parent = Parent::new(&daemon, "pod");
    let pod = run(&kubelet, &parent, "frozen").await;
    let other = kubelet.launch(&pod, idle("other")).await;
    let mut thawed = 0;
    for place in Place::ALL {
        let id = kubelet
            .launch(&pod, idle(&format!("{place:?}").to_lowercase()))
            .await;
        has_child(&kubelet, &id).await;
        let Some(frozen) = place.freeze(&daemon, &parent, &id) else {
            continue;
        };
        kubelet.stop(&id, 100).await;
        let status = kubelet.status(&id).await;
        assert_eq!(status.exit_code, 0, "{place:?}: it was not killed");
        assert!(!parent.container(&id).exists(), "{place:?}");
        drop(frozen);
        thawed += 1;
    }
    assert_eq!(kubelet.says(&other, "echo on").await, "on");
    let log = daemon.program().events();
    let told = log.iter().filter(|line| line["event"] == "runtime.thaw");
    assert!(told.count() >= thawed);
    let scrape = daemon.program().scrape().await;
    let steps = scrape.metric("criscope_runtime_phase_duration_seconds_count");
    assert!(steps.with("phase", "thaw").sum() >= 3.0);
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_containers_and_pods_are_killed_and_removed() {
    let (daemon, kubelet) = node().await;
    let parent = Parent::new(&daemon, "pod");
    for place in Place::ALL {
        let pod = run(&kubelet, &parent, "frozen").await;
        let mut all = Vec::new();
        for name in ["stopped", "removed", "left"] {
            let id = kubelet.launch(&pod, stubborn(name)).await;
            has_child(&kubelet, &id).await;
            all.push(id);
        }
        let frozen = all.iter().map(|id| place.freeze(&daemon, &parent, id));
        let Some(frozen) = frozen.collect::<Option<Vec<_>>>() else {
            continue;
        };
        kubelet.stop(&all[0], 1).await;
        assert_eq!(kubelet.status(&all[0]).await.exit_code, 137, "{place:?}");
        frozen.iter().for_each(Frozen::freeze);
        kubelet.remove(&all[1]).await;
        frozen.iter().for_each(Frozen::freeze);
        // Without StopPodSandbox before, as in a forced removal.
        kubelet.remove_pod(&pod.id).await;
        for id in &all {
            assert!(!parent.container(id).exists(), "{place:?}");
        }
    }
    parent.remove();
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_frozen_again_while_it_ends() {
    let (daemon, kubelet) = node().await;
    let parent = Parent::new(&daemon, "pod");
    let pod = run(&kubelet, &parent, "again").await;
    for grace in [0, 1] {
        let id = kubelet
            .launch(&pod, stubborn(&format!("after-{grace}")))
            .await;
        has_child(&kubelet, &id).await;
        let over = Arc::new(AtomicBool::new(false));
        let frozen = Frozen::new(&parent.container(&id));
        let ends = Arc::clone(&over);
        let freezing = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                frozen.freeze();
                // How often it is frozen again.
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        kubelet.stop(&id, grace).await;
        assert_eq!(kubelet.status(&id).await.exit_code, 137);
        over.store(true, Ordering::Relaxed);
        freezing.join().expect("thawed");
    }
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

/// What a killed shim or a lost record leaves is frozen too.
#[tokio::test(flavor = "multi_thread")]
async fn frozen_containers_without_a_shim_or_a_record_are_killed() {
    let (mut daemon, kubelet) = node().await;
    let parent = Parent::new(&daemon, "pod");
    for place in [Place::Container, Place::Pod, Place::Nested] {
        let pod = run(&kubelet, &parent, "shimless").await;
        let id = kubelet.launch(&pod, stubborn("main")).await;
        has_child(&kubelet, &id).await;
        let frozen = place.freeze(&daemon, &parent, &id).expect("frozen");
        kill(daemon.shim(&pod.id), Signal::SIGKILL).expect("killed");
        kubelet.ended(&id).await;
        until_true("its processes and its cgroup are gone", async || {
            !parent.container(&id).exists()
        })
        .await;
        kubelet.end(&pod).await;
        drop(frozen);
    }
    for place in [Place::Container, Place::Pod, Place::Nested] {
        let kubelet = Kubelet::of(&daemon).await;
        let pod = run(&kubelet, &parent, "unrecorded").await;
        let id = kubelet.launch(&pod, stubborn("main")).await;
        has_child(&kubelet, &id).await;
        daemon.kill();
        let frozen = place.freeze(&daemon, &parent, &id).expect("frozen");
        let record = daemon.root().join("root/containers").join(&id);
        fs::remove_file(record.join("record.json")).expect("removed");
        let copy = daemon.state().join(format!("state/records/{id}.json"));
        fs::remove_file(copy).expect("removed");
        daemon.start().await;
        until_true("its processes and its cgroup are gone", async || {
            !parent.container(&id).exists()
        })
        .await;
        drop(frozen);
        Kubelet::of(&daemon).await.end(&pod).await;
    }
    parent.remove();
    daemon.assert_clean();
}

/// The OCI runtime refuses a command in a frozen container, and hangs with it if the cgroup above is frozen. A probe must fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_frozen_container_fails_at_its_deadline() {
    let (daemon, kubelet) = node().await;
    let parent = Parent::new(&daemon, "pod");
    let pod = run(&kubelet, &parent, "probed").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    for place in [Place::Container, Place::Pod] {
        let frozen = place.freeze(&daemon, &parent, &id).expect("frozen");
        let began = Instant::now();
        assert_refused(
            kubelet.try_exec(&id, words("true"), 1).await,
            Code::DeadlineExceeded,
            "is frozen",
        );
        assert!(began.elapsed() < Duration::from_secs(20), "{place:?}");
        let endless = kubelet.try_exec(&id, words("true"), 0);
        assert_refused(
            soon("an exec", endless).await,
            Code::FailedPrecondition,
            "is frozen",
        );
        // Thawed in time.
        let (other, container) = (kubelet.clone(), id.clone());
        let mut probe =
            tokio::spawn(
                async move { other.try_exec(&container, words("echo thawed"), 100).await },
            );
        let early = tokio::time::timeout(Duration::from_millis(200), &mut probe).await;
        assert!(early.is_err(), "{place:?}: it is frozen");
        drop(frozen);
        let said = probe.await.expect("a task").expect("ExecSync");
        assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "thawed");
    }
    // None of the refused commands runs.
    let commands = "busybox ps -o args | grep -c '^true' || :";
    assert_eq!(kubelet.says(&id, commands).await, "0");
    kubelet.end(&pod).await;
    parent.remove();
    daemon.assert_clean();
}

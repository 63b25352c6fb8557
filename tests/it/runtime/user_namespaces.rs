//! Pods with users of their own: their namespaces, root file systems and containers, with real runc. Needs root, runc and
//! busybox-static.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Scratch;
use super::oci::{facts, words};
use crate::harness::until;
use criscope::cri::v1;
use criscope::runtime::oci::spec::{
    self, HandlerOptions, ImageConfig, Machine, Request as Wanted, SandboxFacts, UserDatabase,
};
use criscope::runtime::oci::{Create, OciRuntime};
use criscope::runtime::rootfs::{
    IdMapped, MountRequest, Rootfs, Shm, list_mounts_below, mount_shm, prepare_volumes,
};
use criscope::runtime::sys::idmap::{Mappings, Range};
use criscope::runtime::sys::namespace::{Error, Kind, Pins, Request, State};
use criscope::runtime::sys::sysctl::Sysctl;

const SHIM: &str = env!("CARGO_BIN_EXE_criscope-shim");
const HOST: u32 = 2_000_000;
const LENGTH: u32 = 65_536;

/// A place every user may pass through, as the data directory of the daemon must be for these pods.
fn scratch() -> Scratch {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let dir = Scratch::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).expect("mode");
    dir
}

fn pins(dir: &Scratch) -> Pins {
    Pins::new(dir.path().join("pins")).with_helper(SHIM)
}

fn mappings() -> Mappings {
    let range = Range {
        container_id: 0,
        host_id: HOST,
        length: LENGTH,
    };
    Mappings::new(vec![range], vec![range]).expect("valid")
}

fn request() -> Request {
    Request {
        kinds: vec![Kind::Net, Kind::Ipc, Kind::Uts],
        hostname: Some("inside".to_owned()),
        sysctls: [
            ("net.ipv4.ip_unprivileged_port_start", "0"),
            ("kernel.shm_rmid_forced", "1"),
            ("kernel.domainname", "pods"),
        ]
        .map(|(name, value)| Sysctl::new(name, value).expect("valid"))
        .into(),
        user: Some(mappings()),
    }
}

/// Processes that run the helper for `dir`'s tests: children of this process.
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
    until("the end of every helper", || async {
        (helpers() == 0).then_some(())
    })
    .await;
}

/// What a shell says that is root in the namespaces of a pod.
fn as_root_of(pins: &Pins, id: &str, script: &str) -> String {
    let mut command = Command::new("nsenter");
    for kind in Kind::ALL {
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
async fn the_namespaces_belong_to_the_users_of_the_pod() {
    let dir = scratch();
    let pins = pins(&dir);
    let hostname = fs::read("/proc/sys/kernel/hostname").expect("read");
    pins.make("a", request()).await.expect("make");
    no_helper_left().await;
    for kind in Kind::ALL {
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
    // Only an owner may: root of the pod has no rights in the node's namespaces.
    as_root_of(
        &pins,
        "a",
        "hostname other && echo 1 > /proc/sys/net/ipv4/ip_forward",
    );
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
    // Ids the kernel takes from nobody: more than there are on the node are refused before, so here it is a program that
    // is none, ends early, or says why.
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\necho no room >&2; exit 1\n").expect("script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("mode");
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
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let unmapped = Request {
        kinds: Kind::ALL.to_vec(),
        ..Request::default()
    };
    let refused = pins(&dir).make("a", unmapped).await.expect_err("no users");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
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
    // What the kernel does to the descriptors of a process that is killed.
    drop(helper.stdin.take());
    assert!(helper.wait().expect("ends").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_go_away_and_many_at_once_leave_nothing() {
    let dir = scratch();
    let pins = pins(&dir);
    let make = (0..12).map(|pod| {
        let pins = pins.clone();
        tokio::spawn(async move {
            let id = format!("p{pod}");
            let make = pins.make(&id, request());
            // The last four are not waited for.
            let wait = if pod < 8 { 60_000 } else { 1 };
            tokio::time::timeout(Duration::from_millis(wait), make).await
        })
    });
    for (pod, made) in make.collect::<Vec<_>>().into_iter().enumerate() {
        let made = made.await.expect("join");
        assert!(pod >= 8 || matches!(made, Ok(Ok(()))), "{made:?}");
    }
    for pod in 8..12 {
        let id = format!("p{pod}");
        until(&format!("{id}, which was begun"), || async {
            (pins.state(&id, Kind::User).expect("state") == State::Pinned).then_some(())
        })
        .await;
    }
    no_helper_left().await;
    for id in pins.list().expect("list") {
        pins.remove(&id).await.expect("remove");
    }
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}

/// A layer with a busybox, root's, and a folder of somebody else's.
fn layer(dir: &Path) -> PathBuf {
    let layer = dir.join("layer");
    for name in ["bin", "proc", "sys", "dev", "etc", "theirs"] {
        fs::create_dir_all(layer.join(name)).expect("dir");
    }
    fs::copy("/bin/busybox", layer.join("bin/busybox")).expect("busybox-static is installed");
    fs::write(layer.join("theirs/file"), "old").expect("file");
    chown(layer.join("theirs/file"), Some(33), Some(34)).expect("owner");
    fs::write(layer.join("nobodys"), "").expect("file");
    chown(layer.join("nobodys"), Some(LENGTH + 1), Some(0)).expect("owner");
    layer
}

fn owner(path: &Path) -> (u32, u32) {
    let stat = fs::symlink_metadata(path).expect("there");
    (stat.uid(), stat.gid())
}

#[tokio::test]
async fn layers_are_seen_with_the_eyes_of_the_pod() {
    let dir = scratch();
    let pins = pins(&dir);
    pins.make("a", request()).await.expect("make");
    let base = layer(dir.path());
    let mut request = MountRequest {
        // So many that their names do not matter.
        layers: vec![base.clone()],
        ids: Some(IdMapped {
            namespace: pins.path("a", Kind::User),
            mappings: mappings(),
        }),
        ..MountRequest::default()
    };
    for number in 0..100 {
        let layer = dir.path().join(format!("layers/{number:0>100}"));
        fs::create_dir_all(&layer).expect("layer");
        fs::write(layer.join(format!("own-{number}")), "").expect("file");
        request.layers.push(layer);
    }
    let rootfs = Rootfs::new(dir.path().join("c"));
    let before = list_mounts_below(dir.path()).expect("table").len();
    let root = rootfs.mount(&request).expect("mounted");
    let after = list_mounts_below(dir.path()).expect("table").len();
    assert_eq!(after, before + 1, "the layers are nowhere");
    assert_eq!(owner(&root), (HOST, HOST));
    assert_eq!(owner(&root.join("bin/busybox")), (HOST, HOST));
    assert_eq!(owner(&root.join("own-99")), (HOST, HOST));
    assert_eq!(owner(&root.join("theirs/file")), (HOST + 33, HOST + 34));
    assert_eq!(owner(&base.join("theirs/file")), (33, 34));
    // Who changes a file takes it up as who owns it.
    fs::write(root.join("theirs/file"), "new").expect("write");
    let up = rootfs.upper().join("theirs/file");
    assert_eq!(owner(&up), (HOST + 33, HOST + 34));
    assert_eq!(fs::read(base.join("theirs/file")).expect("layer"), b"old");
    // Volumes of the image are the pod's too, also those that begin empty.
    let volumes = prepare_volumes(&root, ["/theirs", "/none"], &dir.path().join("c"));
    let volumes = volumes.expect("prepared");
    assert_eq!(
        owner(&volumes["/theirs"].join("file")),
        (HOST + 33, HOST + 34)
    );
    assert_eq!(owner(&volumes["/none"]), (HOST, HOST));
    // The directory lets root of the pod pass, and nobody else.
    let stat = fs::metadata(dir.path().join("c")).expect("there");
    assert_eq!((stat.gid(), stat.mode() & 0o7777), (HOST, 0o710));
    rootfs.remove().expect("removed");
    request.read_only = true;
    let root = rootfs.mount(&request).expect("mounted");
    assert_eq!(owner(&root.join("bin/busybox")), (HOST, HOST));
    rootfs.remove().expect("removed");
    // A namespace that is gone is no namespace.
    pins.remove("a").await.expect("remove");
    rootfs.mount(&request).expect_err("whose eyes?");
    rootfs.remove().expect("removed");
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}

/// Deletes its container at the end.
struct Running(OciRuntime, String);

impl Drop for Running {
    fn drop(&mut self) {
        let mut command = Command::new(&self.0.path);
        command.arg("--root").arg(&self.0.root);
        let _gone = command.args(["delete", "--force", &self.1]).output();
    }
}

#[tokio::test]
async fn a_container_is_root_among_its_own_and_nobody_on_the_node() {
    let dir = scratch();
    let pins = pins(&dir);
    pins.make("a", request()).await.expect("make");
    let layer = layer(dir.path());
    let rootfs = Rootfs::new(dir.path().join("c"));
    let root = rootfs
        .mount(&MountRequest {
            layers: vec![layer.clone()],
            ids: Some(IdMapped {
                namespace: pins.path("a", Kind::User),
                mappings: mappings(),
            }),
            ..MountRequest::default()
        })
        .expect("mounted");
    let shm = dir.path().join("shm");
    let owned = Shm {
        owner: mappings().host(0, 0),
        ..Shm::default()
    };
    mount_shm(&shm, &owned).expect("mounted");
    let hosts = dir.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost\n").expect("file");
    chown(&hosts, Some(HOST), Some(HOST)).expect("owner");
    let volumes = prepare_volumes(&root, ["/data"], &dir.path().join("c")).expect("prepared");

    let script = "cd /bin; ./busybox stat -c '%u:%g' busybox /theirs/file /etc/hosts /dev/shm /data /nobodys > /told; \
                  echo more >> /theirs/file; echo 1.2.3.4 name >> /etc/hosts; echo x > /dev/shm/x; echo x > /data/x; \
                  ./busybox chown 7:8 /data/x; ./busybox hostname >> /told; ./busybox mkdir /done; \
                  exec ./busybox sleep 60";
    let running = start(&dir, &pins, &root, &shm, &hosts, volumes, script).await;
    until("the end of the script", || async {
        root.join("done").exists().then_some(())
    })
    .await;
    let told = fs::read_to_string(root.join("told")).expect("told");
    assert_eq!(
        told.split_whitespace().collect::<Vec<_>>(),
        ["0:0", "33:34", "0:0", "0:0", "0:0", "65534:0", "inside"]
    );
    let upper = rootfs.upper();
    assert_eq!(owner(&upper.join("told")), (HOST, HOST));
    assert_eq!(owner(&upper.join("theirs/file")), (HOST + 33, HOST + 34));
    assert_eq!(owner(&shm.join("x")), (HOST, HOST));
    let data = dir.path().join("c/volumes/0/x");
    assert_eq!(owner(&data), (HOST + 7, HOST + 8));
    assert!(
        fs::read_to_string(&hosts)
            .expect("hosts")
            .ends_with("name\n")
    );
    assert_eq!(fs::read(layer.join("theirs/file")).expect("layer"), b"old");
    let state = running.0.state(&running.1).await.expect("state");
    assert_eq!(
        owner(Path::new(&format!("/proc/{}", state.pid))),
        (HOST, HOST)
    );
    drop(running);
    criscope::runtime::rootfs::unmount(&shm).expect("unmounted");
    rootfs.remove().expect("removed");
    pins.remove("a").await.expect("remove");
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}

/// Starts a container of the pod with a specification as the daemon makes it.
async fn start(
    dir: &Scratch,
    pins: &Pins,
    root: &Path,
    shm: &Path,
    hosts: &Path,
    volumes: BTreeMap<String, PathBuf>,
    script: &str,
) -> Running {
    let map = v1::IdMapping {
        host_id: HOST,
        container_id: 0,
        length: LENGTH,
    };
    let options = v1::NamespaceOption {
        pid: v1::NamespaceMode::Container as i32,
        userns_options: Some(v1::UserNamespace {
            mode: v1::NamespaceMode::Pod as i32,
            uids: vec![map],
            gids: vec![map],
        }),
        ..Default::default()
    };
    let mut command = words("/bin/busybox sh -c");
    command.push(script.to_owned());
    let container = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata::default()),
        command,
        linux: Some(v1::LinuxContainerConfig {
            security_context: Some(v1::LinuxContainerSecurityContext {
                namespace_options: Some(options.clone()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let pod = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata::default()),
        linux: Some(v1::LinuxPodSandboxConfig {
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(options),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let id = format!("criscope-test-userns-{}", std::process::id());
    let built = spec::build(&Wanted {
        id: &id,
        pod: &pod,
        container: &container,
        image: &ImageConfig::default(),
        rootfs: root,
        users: &UserDatabase::default(),
        node: &facts(),
        sandbox: &SandboxFacts {
            network: Some(pins.path("a", Kind::Net)),
            ipc: Some(pins.path("a", Kind::Ipc)),
            uts: Some(pins.path("a", Kind::Uts)),
            user: Some(pins.path("a", Kind::User)),
            shm_path: Some(shm.to_owned()),
            hosts_path: Some(hosts.to_owned()),
            image_volumes: volumes,
            ..SandboxFacts::default()
        },
        handler: &HandlerOptions::default(),
        host: &Machine,
        cdi: &spec::cdi::Registry::default(),
    })
    .expect("a specification");
    let bundle = dir.path().join("bundle");
    fs::create_dir(&bundle).expect("dir");
    let json = serde_json::to_vec_pretty(&built.spec).expect("json");
    fs::write(bundle.join("config.json"), json).expect("file");
    let running = Running(OciRuntime::new("runc", dir.path().join("state")), id);
    let create = Create {
        pid_file: bundle.join("pid"),
        log: bundle.join("log"),
        bundle,
        ..Default::default()
    };
    running.0.create(&running.1, &create).await.expect("create");
    running.0.start(&running.1).await.expect("start");
    running
}

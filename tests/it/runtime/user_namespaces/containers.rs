//! A container in a pod with a user namespace, from its layers to the files it writes.

use std::os::unix::fs::chown;

use criscope_linux::namespace::{Kind, Pins};
use criscope_linux::rootfs::{
    IdMapped, MountRequest, Rootfs, Shm, list_mounts_below, mount_shm, prepare_volumes,
};

use super::super::Scratch;
use super::super::oci::{facts, run, words};
use super::super::rootfs::volume_limits;
use super::{HOST, LENGTH, layer, mappings, owner, pins, request, scratch};
use crate::prelude::*;
use criscope::runtime::oci::OciRuntime;
use criscope::runtime::oci::spec::{
    self, ImageConfig, Machine, Request as Wanted, SandboxFacts, UserDatabase,
};
use criscope::runtime::sections::Handler;

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
async fn a_container_is_root_in_its_namespace_and_unprivileged_on_the_node() {
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
    let volumes = prepare_volumes(&root, ["/data"], &dir.path().join("c"), &volume_limits())
        .expect("prepared");

    let script = "cd /bin; ./busybox stat -c '%u:%g' busybox /theirs/file /etc/hosts /dev/shm /data /unmapped > /told; \
                  echo more >> /theirs/file; echo 1.2.3.4 name >> /etc/hosts; echo x > /dev/shm/x; echo x > /data/x; \
                  ./busybox chown 7:8 /data/x; ./busybox hostname >> /told; ./busybox mkdir /done; \
                  exec ./busybox sleep 60";
    let running = start(&dir, &pins, &root, &shm, &hosts, volumes, script).await;
    until_true("the end of the script", async || root.join("done").exists()).await;
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
    criscope_linux::rootfs::unmount(&shm).expect("unmounted");
    rootfs.remove().expect("removed");
    pins.remove("a").await.expect("remove");
    assert!(list_mounts_below(dir.path()).expect("table").is_empty());
}

/// Starts a container of the pod with a specification built like the daemon's.
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
        handler: &Handler::defaults("runc"),
        host: &Machine,
        cdi: &spec::cdi::Registry::default(),
        hooks: &spec::hooks::Registry::default(),
    })
    .expect("a specification");
    let bundle = dir.path().join("bundle");
    fs::create_dir(&bundle).expect("dir");
    let json = serde_json::to_vec_pretty(&built.spec).expect("json");
    fs::write(bundle.join("config.json"), json).expect("file");
    let running = Running(OciRuntime::new("runc", dir.path().join("state")), id);
    let created = run(&running.0, "create", &[], &bundle, &running.1).await;
    created.expect("create");
    running.0.start(&running.1).await.expect("start");
    running
}

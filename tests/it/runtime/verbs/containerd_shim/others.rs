//! What shims of sandboxes with a network stack and a size of their own need, of which gVisor's and Kata's are: tried with runc's shim,
//! and with the same program under another name.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tokio::net::TcpSocket;

use super::{HANDLER, Shimmed, daemon, daemon_with, shimmed};
use crate::prelude::*;
use crate::streaming::client::{forwarding, open};

/// A listener on a port of the pod's address alone: as from the node, what has a network stack of its own.
fn listener(daemon: &Daemon, pod: &Pod, address: IpAddr) -> TcpListener {
    let path = daemon.state().join("state/ns").join(&pod.id).join("net");
    let network = fs::File::open(path).expect("a network");
    let inside = move || {
        nix::sched::setns(&network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entered");
        TcpSocket::new_v4()
    };
    let socket = std::thread::spawn(inside).join().expect("no panic");
    let socket = socket.expect("a socket");
    socket.bind(SocketAddr::new(address, 0)).expect("bound");
    socket.listen(8).expect("listens")
}

/// What a client of a port-forward gets that sends `there and back`: the error, and the data.
async fn forwarded(kubelet: &Kubelet, pod: &Pod, port: u16) -> [String; 2] {
    let url = kubelet.forward_url(&pod.id).await;
    let mut spdy = forwarding(&url).await;
    let (error, data) = open(&mut spdy, 0, port).await;
    spdy.send(data, b"there and back", true).await;
    let mut said = [String::new(), String::new()];
    for (at, stream) in [error, data].into_iter().enumerate() {
        let end = spdy.end(stream).await;
        said[at] = String::from_utf8(end.data).expect("text");
    }
    said
}

fn echo(listener: TcpListener) -> u16 {
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepted");
        let (mut read, mut write) = tcp.split();
        let _gone = tokio::io::copy(&mut read, &mut write).await;
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_that_no_loopback_has_are_reached_at_the_address_of_the_pod() {
    let (daemon, kubelet, own) = shimmed("forwards").await;
    let address = kubelet.address(&own.pod).await;
    let address: IpAddr = address.parse().expect("an address");
    let port = echo(listener(&daemon, &own.pod, address));
    let [error, data] = forwarded(&kubelet, &own.pod, port).await;
    assert_eq!((&*error, &*data), ("", "there and back"));
    // The error of a port that nothing has is that of loopback.
    let [error, _] = forwarded(&kubelet, &own.pod, 9).await;
    assert!(error.contains("Connection refused"), "{error}");
    own.end(&kubelet, &daemon).await;
}

/// With an OCI runtime, loopback is what a port-forward reaches.
#[tokio::test(flavor = "multi_thread")]
async fn ports_of_an_oci_runtime_are_those_of_loopback() {
    let (daemon, kubelet) = daemon().await;
    let pod = kubelet.plain_pod("plain").await;
    let address = kubelet.address(&pod).await;
    let address = address.parse().expect("an address");
    let port = echo(listener(&daemon, &pod, address));
    let [error, data] = forwarded(&kubelet, &pod, port).await;
    assert!(error.contains("Connection refused"), "{error}");
    assert_eq!(data, "");
    daemon.end(&kubelet, [&pod]).await;
}

/// gVisor runs all containers of the pod in the cgroup of its sandbox container.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_of_another_shim_has_an_ordinary_share_of_the_processors() {
    let (daemon, kubelet) = daemon_with(|daemon| {
        let program = daemon.root().join("containerd-shim-other-v1");
        symlink("/usr/bin/containerd-shim-runc-v2", &program).expect("a link");
        program.display().to_string()
    })
    .await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("other")).await;
    assert_eq!(shares(&daemon, &own.pod), Value::Null);
    let pod = &own.pod;
    kubelet.end(pod).await;
    own.has_no_shim().await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_container_of_runcs_shim_has_the_share_of_a_program_that_waits() {
    let (daemon, kubelet, own) = shimmed("waits").await;
    assert_eq!(shares(&daemon, &own.pod), 2);
    own.end(&kubelet, &daemon).await;
}

/// The sandbox of gVisor is in the cgroup of its sandbox container, or of the pod.
#[tokio::test(flavor = "multi_thread")]
async fn the_story_of_a_sandbox_that_reached_its_limit_of_processes_says_so() {
    let (daemon, kubelet, own) = shimmed("many").await;
    let below = Path::new(daemon.cgroup().trim_start_matches('/')).join(&own.pod.id);
    let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let mut cgroups = roots.iter().map(|root| root.join(&below));
    let cgroup = cgroups.find(|dir| dir.join("pids.max").exists());
    let cgroup = cgroup.expect("a cgroup");
    fs::write(cgroup.join("pids.max"), "1").expect("a limit");
    // A process may enter a full cgroup, and then creates none.
    let script = format!("echo $$ > {}/cgroup.procs; true & wait", cgroup.display());
    let forked = Command::new("sh").args(["-c", &script]).output();
    assert!(!forked.expect("a shell").status.success());
    own.loses_its_sandbox_container(&kubelet).await;
    let words = "its sandbox container ended after the pod reached its limit of processes; no call asked for that";
    own.story_has(&daemon, words).await;
    own.end(&kubelet, &daemon).await;
}

/// gVisor's shim leaves the cgroup of a sandbox container that it could not create.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_container_that_cannot_be_created_leaves_no_cgroup() {
    let (daemon, kubelet) = daemon_with(|daemon| {
        let program = daemon.root().join("containerd-shim-fails-v1");
        let parent = daemon.cgroup();
        let parent = parent.trim_start_matches('/');
        let script = format!(
            "#!/bin/sh\n\
             while [ $# -gt 1 ]; do [ \"$1\" = -id ] && id=$2; shift; done\n\
             [ \"$1\" = start ] || exit 0\n\
             for root in /sys/fs/cgroup/pids /sys/fs/cgroup; do\n\
             [ -e $root/cgroup.procs ] && mkdir -p $root/{parent}/$id && break\n\
             done\n\
             echo made $root/{parent}/$id\n\
             exit 1\n"
        );
        fs::write(&program, script).expect("a program");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("executable");
        program.display().to_string()
    })
    .await;
    let failed = kubelet.try_run(kubelet.pod_config("fails"), HANDLER).await;
    let failed = failed.err().expect("no sandbox container");
    let made = failed.message().split_whitespace().next_back();
    let made = Path::new(made.expect("a path"));
    assert!(made.starts_with("/sys/fs/cgroup"), "{failed}");
    assert!(!made.exists(), "{failed}");
    daemon.assert_clean();
}

/// The weight of the sandbox container in its specification.
fn shares(daemon: &Daemon, pod: &Pod) -> Value {
    let path = daemon.root().join("root/sandboxes").join(&pod.id);
    let text = fs::read(path.join("config.json")).expect("a specification");
    let spec: Value = serde_json::from_slice(&text).expect("JSON");
    spec["linux"]["resources"]["cpu"]["shares"].clone()
}

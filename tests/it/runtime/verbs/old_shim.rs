//! Pods whose shim has another protocol version than the daemon, or that are not as this daemon makes them.

use criscope_shim::SOCKET;
use criscope_shim::protocol::{self, Event, Hello};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::net::unix::OwnedReadHalf;

use crate::prelude::*;

/// The directory of a pod's shim.
pub(super) fn directory(daemon: &Daemon, pod: &Pod) -> PathBuf {
    let all = leaks::processes(daemon.name());
    let mut words = all.iter().filter_map(|(_, what)| {
        let dir = what
            .strip_prefix("criscope-shim ")
            .or_else(|| what.split_once("criscope-shim ").map(|(_, dir)| dir))?;
        dir.split(' ').next().filter(|dir| dir.ends_with(&pod.id))
    });
    words.next().expect("a shim").into()
}

pub(super) async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let len = from.read_u32_le().await.ok()?;
    let mut frame = vec![0; len as usize];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

/// Replaces the socket of a pod's shim, whose own socket is renamed.
pub(super) fn replace(dir: &Path) -> (UnixListener, PathBuf) {
    let real = dir.join("real.sock");
    fs::rename(dir.join(SOCKET), &real).expect("rename");
    (UnixListener::bind(dir.join(SOCKET)).expect("bind"), real)
}

/// A killed daemon with a pod that shares its PID namespace, and the container in it.
async fn killed_with_shared_pid() -> (Daemon, Pod, String) {
    let (mut daemon, kubelet) = node().await;
    let pod = kubelet.run(kubelet.shared_pid_config("old")).await;
    let container = kubelet.launch(&pod, share_pid(idle("main"))).await;
    daemon.kill();
    (daemon, pod, container)
}

/// Asserts that a container that starts now is in the PID namespace of this one.
async fn assert_is_joined(kubelet: &Kubelet, pod: &Pod, container: &str) {
    let more = kubelet.launch(pod, share_pid(idle("more"))).await;
    let namespace = "busybox readlink /proc/self/ns/pid";
    assert_eq!(
        kubelet.says(container, namespace).await,
        kubelet.says(&more, namespace).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pid_namespace_that_lost_its_pin_is_pinned_again() {
    let (mut daemon, pod, container) = killed_with_shared_pid().await;
    let pin = leaks::mounts(daemon.name());
    let pin = pin
        .iter()
        .find(|point| point.ends_with(&format!("{}/pid", pod.id)));
    let pin = pin.expect("the pinned PID namespace");
    nix::mount::umount(pin.as_str()).expect("umount");
    fs::remove_file(pin).expect("remove");
    let kubelet = daemon.serve().await;
    assert_is_joined(&kubelet, &pod, &container).await;
    daemon.end(&kubelet, [&pod]).await;
}

/// As after a downgrade by more than one release: reported at once, and the pod can be stopped and removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_is_too_new_is_named_and_does_not_keep_its_pod() {
    let (mut daemon, kubelet, pod) = node_with_pod("new").await;
    let container = kubelet.launch(&pod, idle("main")).await;
    let dir = directory(&daemon, &pod);
    daemon.kill();
    let (listener, _) = replace(&dir);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let hello = Event::Hello(Hello {
                version: 900,
                oldest: 800,
                program: "9.0.0".to_owned(),
            });
            let mut out = Vec::new();
            protocol::encode_event(&hello, &mut out);
            connection.write_all(&out).await.expect("written");
            // It stays connected.
            let _ended = connection.read_u8().await;
        }
    });
    let kubelet = daemon.serve().await;
    // Its containers keep running.
    assert!(kubelet.status(&container).await.state() == v1::ContainerState::ContainerRunning);
    assert_refused(
        kubelet
            .try_exec(&container, vec!["true".to_owned()], 10)
            .await,
        Code::FailedPrecondition,
        "800 to 900",
    );
    daemon.end(&kubelet, [&pod]).await;
}

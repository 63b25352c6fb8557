//! Pods whose shim has another protocol version than the daemon, or that are not as this daemon makes them.

use std::path::{Path, PathBuf};

use criscope::cri::v1;
use criscope_shim::SOCKET;
use criscope_shim::protocol::{self, Event, Hello};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::net::unix::OwnedReadHalf;
use tonic::Code;

use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, Pod, idle, security};
use crate::harness::leaks;

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
    std::fs::rename(dir.join(SOCKET), &real).expect("rename");
    (UnixListener::bind(dir.join(SOCKET)).expect("bind"), real)
}

fn shared(kubelet: &Kubelet) -> v1::PodSandboxConfig {
    let mut config = kubelet.pod_config("old");
    let linux = config.linux.get_or_insert_default();
    let context = linux.security_context.get_or_insert_default();
    context.namespace_options.get_or_insert_default().pid = v1::NamespaceMode::Pod.into();
    config
}

fn member(name: &str) -> v1::ContainerConfig {
    let mut config = idle(name);
    let options = security(&mut config)
        .namespace_options
        .get_or_insert_default();
    options.pid = v1::NamespaceMode::Pod.into();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pid_namespace_that_lost_its_pin_is_pinned_again() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.run(shared(&kubelet)).await;
    let container = kubelet.launch(&pod, member("main")).await;
    daemon.kill();
    let pin = leaks::mounts(daemon.name());
    let pin = pin
        .iter()
        .find(|point| point.ends_with(&format!("{}/pid", pod.id)));
    let pin = pin.expect("the pinned PID namespace");
    nix::mount::umount(pin.as_str()).expect("umount");
    std::fs::remove_file(pin).expect("remove");
    daemon.start().await;
    let kubelet = Kubelet::of(&daemon).await;
    let more = kubelet.launch(&pod, member("more")).await;
    let namespace = "busybox readlink /proc/self/ns/pid";
    assert_eq!(
        kubelet.says(&container, namespace).await,
        kubelet.says(&more, namespace).await
    );
    kubelet.end(&pod).await;
    daemon.assert_clean();
}

/// As after a downgrade by more than one release: reported at once, and the pod can be stopped and removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_is_too_new_is_named_and_does_not_keep_its_pod() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("new").await;
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
    daemon.start().await;
    let kubelet = Kubelet::of(&daemon).await;
    // Its containers keep running.
    assert!(kubelet.status(&container).await.state() == v1::ContainerState::ContainerRunning);
    let refused = kubelet
        .try_exec(&container, vec!["true".to_owned()], 10)
        .await;
    let refused = refused.err().expect("the shim's version is not supported");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("800 to 900"), "{refused}");
    kubelet.end(&pod).await;
    daemon.assert_clean();
}

//! Connections into a pod: where they are made, and what those cost that do not come about.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use criscope::cri::v1;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::node::Node;
use super::{ECHO, kubelet_says_hello};
use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, Pod, idle, shell};
use crate::harness::until;
use crate::streaming::client::{forwarding, open};
use crate::streaming::spdy::{Got, Spdy};

/// Connections of one client.
const MANY: usize = 300;

/// Longer than a client that has gone is waited for, and shorter than two connections that nobody takes.
const SOON: Duration = Duration::from_secs(12);

/// Does something in the network of a pod. A socket stays in the network it was made in.
fn in_network_of<T: Send + 'static>(
    daemon: &Daemon,
    pod: &Pod,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let path = daemon.state().join("state/ns").join(&pod.id).join("net");
    let network = fs::File::open(path).expect("a network");
    let thread = std::thread::spawn(move || {
        nix::sched::setns(&network, nix::sched::CloneFlags::CLONE_NEWNET).expect("entered");
        work()
    });
    thread.join().expect("no panic")
}

/// A socket on loopback inside the pod.
fn bound(daemon: &Daemon, pod: &Pod, address: impl Into<SocketAddr>) -> TcpSocket {
    let address = address.into();
    let make = if address.is_ipv4() {
        TcpSocket::new_v4
    } else {
        TcpSocket::new_v6
    };
    let socket = in_network_of(daemon, pod, make).expect("a socket");
    socket.bind(address).expect("bound");
    socket
}

/// Sends back what comes on the first connection.
fn echo(listener: TcpListener) {
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepted");
        let (mut read, mut write) = tcp.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
}

/// Something goes there and comes back.
async fn there_and_back(spdy: &mut Spdy<TcpStream>, request: u32, port: u16) {
    let (_, data) = open(spdy, request, port).await;
    spdy.send(data, b"there and back", true).await;
    assert_eq!(spdy.end(data).await.data, b"there and back");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_on_ipv6_only_is_reached() {
    let node = Node::with(idle("main")).await;
    let six = bound(&node.daemon, &node.pod, (Ipv6Addr::LOCALHOST, 0));
    let listener = six.listen(8).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    echo(listener);
    let mut spdy = forwarding(&node.forward().await).await;
    there_and_back(&mut spdy, 0, port).await;
    // What is said of a port that nobody listens on is what the first of the two said.
    let (error, data) = open(&mut spdy, 1, 9).await;
    let said = String::from_utf8(spdy.end(error).await.data).expect("text");
    assert!(said.contains("Connection refused"), "{said}");
    spdy.end(data).await;
    drop(spdy);
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_the_network_of_the_node_has_its_ports() {
    let daemon = Daemon::new().await;
    let kubelet = Kubelet::of(&daemon).await;
    let mut config = kubelet.pod_config("host-network");
    config.hostname = String::new();
    let linux = config.linux.get_or_insert_default();
    let context = linux.security_context.get_or_insert_default();
    let options = context.namespace_options.get_or_insert_default();
    options.network = v1::NamespaceMode::Node.into();
    let pod = kubelet.run(config).await;
    let request = v1::PortForwardRequest {
        pod_sandbox_id: pod.id.clone(),
        port: vec![],
    };
    let answer = kubelet.runtime.clone().port_forward(request).await;
    let mut spdy = forwarding(&answer.expect("PortForward").into_inner().url).await;
    for (request, address) in ["127.0.0.1:0", "[::1]:0"].into_iter().enumerate() {
        let listener = TcpListener::bind(address).await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        echo(listener);
        there_and_back(&mut spdy, request as u32, port).await;
    }
    drop(spdy);
    kubelet.end(&pod).await;
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_takes_hold_no_threads_and_end_with_their_client() {
    let node = Node::with(shell("main", ECHO)).await;
    // Two of each family fit into the queue; who knocks then is not answered.
    let four = bound(&node.daemon, &node.pod, (Ipv4Addr::LOCALHOST, 0));
    let port = four.local_addr().expect("bound").port();
    let six = bound(&node.daemon, &node.pod, (Ipv6Addr::LOCALHOST, port));
    let listeners = [four.listen(0), six.listen(0)].map(|made| made.expect("listens"));
    let knocking = move || {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/thread-self/net/{table}"));
        let tables = tables.map(|table| fs::read_to_string(table).expect("a table"));
        // SYN_SENT
        let lines = tables.iter().flat_map(|table| table.lines());
        lines.filter(|line| line.contains(" 02 ")).count()
    };
    let knocking = || in_network_of(&node.daemon, &node.pod, knocking);
    let threads = || {
        let all = fs::read_dir(format!("/proc/{}/task", node.daemon.program().pid()));
        all.expect("threads").count()
    };
    let before = threads();

    let mut spdy = forwarding(&node.forward().await).await;
    for request in 0..MANY {
        open(&mut spdy, request as u32, port).await;
    }
    until("all to knock", || async {
        (knocking() >= MANY - 2 * listeners.len()).then_some(())
    })
    .await;
    // Those of its pools, which come and go, are few.
    let now = threads();
    assert!(now < before + MANY / 10, "{before} threads, then {now}");
    // Others come through, also over the same session.
    let (_, data) = open(&mut spdy, MANY as u32, 8080).await;
    spdy.send(data, b"up", false).await;
    let came = |got: &Got| (got.data == b"up").then_some(());
    spdy.wait(data, came).await;
    kubelet_says_hello(&node).await;

    drop(spdy);
    let since = Instant::now();
    until("nobody to knock", || async {
        (knocking() == 0).then_some(())
    })
    .await;
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    drop(listeners);
    node.is_quiet().await;
    node.end().await;
}

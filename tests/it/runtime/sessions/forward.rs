//! Connections into a pod: in which network they are made, and the cost of those that are never accepted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::node::Node;
use super::{ECHO, kubelet_says_hello};
use crate::prelude::*;
use crate::streaming::client::{forwarding, forwarding_lazily, open};
use crate::streaming::spdy::{Got, Spdy};

/// The number of connections of one client.
const MANY: usize = 300;

/// Longer than the detection of a vanished client, and shorter than two connect timeouts.
const SOON: Duration = Duration::from_secs(12);

/// Runs a function in a pod's network namespace. A socket stays in the namespace it was created in.
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

/// Echoes the first connection.
fn echo(listener: TcpListener) {
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepted");
        let (mut read, mut write) = tcp.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
}

/// Asserts that data makes a round trip.
async fn there_and_back(spdy: &mut Spdy<TcpStream>, request: u32, port: u16) {
    let (_, data) = open(spdy, request, port).await;
    spdy.send(data, b"there and back", true).await;
    assert_eq!(spdy.end(data).await.data, b"there and back");
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_only_listeners_are_reached() {
    let node = Node::with(idle("main")).await;
    let six = bound(&node.daemon, &node.pod, (Ipv6Addr::LOCALHOST, 0));
    let listener = six.listen(8).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    echo(listener);
    let mut spdy = forwarding(&node.forward().await).await;
    there_and_back(&mut spdy, 0, port).await;
    // For a port without a listener, the error is that of the first address.
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
    let (daemon, kubelet) = node().await;
    let config = kubelet.host_network_config("host-network");
    let pod = kubelet.run(config).await;
    let url = kubelet.forward_url(&pod.id).await;
    let mut spdy = forwarding(&url).await;
    for (request, address) in ["127.0.0.1:0", "[::1]:0"].into_iter().enumerate() {
        let listener = TcpListener::bind(address).await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        echo(listener);
        there_and_back(&mut spdy, request as u32, port).await;
    }
    drop(spdy);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_not_accepted_hold_no_threads_and_end_with_their_client() {
    let node = Node::with(shell("main", ECHO)).await;
    // The backlog takes two connections per family; further SYNs are not answered.
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
    let all_knock = || knocking() >= MANY - 2 * listeners.len();
    until_true("all connections to be pending", async || all_knock()).await;
    // Compared with the number of connections, threads of its pools are few.
    until_true(&format!("{before} threads and few more"), async || {
        let few = threads() < before + MANY / 10;
        few && all_knock()
    })
    .await;
    // Other connections succeed, even over the same session.
    let (_, data) = open(&mut spdy, MANY as u32, 8080).await;
    spdy.send(data, b"up", false).await;
    let came = |got: &Got| (got.data == b"up").then_some(());
    spdy.wait(data, came).await;
    kubelet_says_hello(&node).await;

    drop(spdy);
    let since = Instant::now();
    until_true("no pending connections", async || knocking() == 0).await;
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    drop(listeners);
    node.is_quiet().await;
    node.end().await;
}

/// Bytes that the kernel buffers for sockets in a pod's network namespace.
fn kept(daemon: &Daemon, pod: &Pod) -> usize {
    let table = in_network_of(daemon, pod, || {
        fs::read_to_string("/proc/thread-self/net/tcp")
    });
    let table = table.expect("a table");
    let lines = table.lines().skip(1);
    // Send and receive queue, in hexadecimal.
    let queues = lines.flat_map(|line| line.split_whitespace().nth(4).expect("queues").split(':'));
    let lengths = queues.map(|length| usize::from_str_radix(length, 16).expect("a length"));
    lengths.sum()
}

/// Maximum total memory of connections whose client reads nothing: the data to be sent, and a little for each.
const COST: usize = 16 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_client_that_reads_nothing_cost_little() {
    const CONNECTIONS: usize = 500;
    let node = Node::with(idle("main")).await;
    let socket = bound(&node.daemon, &node.pod, (Ipv4Addr::LOCALHOST, 0));
    // Keep kernel buffers small: they are not measured.
    socket.set_send_buffer_size(32 << 10).expect("set");
    let listener = socket.listen(1024).expect("listens");
    let port = listener.local_addr().expect("bound").port();
    let (accepted, mut all) = tokio::sync::mpsc::channel(CONNECTIONS);
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let accepted = accepted.clone();
            tokio::spawn(async move {
                if tcp.write_all(&[b'x'; 256 << 10]).await.is_ok() {
                    accepted.send(()).await.expect("awaited");
                }
                // Until it is closed.
                let _ = tcp.read(&mut [0; 1]).await;
            });
        }
    });
    let before = node.memory();
    let mut spdy = forwarding_lazily(&node.forward().await).await;
    let mut data = Vec::new();
    for request in 0..CONNECTIONS {
        data.push(open(&mut spdy, request as u32, port).await.1);
    }
    let mut most = 0;
    until_still("the kernel's buffers to settle", || {
        most = most.max(node.memory().saturating_sub(before));
        let kept = kept(&node.daemon, &node.pod);
        (kept > CONNECTIONS << 14).then_some(kept)
    })
    .await;
    assert!(most < COST, "{most} bytes more");
    // All data arrives once the client reads.
    spdy.begin_to_read();
    for id in data {
        let whole = |got: &Got| (got.data.len() == 256 << 10).then_some(());
        spdy.wait(id, whole).await;
    }
    for _ in 0..CONNECTIONS {
        all.recv().await.expect("a whole answer");
    }
    drop(spdy);
    node.is_quiet().await;
    node.end().await;
}

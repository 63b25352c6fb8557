//! Connections to the ports of a pod, from inside its network namespace.
//!
//! Not all that runs in a pod is in that namespace: gVisor and virtual machines have a network stack of their own, which takes the
//! pod's address away from the namespace or bridges it, and a loopback that only they reach. Ports of such pods are reached at
//! the pod's address, from the node, as kubelet's probes do. containerd has no such attempt: its port-forward fails.
//!
//! A socket stays in the network namespace it was created in. So a short-lived thread enters the namespace only to create it;
//! the connect itself is asynchronous, and is cancelled if the session ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use cri_streaming::RuntimeError;
use criscope_linux::namespace::{Kind, run_in};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::Runtime;
use super::store::{Sandbox, SandboxRecord};

/// The connect timeout; short, because the port is on this machine.
const CONNECT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, RuntimeError>;

impl Runtime {
    /// Connects to a port on a pod's loopback: IPv4 first, then IPv6. If a shim of containerd runs the pod, then to its addresses.
    ///
    /// # Errors
    /// If the pod is not ready, or no address accepts.
    pub(super) async fn dial(&self, sandbox: &str, port: u16) -> Result<TcpStream> {
        let sandbox = self.store.sandboxes.get(sandbox)?;
        sandbox.ready()?;
        let four = self.inside(&sandbox, (Ipv4Addr::LOCALHOST, port).into());
        let error = match four.await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let six = self.inside(&sandbox, (Ipv6Addr::LOCALHOST, port).into());
        if let Ok(stream) = six.await {
            return Ok(stream);
        }
        for address in addresses_from_node(&sandbox.record()) {
            let to = (address, port).into();
            if let Ok(stream) = connect(new_socket(to)?, to).await {
                return Ok(stream);
            }
        }
        // Users expect the error of the first attempt.
        Err(error)
    }

    /// Connects from the network of the pod.
    async fn inside(&self, sandbox: &Sandbox, to: SocketAddr) -> Result<TcpStream> {
        let socket = if sandbox.record().host_network() {
            new_socket(to)
        } else {
            let (pins, id) = (self.pins.clone(), sandbox.id.clone());
            run_in(
                move || pins.open(&id, Kind::Net),
                Kind::Net,
                move || new_socket(to),
            )
            .await
            .map_err(|error| RuntimeError::Failed(error.to_string()))?
        };
        connect(socket?, to).await
    }
}

/// The addresses at which the node reaches processes with a network stack of their own; none if everything is in the pod's namespace.
fn addresses_from_node(record: &SandboxRecord) -> impl Iterator<Item = IpAddr> {
    let mut all = Vec::new();
    if record.has_containerd_shim() {
        all.extend(record.ip);
        all.extend(&record.additional_ips);
    }
    all.into_iter()
}

fn new_socket(to: SocketAddr) -> io::Result<TcpSocket> {
    match to {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
}

async fn connect(socket: TcpSocket, to: SocketAddr) -> Result<TcpStream> {
    let connected = timeout(CONNECT, socket.connect(to)).await;
    Ok(
        connected
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out"))??,
    )
}

//! Connections to the ports of a pod, from inside its network namespace.
//!
//! A socket stays in the network namespace it was created in. So a short-lived thread enters the namespace only to create it;
//! the connect itself is asynchronous, and is cancelled if the session ends.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use cri_streaming::RuntimeError;
use criscope_linux::namespace::{Error, Kind, run_in};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::Runtime;
use super::store::Sandbox;

/// The connect timeout; short, because the port is on this machine.
const CONNECT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, RuntimeError>;

impl Runtime {
    /// Connects to a port on a pod's loopback: IPv4 first, then IPv6.
    ///
    /// # Errors
    /// If the pod is not ready, or neither address accepts.
    pub(super) async fn dial(&self, sandbox: &str, port: u16) -> Result<TcpStream> {
        let sandbox = self.store.sandboxes.get(sandbox)?;
        sandbox.ready()?;
        let four = self.connect(&sandbox, (Ipv4Addr::LOCALHOST, port).into());
        let error = match four.await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let six = self.connect(&sandbox, (Ipv6Addr::LOCALHOST, port).into());
        // Users expect the error of the IPv4 attempt.
        six.await.map_err(|_| error)
    }

    async fn connect(&self, sandbox: &Sandbox, to: SocketAddr) -> Result<TcpStream> {
        let make = move || match to {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = if sandbox.record().host_network() {
            make()
        } else {
            let failed = |error: Error| RuntimeError::Failed(error.to_string());
            let (pins, id) = (self.pins.clone(), sandbox.id.clone());
            let open = move || pins.open(&id, Kind::Net);
            run_in(open, Kind::Net, make).await.map_err(failed)?
        };
        let connected = timeout(CONNECT, socket?.connect(to)).await;
        let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out");
        Ok(connected.map_err(slow)??)
    }
}

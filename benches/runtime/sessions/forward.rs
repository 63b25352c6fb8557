//! Sends the payload through a port of a pod, in one direction at a time. The benchmark itself listens in the pod's
//! network, so that both ends know the payload.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope_linux::namespace::{Kind, run_in};
use criscope_testkit::PATIENCE;
use criscope_testkit::session::{ForwardedPort, in_time};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike as _};
use tokio::task::spawn_blocking;

use super::payload::{PIECE, Payload};
use crate::error::{Error, IoContext, Result};

/// The sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The client.
    Up,
    /// The pod.
    Down,
}

/// Sent back and forth before the measurement starts, so that the connection into the pod exists.
const HELLO: &[u8] = b"?";
/// The signal for the pod to send.
const GO: &[u8] = b"!";

/// Listens in the network namespace of a process.
///
/// # Errors
/// If the process does not exist, or there is no free port.
pub(crate) async fn listen(pid: u64) -> Result<TcpListener> {
    let file = format!("/proc/{pid}/ns/net");
    let network = File::open(&file).during(|| format!("opening {file}"))?;
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = run_in(move || Ok(network), Kind::Net, bind).await;
    let listener = listener.map_err(|error| Error::Setup(error.to_string()))?;
    let doing = || "listening in a pod".to_owned();
    let listener = listener.during(doing)?;
    let patience = TimeVal::seconds(PATIENCE.as_secs().cast_signed());
    setsockopt(&listener, ReceiveTimeout, &patience)
        .map_err(io::Error::from)
        .during(doing)?;
    Ok(listener)
}

/// Returns the time from the first byte sent to the last byte received.
///
/// # Errors
/// If a byte differs.
pub(super) async fn pass(
    url: &str,
    listener: Arc<TcpListener>,
    way: Way,
    payload: Arc<Payload>,
) -> io::Result<Duration> {
    let port = listener.local_addr()?.port().to_string();
    let mut client = in_time(ForwardedPort::connect(url, &port)).await?;
    let pod = {
        let payload = Arc::clone(&payload);
        spawn_blocking(move || in_pod(&listener, way, &payload))
    };
    // An error message of the server is more informative than the pod's error.
    let (begin, end) = transfer(&mut client, way, &payload).await?;
    if way == Way::Down {
        // The pod's end waits for the client to close.
        drop(client);
    }
    let there = pod
        .await
        .map_err(|_| io::Error::other("the pod's end panicked"))??;
    Ok(end.unwrap_or(there) - begin)
}

/// The pod's end. Returns when it was done.
fn in_pod(listener: &TcpListener, way: Way, payload: &Payload) -> io::Result<Instant> {
    let (mut tcp, _) = listener.accept()?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_write_timeout(Some(PATIENCE))?;
    let mut byte = [0];
    tcp.read_exact(&mut byte)?;
    tcp.write_all(&byte)?;
    match way {
        Way::Up => receive(tcp, payload),
        Way::Down => {
            tcp.read_exact(&mut byte)?;
            tcp.write_all(payload.all())?;
            tcp.shutdown(Shutdown::Write)?;
            // Kept open until the client has closed, so that no data in flight is lost.
            while tcp.read(&mut byte).is_ok_and(|n| n > 0) {}
            Ok(Instant::now())
        }
    }
}

fn receive(mut tcp: TcpStream, payload: &Payload) -> io::Result<Instant> {
    let (mut check, mut end) = (payload.check(), Instant::now());
    let mut buffer = vec![0; 2 * PIECE];
    loop {
        match tcp.read(&mut buffer)? {
            0 => break,
            n => {
                if check.next(&buffer[..n])? {
                    end = Instant::now();
                }
            }
        }
    }
    check.finish()?;
    Ok(end)
}

/// Returns the start, and the end if it is on this side.
async fn transfer(
    client: &mut ForwardedPort,
    way: Way,
    payload: &Payload,
) -> io::Result<(Instant, Option<Instant>)> {
    client.send(HELLO, false).await?;
    loop {
        let (bytes, is_last) = client.next().await?;
        match (&bytes[..], is_last) {
            (HELLO, _) => break,
            // The end of the error stream.
            ([], false) => {}
            _ => return Err(io::Error::other("unexpected response of the pod")),
        }
    }
    let begin = Instant::now();
    match way {
        Way::Up => {
            for piece in payload.pieces() {
                client.send(piece, false).await?;
            }
            client.send(&[], true).await?;
            Ok((begin, None))
        }
        Way::Down => {
            client.send(GO, false).await?;
            let end = receive_down(client, payload).await?;
            Ok((begin, Some(end)))
        }
    }
}

/// Reads until the pod closes. Returns when the last byte arrived.
async fn receive_down(client: &mut ForwardedPort, payload: &Payload) -> io::Result<Instant> {
    let (mut check, mut end) = (payload.check(), Instant::now());
    loop {
        let (bytes, is_last) = client.next().await?;
        if check.next(&bytes)? && !bytes.is_empty() {
            end = Instant::now();
        }
        if is_last {
            check.finish()?;
            return Ok(end);
        }
    }
}

//! Everything through a port of a pod, one way at a time. In the pod's network the benchmark listens itself, so that both
//! ends of the way know what has to arrive.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use criscope_linux::namespace::{Kind, run_in};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::payload::{PIECE, Payload};
use super::spdy::{Event, Spdy};
use super::upgrade::{self, PATIENCE};
use crate::error::{Error, IoContext, Result};

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The client.
    Up,
    /// The pod.
    Down,
}

/// Goes there and back before the clock runs: the connection into the pod is there then.
const HELLO: &[u8] = b"?";
/// What the pod waits for before it sends.
const GO: &[u8] = b"!";

/// Listens in the network of a process.
///
/// # Errors
/// When there is no such process, or no port.
pub(super) async fn listen(pid: u64) -> Result<TcpListener> {
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

/// From the first byte sent to the last received. Blocks.
///
/// # Errors
/// When not every byte arrives as it was sent.
pub(super) fn pass(
    url: &str,
    listener: &TcpListener,
    way: Way,
    payload: &Payload,
) -> io::Result<Duration> {
    let port = listener.local_addr()?.port().to_string();
    let mut spdy = Spdy::new(upgrade::spdy(url, "portforward.k8s.io")?)?;
    let headers = |kind| {
        [
            ("streamtype", kind),
            ("port", port.as_str()),
            ("requestid", "0"),
        ]
    };
    let errors = spdy.open(&headers("error"))?;
    spdy.sender.data(errors, &[], true)?;
    let data = spdy.open(&headers("data"))?;
    let mut client = Client { spdy, data, errors };
    let (there, here) = thread::scope(|scope| {
        let pod = scope.spawn(|| in_pod(listener, way, payload));
        let here = client.pass(way, payload);
        if here.is_err() {
            client.spdy.receiver.hang_up();
        }
        (pod.join(), here)
    });
    // What the server says of a failure says more than what the pod sees of it.
    let (begin, end) = here?;
    let there = there.map_err(|_| io::Error::other("the pod's end panicked"))??;
    Ok(end.unwrap_or(there) - begin)
}

/// The pod's end. Gives when it was done.
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
            // Kept until the client has gone, so that nothing is lost that is still on its way.
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

struct Client {
    spdy: Spdy,
    data: u32,
    errors: u32,
}

impl Client {
    /// Gives the begin, and the end if it is here.
    fn pass(&mut self, way: Way, payload: &Payload) -> io::Result<(Instant, Option<Instant>)> {
        self.send(HELLO)?;
        loop {
            match self.next()? {
                (HELLO, _) => break,
                // The end of the stream for errors.
                ([], false) => {}
                _ => return Err(io::Error::other("the pod does not answer")),
            }
        }
        let begin = Instant::now();
        match way {
            Way::Up => {
                let mut pieces = payload.pieces();
                pieces.try_for_each(|piece| self.send(piece))?;
                self.spdy.sender.data(self.data, &[], true)?;
                Ok((begin, None))
            }
            Way::Down => {
                self.send(GO)?;
                let end = self.receive(payload)?;
                self.spdy.receiver.hang_up();
                Ok((begin, Some(end)))
            }
        }
    }

    /// Everything until the pod has no more. Gives when the last byte was there.
    fn receive(&mut self, payload: &Payload) -> io::Result<Instant> {
        let (mut check, mut end) = (payload.check(), Instant::now());
        loop {
            let (bytes, is_last) = self.next()?;
            if check.next(bytes)? && !bytes.is_empty() {
                end = Instant::now();
            }
            if is_last {
                check.finish()?;
                return Ok(end);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.spdy.sender.data(self.data, bytes, false)
    }

    /// The next bytes from the pod, and whether they are the last.
    fn next(&mut self) -> io::Result<(&[u8], bool)> {
        let (data, errors) = (self.data, self.errors);
        Ok(match self.spdy.receiver.next()? {
            Event::Data {
                stream,
                bytes,
                is_last,
            } if stream == data => (bytes, is_last),
            Event::Data { stream, bytes, .. } if stream == errors && !bytes.is_empty() => {
                let said = String::from_utf8_lossy(bytes).into_owned();
                return Err(io::Error::other(format!("the server says: {said}")));
            }
            Event::Reset(stream) if stream == data => (&[], true),
            _ => (&[], false),
        })
    }
}

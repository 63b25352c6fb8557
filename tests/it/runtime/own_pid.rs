//! A shim of containerd that answers a create with the pid of another process, as runwasi's do with their own: a socket in front of
//! containerd's shim for runc.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::thread;

use prost::Message as _;

use crate::prelude::*;

/// A message of ttrpc has a header of ten bytes: the length, the stream, the type and flags.
const HEADER: usize = 10;

/// The field with the method of a request that creates a container.
const CREATE: &[u8] = b"\x12\x06Create";

/// The first byte of a response without an error.
const PAYLOAD: u8 = 0x12;

/// The program of such a shim. Dropping it ends the process whose pid it answers.
pub(super) struct OwnPid {
    dir: TempDir,
    process: Child,
}

impl Drop for OwnPid {
    fn drop(&mut self) {
        // The real shim removes the socket in front of it, which is in the bundle's `address`, instead of its own.
        if let Ok(real) = fs::read_to_string(self.dir.path().join("real")) {
            let _absent = fs::remove_file(real.trim().trim_start_matches("unix://"));
        }
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

impl OwnPid {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().display();
        let script = format!(
            "#!/bin/sh
for verb; do :; done
[ \"$verb\" = start ] || exec /usr/bin/containerd-shim-runc-v2 \"$@\"
/usr/bin/containerd-shim-runc-v2 \"$@\" > {path}/real || exit 1
echo unix://{path}/socket
"
        );
        executable(&dir.path().join("containerd-shim-own-v1"), &script);
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let process = Command::new("sleep").arg("1000000").spawn();
        let process = process.expect("a process");
        let (pid, real) = (process.id(), dir.path().join("real"));
        thread::spawn(move || {
            for ours in listener.incoming() {
                let _ended = ours.and_then(|ours| serve(&ours, &real, pid));
            }
        });
        Self { dir, process }
    }

    pub(super) fn program(&self) -> PathBuf {
        self.dir.path().join("containerd-shim-own-v1")
    }

    /// What it answers.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

fn serve(ours: &UnixStream, real: &Path, pid: u32) -> io::Result<()> {
    let address = fs::read_to_string(real)?;
    let theirs = UnixStream::connect(address.trim().trim_start_matches("unix://"))?;
    let creates = Arc::<Mutex<BTreeSet<[u8; 4]>>>::default();
    let (mut from, mut to) = (ours.try_clone()?, theirs.try_clone()?);
    let asked = Arc::clone(&creates);
    thread::spawn(move || {
        while let Ok((header, body)) = message(&mut from) {
            if body.windows(CREATE.len()).any(|part| part == CREATE) {
                lock(&asked).insert(stream(&header));
            }
            if send(&mut to, &header, &body).is_err() {
                break;
            }
        }
        let _closed = to.shutdown(std::net::Shutdown::Both);
    });
    let (mut from, mut to) = (theirs, ours.try_clone()?);
    thread::spawn(move || {
        while let Ok((header, mut body)) = message(&mut from) {
            let made = lock(&creates).remove(&stream(&header));
            if made && body.first() == Some(&PAYLOAD) {
                body = response(pid);
            }
            if send(&mut to, &header, &body).is_err() {
                break;
            }
        }
        let _closed = to.shutdown(std::net::Shutdown::Both);
    });
    Ok(())
}

fn stream(header: &[u8; HEADER]) -> [u8; 4] {
    [header[4], header[5], header[6], header[7]]
}

fn message(from: &mut UnixStream) -> io::Result<([u8; HEADER], Vec<u8>)> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok((header, body))
}

fn send(to: &mut UnixStream, header: &[u8; HEADER], body: &[u8]) -> io::Result<()> {
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&header[4..]);
    bytes.extend_from_slice(body);
    to.write_all(&bytes)
}

/// The response to a create.
fn response(pid: u32) -> Vec<u8> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Created {
        #[prost(uint32, tag = "1")]
        pid: u32,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Response {
        #[prost(bytes = "vec", tag = "2")]
        payload: Vec<u8>,
    }
    let payload = Created { pid }.encode_to_vec();
    Response { payload }.encode_to_vec()
}

//! A shim of containerd that answers a create with the pid of another process, as runwasi's do with their own: a socket in front of
//! containerd's shim for runc.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;
use std::thread;

use criscope_wire::task::PidResponse;
use criscope_wire::ttrpc::{self, FrameMessage, Request, Response};
use prost::Message as _;

use crate::prelude::*;

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
    let creates = Arc::<Mutex<BTreeSet<u32>>>::default();
    let (from, to) = (ours.try_clone()?, theirs.try_clone()?);
    let asked = Arc::clone(&creates);
    thread::spawn(move || {
        pass_on(from, to, |stream, request: &mut Request| {
            if request.method == "Create" {
                lock(&asked).insert(stream);
            }
        })
    });
    let to = ours.try_clone()?;
    thread::spawn(move || {
        pass_on(theirs, to, |stream, response: &mut Response| {
            if lock(&creates).remove(&stream) && !response.payload.is_empty() {
                response.payload = PidResponse { pid }.encode_to_vec();
            }
        })
    });
    Ok(())
}

/// Passes messages on, changed, until one of the sides closes.
fn pass_on<M: FrameMessage>(
    mut from: UnixStream,
    mut to: UnixStream,
    change: impl Fn(u32, &mut M),
) -> io::Result<()> {
    let (mut input, mut room) = (Vec::new(), [0; 4096]);
    loop {
        let Ok(count @ 1..) = from.read(&mut room) else {
            return to.shutdown(Shutdown::Both);
        };
        input.extend_from_slice(&room[..count]);
        while let Some(mut frame) = ttrpc::decode(&input).expect("ttrpc") {
            input.drain(..frame.length);
            change(frame.stream, &mut frame.message);
            let mut bytes = Vec::new();
            ttrpc::encode(&mut bytes, frame.stream, &frame.message).expect("fits");
            to.write_all(&bytes)?;
        }
    }
}

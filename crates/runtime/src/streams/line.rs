//! The connection between a client and a process.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, shim_gone};
use crate::shim_client::{self, Attached, Input, Kill, Output, Resize, Shim, Target};
use criscope_shim::STUCK;

/// Maximum number of bytes per read from a client.
const PIECE: usize = 16 << 10;

/// Resolution of the grace period for output that stays open.
const DRAIN_PART: Duration = Duration::from_millis(100);

/// The signal sent to the programs of a terminal whose client has disconnected.
const SIGHUP: i32 = 1;

/// How the output of a process ended.
#[derive(Debug)]
pub(super) enum Drained {
    /// With the process, or because it closed the requested streams.
    Whole,
    /// The shim detached the client, or disconnected.
    Cut,
    /// The shim does not respond; it may still have output.
    Stuck(shim_client::Error),
}

/// A client's connection to a process.
pub(super) struct Line {
    pub(super) shim: Shim,
    pub(super) target: Target,
    pub(super) tty: bool,
    /// Cancelled when the process has exited.
    pub(super) ended: CancellationToken,
    /// How long to wait for output after that: a child process may keep it open forever.
    pub(super) drain: Option<Duration>,
}

impl Line {
    /// Copies the output of a process, until it closed the requested streams.
    pub(super) async fn drain(
        &self,
        output: &mut Attached,
        mut stdout: Option<cri_streaming::OutputStream>,
        mut stderr: Option<cri_streaming::OutputStream>,
    ) -> Drained {
        let mut open = [stdout.is_some(), stderr.is_some()];
        let mut patience = self.drain;
        while open != [false; 2] {
            let next = tokio::select! {
                // Output that is there is never given up.
                biased;
                next = output.next() => next,
                settled = self.given_up(&mut patience) => {
                    if let Err(error) = settled {
                        return Drained::Stuck(error);
                    }
                    match timeout(DRAIN_PART, output.next()).await {
                        Ok(next) => next,
                        Err(_) => return Drained::Whole,
                    }
                }
            };
            let (at, to, piece) = match next {
                Some(Output::Stdout(piece)) => (0, &mut stdout, piece),
                Some(Output::Stderr(piece)) => (1, &mut stderr, piece),
                None => return Drained::Cut,
            };
            open[at] &= !piece.is_empty();
            if let Some(out) = to
                && out.write_all(&piece).await.is_err()
            {
                // The client has disconnected: the rest is read and discarded, so that the process does not block.
                *to = None;
            }
        }
        Drained::Whole
    }

    /// The reason why the client misses output, if it does.
    pub(super) async fn lost(&self, drained: Drained) -> Option<Error> {
        match drained {
            Drained::Whole => None,
            Drained::Cut => Some(self.cut().await),
            Drained::Stuck(error) => Some(error.into()),
        }
    }

    /// The reason why the shim detached the client of a running process.
    async fn cut(&self) -> Error {
        match self.shim.greet().await {
            Ok(()) => Error::Exhausted(format!("the output was not taken for {STUCK:?}")),
            Err(shim_client::Error::Gone { .. }) => shim_gone(),
            Err(error) => error.into(),
        }
    }

    /// Completes when the process has exited and no output arrived for the rest of the grace period, although the shim has
    /// passed on the bytes it could read. The time that a slow client takes to read does not count.
    async fn given_up(
        &self,
        patience: &mut Option<Duration>,
    ) -> std::result::Result<(), shim_client::Error> {
        self.ended.cancelled().await;
        let Some(patience) = patience else {
            return std::future::pending().await;
        };
        while !patience.is_zero() {
            let part = DRAIN_PART.min(*patience);
            tokio::time::sleep(part).await;
            *patience -= part;
        }
        self.shim.settle().await
    }

    /// Copies the client's input to the process. Returns whether all of it was sent.
    pub(super) async fn feed(
        &self,
        stdin: Option<cri_streaming::InputStream>,
        input: &mut Input,
    ) -> bool {
        let Some(mut stdin) = stdin else { return true };
        let mut piece = vec![0; PIECE];
        while let Ok(read @ 1..) = stdin.read(&mut piece).await {
            if input.write(&piece[..read]).await.is_err() {
                return false;
            }
        }
        // The input of a container ends only with `stdin_once`, which the shim knows.
        input.end().await.is_ok()
    }

    /// Applies the terminal sizes that the client sends. Never ends.
    pub(super) async fn resize(
        &self,
        mut sizes: tokio::sync::mpsc::Receiver<cri_streaming::TerminalSize>,
    ) {
        while let Some(size) = sizes.recv().await {
            let resize = Resize {
                target: self.target.clone(),
                width: size.width.into(),
                height: size.height.into(),
            };
            if self.tty {
                // The process may have exited in the meantime.
                let _ended = self.shim.resize(resize).await;
            }
        }
        std::future::pending().await
    }

    /// Hangs up the terminal.
    pub(super) async fn hang_up(&self) {
        if !self.tty {
            return;
        }
        let kill = Kill {
            target: self.target.clone(),
            signal: SIGHUP,
            all: false,
        };
        let _ended = self.shim.kill(kill).await;
    }
}

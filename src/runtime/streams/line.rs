//! The way between a client and a process.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::runtime::error::{Error, shim_gone};
use crate::runtime::shim_client::{self, Attached, Input, Kill, Output, Resize, Shim, Target};
use criscope_shim::STUCK;

/// What is read of a client at a time.
const PIECE: usize = 16 << 10;

/// In what parts the time is counted that output may stay open for.
const DRAIN_PART: Duration = Duration::from_millis(100);

/// What a terminal's programs are sent when nobody is left to look.
const SIGHUP: i32 = 1;

/// How the output of a process came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// With the process, or because it closed what the client wants of it.
    Whole,
    /// The shim let go of the client, or has gone.
    Cut,
}

/// A client's way to a process.
pub(super) struct Line {
    pub(super) shim: Shim,
    pub(super) target: Target,
    pub(super) tty: bool,
    /// The process has.
    pub(super) ended: CancellationToken,
    /// How long is waited for its output after that: a child of it may hold it open for ever.
    pub(super) drain: Option<Duration>,
}

impl Line {
    /// Carries what a process writes, until it has closed what the client wants of it.
    pub(super) async fn drain(
        &self,
        output: &mut Attached,
        mut stdout: Option<cri_streaming::Output>,
        mut stderr: Option<cri_streaming::Output>,
    ) -> Drained {
        let mut open = [stdout.is_some(), stderr.is_some()];
        let mut patience = self.drain;
        while open != [false; 2] {
            let next = tokio::select! {
                next = output.next() => next,
                () = self.given_up(&mut patience) => return Drained::Whole,
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
                // The client has gone: what is left is read and thrown away, so that the process does not stall.
                *to = None;
            }
        }
        Drained::Whole
    }

    /// Why the shim let go of the client of a process that still runs.
    pub(super) async fn cut(&self) -> Error {
        match self.shim.greet().await {
            Ok(()) => Error::Exhausted(format!("the output was not taken for {STUCK:?}")),
            Err(shim_client::Error::Gone { .. }) => shim_gone(),
            Err(error) => error.into(),
        }
    }

    /// When the process has ended and nothing came for what is left of the patience. The time that a slow client takes for
    /// what came does not count.
    async fn given_up(&self, patience: &mut Option<Duration>) {
        self.ended.cancelled().await;
        let Some(patience) = patience else {
            return std::future::pending().await;
        };
        while !patience.is_zero() {
            let part = DRAIN_PART.min(*patience);
            tokio::time::sleep(part).await;
            *patience -= part;
        }
    }

    /// Hands the client's input to the process, until there is no more. Whether all of it was sent.
    pub(super) async fn feed(
        &self,
        stdin: Option<cri_streaming::Input>,
        input: &mut Input,
    ) -> bool {
        let Some(mut stdin) = stdin else { return true };
        let mut piece = vec![0; PIECE];
        while let Ok(read @ 1..) = stdin.read(&mut piece).await {
            if input.write(&piece[..read]).await.is_err() {
                return false;
            }
        }
        // Of a container it ends only if it was made so; the shim knows.
        input.end().await.is_ok()
    }

    /// Sets the sizes that the client sends. Never ends.
    pub(super) async fn resize(&self, mut sizes: tokio::sync::mpsc::Receiver<cri_streaming::Size>) {
        while let Some(size) = sizes.recv().await {
            let resize = Resize {
                target: self.target.clone(),
                width: size.width.into(),
                height: size.height.into(),
            };
            if self.tty {
                // One that has ended meanwhile needs no size.
                let _ended = self.shim.resize(resize).await;
            }
        }
        std::future::pending().await
    }

    /// Nobody looks at the terminal any more.
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

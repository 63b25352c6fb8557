//! The download of a blob. A large one is fetched over several connections, if the registry sends parts of blobs and no layer waits
//! for a permit: many registries limit the rate of each connection.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::permits::Permit;
use super::pieces::Pieces;
use super::task::LayerTask;
use crate::blocking::lock;
use crate::config::Failpoint;
use crate::descriptor::Descriptor;
use crate::error::Result;
use crate::registry::{BlobPart, Repository};
use crate::requests;

/// How often a download looks for spare permits.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The download of a layer's blob, which it sends to the spool with the offset of each chunk.
pub(super) struct Download<'a> {
    pub(super) task: &'a LayerTask,
    pub(super) repository: &'a Repository,
    pub(super) descriptor: &'a Descriptor,
    /// Bytes that an earlier pull has left.
    pub(super) kept: u64,
    pub(super) pieces: Pieces,
    pub(super) parts: Parts,
    pub(super) sender: &'a mpsc::Sender<(u64, Bytes)>,
}

/// The state of further connections.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The server says that it sends parts.
    are_offered: AtomicBool,
    /// The server has sent a part.
    are_sent: AtomicBool,
    /// A connection has failed; there will be no other.
    has_failed: AtomicBool,
    /// Further connections that are at work.
    active: AtomicUsize,
    changed: Notify,
}

/// A further connection at work.
struct ActivePart<'a>(&'a Parts);

impl Drop for ActivePart<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

impl Parts {
    fn set(&self, what: &AtomicBool) {
        what.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn may_be_tried(&self) -> bool {
        self.are_offered.load(Ordering::Relaxed) && !self.has_failed.load(Ordering::Relaxed)
    }

    fn begin(&self) -> ActivePart<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        ActivePart(self)
    }

    /// Waits until a further connection has received something, or all have given their unfinished pieces back.
    async fn tried(&self) {
        while !self.are_sent.load(Ordering::Relaxed) && self.active.load(Ordering::Relaxed) > 0 {
            self.changed.notified().await;
        }
    }
}

impl Download<'_> {
    /// Fetches everything. Bytes arrive in order, except over further connections.
    ///
    /// # Errors
    /// Those of [`Repository::blob`], for the first connection.
    pub(super) async fn run(&self) -> Result<()> {
        requests::expects(self.descriptor.size);
        requests::received(self.kept);
        let mut is_begun = false;
        while !self.pieces.is_empty() {
            if !self.pass(is_begun).await? {
                break;
            }
            is_begun = true;
        }
        Ok(())
    }

    /// Fetches until no connection is left. One that failed may have left something. Returns `false` if the receiver is gone.
    async fn pass(&self, is_begun: bool) -> Result<bool> {
        let mut first = pin!(self.first(is_begun));
        let mut further = FuturesUnordered::new();
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut wants_more = None;
        while wants_more.is_none() || !further.is_empty() {
            tokio::select! {
                done = &mut first, if wants_more.is_none() => wants_more = Some(done?),
                Some(()) = further.next() => {}
                _ = look.tick(), if wants_more.is_none() => {
                    let wants = self.parts.may_be_tried() && self.pieces.are_many();
                    let permit = if wants {
                        let task = self.task;
                        task.tools.permits.spare(task.requester.clone(), task.monitor())
                    } else {
                        None
                    };
                    further.extend(permit.map(|permit| self.further(permit)));
                }
            }
        }
        Ok(wants_more.unwrap_or_default())
    }

    /// The first connection. Its request is for everything, because the server may not know parts, and it goes on until it meets what
    /// another connection fetches; then it fetches piece by piece, too. Returns `false` if the receiver is gone.
    async fn first(&self, is_begun: bool) -> Result<bool> {
        if !is_begun && let Some(claimed) = self.pieces.claim() {
            let whole = claimed.start..self.descriptor.size;
            let claimed = Mutex::new(claimed);
            self.fetch(whole, false, |at, chunk| self.stream(&claimed, at, chunk))
                .await?;
            if !lock(&claimed).is_empty() {
                return Ok(false);
            }
        }
        while let Some(claimed) = self.pieces.claim() {
            if !self.piece(claimed, false).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes bytes on. Returns `false` if the receiver is gone.
    async fn send(&self, at: u64, chunk: Bytes) -> bool {
        self.task.fetched(chunk.len() as u64);
        self.task
            .tools
            .config
            .failpoint
            .reached(Failpoint::LayerFetching);
        self.sender.send((at, chunk)).await.is_ok()
    }

    /// Passes claimed bytes of the first connection on, and updates the rest of the claim. Returns whether more
    /// are wanted.
    async fn stream(&self, claimed: &Mutex<Range<u64>>, at: u64, mut chunk: Bytes) -> bool {
        let last = at + chunk.len() as u64;
        while lock(claimed).end < last && self.extend(claimed).await {}
        let end = lock(claimed).end.min(last);
        chunk.truncate(usize::try_from(end - at).unwrap_or_default());
        if !self.send(at, chunk).await {
            return false;
        }
        let is_done = {
            let mut claimed = lock(claimed);
            claimed.start = end;
            claimed.is_empty()
        };
        !is_done || self.extend(claimed).await
    }

    /// Claims the next piece as well, unless another connection has it. One that has received nothing yet may give it back.
    async fn extend(&self, claimed: &Mutex<Range<u64>>) -> bool {
        let end = lock(claimed).end;
        if end >= self.descriptor.size {
            return false;
        }
        let mut next = self.pieces.go_on(end);
        if next.is_none() {
            self.parts.tried().await;
            next = self.pieces.go_on(end);
        }
        if let Some(next) = next {
            lock(claimed).end = next;
        }
        next.is_some()
    }

    /// Another connection: piece by piece, until a layer waits for its permit.
    async fn further(&self, permit: Permit) {
        let _active = self.parts.begin();
        while let Some(claimed) = self.pieces.claim() {
            match self.piece(claimed, true).await {
                Ok(true) if !permit.is_wanted() => {}
                Ok(_) => return,
                Err(error) => {
                    // The first connection fetches the rest, and fails if it cannot.
                    self.parts.set(&self.parts.has_failed);
                    let error = self.task.tools.config.observer.error_text(&error);
                    tracing::debug!(error.message = %error, "a part of a layer could not be fetched on its own");
                    return;
                }
            }
        }
    }

    /// Fetches a piece; missing bytes are given back. Returns `false` if the receiver is gone.
    async fn piece(&self, claimed: Range<u64>, is_further: bool) -> Result<bool> {
        let mut position = claimed.start;
        let fetched = self.fetch(claimed.clone(), is_further, |at, chunk| {
            position = at + chunk.len() as u64;
            self.parts.set(&self.parts.are_sent);
            self.send(at, chunk)
        });
        let fetched = fetched.await;
        let is_complete = position == claimed.end;
        self.pieces.give_back(position..claimed.end);
        fetched.map(|()| is_complete)
    }

    async fn fetch<T, G>(&self, range: Range<u64>, is_further: bool, sink: T) -> Result<()>
    where
        T: FnMut(u64, Bytes) -> G + Send,
        G: Future<Output = bool> + Send,
    {
        let part = BlobPart {
            range,
            sends_parts: &self.parts.are_offered,
            is_further,
        };
        self.repository.blob(self.descriptor, &part, sink).await
    }
}

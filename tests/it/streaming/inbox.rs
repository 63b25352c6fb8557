//! What a test client has received: a task of its own records it, so that tests can wait for it.

use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::prelude::*;

/// The record, which can be waited for.
#[derive(Debug)]
pub(super) struct Record<S>(Arc<(Mutex<S>, Notify)>);

impl<S> Clone for Record<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Record<S> {
    pub(super) fn put(&self, change: impl FnOnce(&mut S)) {
        change(&mut lock(&self.0.0));
        self.0.1.notify_waiters();
    }
}

/// The receiving half of a connection. Dropping it ends the task that reads.
pub(super) struct Inbox<T, S> {
    record: Record<S>,
    /// Unused half of a client that does not read yet.
    read: Option<ReadHalf<T>>,
    reading: Option<JoinHandle<()>>,
}

impl<T: AsyncRead + AsyncWrite + Send + 'static, S: Default + Send + 'static> Inbox<T, S> {
    /// Splits a connection into what is not read yet, and what is written to.
    pub(super) fn split(io: T) -> (Self, WriteHalf<T>) {
        let (read, write) = tokio::io::split(io);
        let inbox = Self {
            record: Record(Arc::default()),
            read: Some(read),
            reading: None,
        };
        (inbox, write)
    }

    /// Reads from now on, as `receive` does it.
    pub(super) fn begin<F>(&mut self, receive: impl FnOnce(ReadHalf<T>, Record<S>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let read = self.read.take().expect("not yet");
        self.reading = Some(tokio::spawn(receive(read, self.record.clone())));
    }

    /// Looks at what has been received so far.
    pub(super) fn now<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&lock(&self.record.0.0))
    }

    /// Waits until a condition holds.
    pub(super) async fn wait<R>(&self, what: &str, mut look: impl FnMut(&S) -> Option<R>) -> R {
        let (state, notify) = &*self.record.0;
        soon(what, async {
            loop {
                let changed = notify.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = look(&lock(state)) {
                    return found;
                }
                changed.await;
            }
        })
        .await
    }
}

impl<T, S> Drop for Inbox<T, S> {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

/// Sends what there must be room for.
pub(super) async fn send<E: std::fmt::Debug>(sending: impl Future<Output = Result<(), E>>) {
    soon("room to send", sending).await.expect("sent");
}

//! Reads a long response piece by piece, so that each piece is on its way to the caller before the next is read.
//!
//! h2 reads a connection until it is empty. A runtime writes a list as fast as it is read: up to a whole megabyte would be read
//! before the tasks that pass it on run, while the caller waits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::uds::StreamFilter;

/// Lets other tasks run after each read that filled the buffer.
#[derive(Debug, Default)]
pub struct YieldAfterRead {
    /// True if the last read filled the buffer: then there is probably more.
    filled: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamFilter<S> for YieldAfterRead {
    fn poll_read(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.filled) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(Pin::new(inner).poll_read(cx, buf))?;
        self.filled = buf.remaining() == 0;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::uds::FilteredStream;

    /// Reads until 16 bytes have come, and returns how often another task could run meanwhile.
    async fn turns(writes: &[&[u8]]) -> u32 {
        let (ours, mut theirs) = duplex(100);
        for write in writes {
            theirs.write_all(write).await.expect("written");
        }
        let mut stream = FilteredStream::new(ours, YieldAfterRead::default());
        let (mut buf, mut read) = ([0; 8], 0);
        let turns = Cell::new(0);
        let reading = async {
            while read < 16 {
                read += stream.read(&mut buf).await.expect("read");
            }
        };
        let other = async {
            loop {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = reading => {}
            () = other => {}
        }
        turns.get()
    }

    #[tokio::test]
    async fn other_tasks_run_between_full_reads_only() {
        assert_eq!(turns(&[&[1; 8], &[2; 8]]).await, 1);
        assert_eq!(turns(&[&[1; 16]]).await, 1);
        let (ours, mut theirs) = duplex(100);
        let mut stream = FilteredStream::new(ours, YieldAfterRead::default());
        theirs.write_all(&[1; 7]).await.expect("written");
        let mut buf = [0; 8];
        assert_eq!(stream.read(&mut buf).await.expect("read"), 7);
        theirs.write_all(&[1; 7]).await.expect("written");
        let again = futures_util::FutureExt::now_or_never(stream.read(&mut buf));
        assert!(again.is_some(), "the buffer was not full: no need to wait");
    }
}

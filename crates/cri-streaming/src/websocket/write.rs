//! Writes frames to a connection: one task writes, and all others send it frames. So no task waits for a lock while the
//! client does not read, and a pong waits for at most the frame that is being written.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::frame::{frame, opcode};

/// Maximum number of frames that wait to be written: enough to keep the task busy. The largest are 32 KiB.
const QUEUE_FRAMES: usize = 4;

/// The queue for data frames.
pub(crate) type FrameSender = mpsc::Sender<Bytes>;

/// Control frames, which are sent before the data.
#[derive(Default)]
struct PendingControl {
    /// The last ping, the only one that needs a response (RFC 6455 section 5.5.3): pings cannot exhaust memory.
    pong: Option<Bytes>,
    /// The code of a close frame that is sent before the data.
    close: Option<u16>,
    /// The code of the close frame after the data, if it is not 1000.
    last: Option<u16>,
}

/// Sends control frames on behalf of the reader.
#[derive(Clone, Default)]
pub(crate) struct ControlQueue(Arc<(Mutex<PendingControl>, Notify)>);

impl ControlQueue {
    fn pending(&self) -> MutexGuard<'_, PendingControl> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a ping.
    pub(crate) fn pong(&self, content: Bytes) {
        self.pending().pong = Some(content);
        self.0.1.notify_one();
    }

    /// Sends an unsolicited pong, unless one is already pending.
    pub(crate) fn heartbeat(&self) {
        self.pending().pong.get_or_insert_default();
        self.0.1.notify_one();
    }

    /// Closes because of an error, without waiting for data.
    pub(crate) fn fail(&self, code: u16) {
        self.pending().close = Some(code);
        self.0.1.notify_one();
    }

    /// Closes with this code instead of 1000, once everything is written.
    pub(crate) fn end_with(&self, code: u16) {
        self.pending().last = Some(code);
    }
}

/// A binary message of two parts.
pub(crate) fn binary(first: &[u8], second: &[u8]) -> Bytes {
    frame(opcode::BINARY, first, second)
}

/// A text message of two parts.
pub(crate) fn text(first: &[u8], second: &[u8]) -> Bytes {
    frame(opcode::TEXT, first, second)
}

/// Creates the queue and its writer: a future that resolves once all senders are dropped, everything is written, and the
/// connection was closed with code 1000.
pub(crate) fn start<W: AsyncWrite + Unpin>(
    io: W,
) -> (
    FrameSender,
    ControlQueue,
    impl Future<Output = io::Result<()>> + use<W>,
) {
    let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
    let control = ControlQueue::default();
    let writing = write(io, queue, control.clone());
    (frames, control, writing)
}

async fn write<W: AsyncWrite + Unpin>(
    mut io: W,
    mut queue: mpsc::Receiver<Bytes>,
    control: ControlQueue,
) -> io::Result<()> {
    let code = loop {
        let (pong, close) = {
            let mut pending = control.pending();
            (pending.pong.take(), pending.close)
        };
        if let Some(pong) = pong {
            io.write_all(&frame(opcode::PONG, &pong, b"")).await?;
        }
        if let Some(code) = close {
            break code;
        }
        let next = match queue.try_recv() {
            Ok(next) => Some(next),
            Err(_) => {
                // The queue is empty: data buffered by TLS must be flushed now.
                io.flush().await?;
                tokio::select! {
                    biased;
                    () = control.0.1.notified() => continue,
                    next = queue.recv() => next,
                }
            }
        };
        match next {
            Some(next) => io.write_all(&next).await?,
            None => break control.pending().last.unwrap_or(1000),
        }
    };
    io.write_all(&frame(opcode::CLOSE, &code.to_be_bytes(), b""))
        .await?;
    io.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn everything_is_written_before_the_close() {
        let (near, mut far) = tokio::io::duplex(8);
        let (frames, control, writing) = start(near);
        let task = tokio::spawn(writing);
        control.pong(Bytes::from_static(b"p"));
        frames.send(binary(b"1", b"abc")).await.expect("open");
        frames.send(text(b"0", b"")).await.expect("open");
        drop(frames);
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.expect("read");
        assert_eq!(all, b"\x8a\x01p\x82\x041abc\x81\x010\x88\x02\x03\xe8");
        task.await.expect("no panic").expect("written");
    }

    #[tokio::test]
    async fn a_pong_waits_for_one_frame_and_only_the_last_ping_is_answered() {
        let (near, mut far) = tokio::io::duplex(1);
        let (frames, control, writing) = start(near);
        let task = tokio::spawn(writing);
        let data = binary(b"", &[b'd'; 50]);
        for _ in 0..QUEUE_FRAMES {
            frames.send(data.clone()).await.expect("open");
        }
        assert_eq!(
            far.read_u8().await.expect("read"),
            0x82,
            "the first frame is being written"
        );
        for i in 0..100_000_u32 {
            control.pong(Bytes::copy_from_slice(&i.to_be_bytes()));
        }
        drop(frames);
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.expect("read");
        assert_eq!(all[51..53], [0x8a, 4]);
        assert_eq!(all[53..57], 99_999_u32.to_be_bytes());
        assert_eq!(all.len(), 51 + 6 + 3 * 52 + 4);
        task.await.expect("no panic").expect("written");
    }

    #[tokio::test]
    async fn the_final_close_frame_has_a_code() {
        let (near, mut far) = tokio::io::duplex(64);
        let (frames, control, writing) = start(near);
        let task = tokio::spawn(writing);
        control.end_with(1001);
        frames.send(binary(b"3", b"why")).await.expect("open");
        drop(frames);
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.expect("read");
        assert_eq!(all, b"\x82\x043why\x88\x02\x03\xe9");
        task.await.expect("no panic").expect("written");
    }

    #[tokio::test]
    async fn a_failure_does_not_wait_for_pending_data() {
        let (near, mut far) = tokio::io::duplex(64);
        let (_frames, control, writing) = start(near);
        let task = tokio::spawn(writing);
        control.fail(1002);
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.expect("read");
        assert_eq!(all, b"\x88\x02\x03\xea");
        task.await.expect("no panic").expect("written");
    }
}

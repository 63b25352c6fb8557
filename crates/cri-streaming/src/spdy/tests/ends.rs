//! How a connection ends.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::super::{CloseReason, SpdyLimits};
use super::peer::{Frame, HeaderDeflater, data, syn_stream};
use super::{HOUR, connect, end, pattern, session, soon};

#[tokio::test(start_paused = true)]
async fn go_away_is_the_last_frame_after_all_written_data() {
    let (mut peer, mut streams, driver) = session();
    let id = peer.open("stdout").await;
    let (_reader, mut writer) = streams.next().await.expect("a stream").split();
    // As much as is accepted while the peer does not read. Paused time advances only when all tasks are idle.
    let text = pattern(300_000);
    let mut taken = 0;
    while let Ok(n) = tokio::time::timeout(
        Duration::from_secs(1),
        writer.write(&text[taken..text.len().min(taken + 1000)]),
    )
    .await
    {
        taken += n.expect("open");
    }
    assert!(taken > 64 * 1024 && taken < text.len(), "{taken} bytes");
    streams.handle().close();
    let error = writer.write_all(b"x").await.expect_err("closed");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    // The peer continues to send, which must not block the shutdown.
    peer.data(id, &[0; 1000]).await;
    let (received, is_whole) = peer.read(id).await;
    assert!(received == text[..taken], "{} bytes", received.len());
    assert!(!is_whole, "an unfinished stream is reset");
    assert_eq!(peer.rest().await, [Frame::GoAway(id, 0)]);
    // Data in flight from the peer is drained until it closes.
    peer.data(id, &pattern(200_000)).await;
    drop(peer);
    let end = end(driver).await;
    assert!(matches!(end.reason, CloseReason::Closed), "{end:?}");
    assert!(end.is_flushed);
    assert!(end.counters.bytes_in > 200_000);
}

#[tokio::test]
async fn the_peer_disconnects() {
    let (mut peer, mut streams, driver) = session();
    let id = peer.open("stdin").await;
    let (mut reader, mut writer) = streams.next().await.expect("a stream").split();
    peer.data(id, b"input").await;
    drop(peer);
    let end = end(driver).await;
    assert!(matches!(end.reason, CloseReason::ClientGone), "{end:?}");
    // Data that has arrived can be read, then the stream ends.
    let mut input = String::new();
    reader.read_to_string(&mut input).await.expect("the input");
    assert_eq!(input, "input");
    assert!(reader.is_lost());
    writer.write_all(b"x").await.expect_err("gone");
    assert!(streams.next().await.is_none());
}

#[tokio::test]
async fn streams_may_finish_after_a_go_away_of_the_peer() {
    let (mut peer, mut streams, driver) = session();
    let id = peer.open("stdout").await;
    let (_reader, mut writer) = streams.next().await.expect("a stream").split();
    peer.go_away().await;
    let refused = peer.begin(&[], 0).await;
    assert_eq!(peer.frame().await, Frame::Reset(refused, 3));
    writer.write_all(b"output").await.expect("still open");
    writer.shutdown().await.expect("shut");
    assert_eq!(peer.read(id).await, (b"output".to_vec(), true));
    peer.fin(id).await;
    assert_eq!(peer.rest().await, [Frame::GoAway(refused, 0)]);
    drop(peer);
    let end = end(driver).await;
    assert!(matches!(end.reason, CloseReason::GoAway), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends() {
    let idle = Duration::from_secs(600);
    let (mut peer, mut streams, driver) = connect(SpdyLimits::session(idle));
    let began = Instant::now();
    let id = peer.open("stdout").await;
    let (mut reader, mut writer) = streams.next().await.expect("a stream").split();
    // All traffic resets the idle timeout: a PING, and output.
    tokio::time::sleep(idle * 3 / 4).await;
    peer.ping(1).await;
    tokio::time::sleep(idle * 3 / 4).await;
    writer.write_all(b"x").await.expect("written");
    let written = Instant::now();
    assert_eq!(peer.frame().await, Frame::Data(id, b"x".to_vec(), false));
    assert_eq!(peer.try_frame().await, Some(Frame::Reset(id, 5)));
    assert_eq!(peer.try_frame().await, Some(Frame::GoAway(id, 0)));
    assert!(written.elapsed() >= idle && began.elapsed() < idle * 3);
    assert_eq!(reader.read(&mut [0; 1]).await.expect("the end"), 0);
    drop(peer);
    let end = end(driver).await;
    assert!(matches!(end.reason, CloseReason::Idle), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn the_shutdown_times_out_if_the_peer_does_not_read() {
    let (mut peer, mut streams, driver) = session();
    peer.open("stdout").await;
    let (_reader, mut writer) = streams.next().await.expect("a stream").split();
    writer.write_all(&pattern(150_000)).await.expect("written");
    let began = Instant::now();
    streams.handle().close();
    let end = end(driver).await;
    assert!(matches!(end.reason, CloseReason::Closed), "{end:?}");
    assert!(!end.is_flushed);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn the_shutdown_times_out_if_the_peer_does_not_close() {
    let (mut peer, streams, driver) = session();
    streams.handle().close();
    assert_eq!(peer.rest().await, [Frame::GoAway(0, 0)]);
    let end = end(driver).await;
    assert!(end.is_flushed);
}

#[tokio::test]
async fn dropping_the_driver_ends_everything() {
    let (mut peer, mut streams, driver) = session();
    let id = peer.open("data").await;
    let (mut reader, mut writer) = streams.next().await.expect("a stream").split();
    let waiting = tokio::spawn(async move {
        let is_last = streams.next().await.is_none();
        (is_last, reader.read(&mut [0; 1]).await.expect("the end"))
    });
    peer.ping(1).await;
    driver.abort();
    let result = soon("the end", waiting).await.expect("no panic");
    assert_eq!(result, (true, 0));
    writer.write_all(b"x").await.expect_err("broken");
    let _ = peer.io.write_all(&data(id, 0, b"x")).await;
    assert_eq!(peer.try_frame().await, None);
}

#[tokio::test]
async fn a_connection_error_ends_the_connection() {
    struct Broken;
    impl tokio::io::AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Err(std::io::Error::other("on fire")))
        }
    }
    let io = tokio::io::join(Broken, tokio::io::sink());
    let (mut streams, driver) = super::SpdyConnection::server(io, SpdyLimits::session(HOUR));
    let end = driver.await;
    assert_eq!(end.reason.to_string(), "connection failed: on fire");
    assert!(streams.next().await.is_none());
}

#[tokio::test]
async fn only_streams_that_the_peer_did_not_end_are_lost() {
    let (mut peer, mut streams, driver) = session();
    let mut readers = Vec::new();
    let mut ids = Vec::new();
    let mut writers = Vec::new();
    for kind in ["ended", "reset", "open"] {
        ids.push(peer.open(kind).await);
        let (reader, writer) = streams.next().await.expect("a stream").split();
        readers.push(reader);
        writers.push(writer);
    }
    peer.fin(ids[0]).await;
    peer.reset(ids[1]).await;
    drop(peer);
    end(driver).await;
    let lost: Vec<_> = readers
        .iter()
        .map(super::super::SpdyReader::is_lost)
        .collect();
    assert_eq!(lost, [false, false, true]);

    // A peer that has sent GOAWAY, and one whose connection the server closes.
    for says_goodbye in [true, false] {
        let (mut peer, mut streams, driver) = session();
        peer.open("open").await;
        let (reader, _writer) = streams.next().await.expect("a stream").split();
        if says_goodbye {
            peer.go_away().await
        } else {
            streams.handle().close()
        }
        drop(peer);
        end(driver).await;
        assert!(!reader.is_lost(), "{says_goodbye}");
    }
}

#[tokio::test]
async fn data_received_before_a_failed_write_is_read() {
    /// Returns one piece at a time, then the end.
    struct Pieces(std::collections::VecDeque<Vec<u8>>);
    impl tokio::io::AsyncRead for Pieces {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buf: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            buf.put_slice(&self.0.pop_front().unwrap_or_default());
            std::task::Poll::Ready(Ok(()))
        }
    }
    let (near, far) = tokio::io::duplex(1);
    drop(near);
    let opening = syn_stream(1, 0, &HeaderDeflater::new().block(&[]));
    let pieces = [opening, data(1, 0, b"in"), data(1, 1, b"put")];
    let io = tokio::io::join(Pieces(pieces.into()), far);
    let (mut streams, driver) = super::SpdyConnection::server(io, SpdyLimits::session(HOUR));
    let end = driver.await;
    assert!(matches!(end.reason, CloseReason::ClientGone), "{end:?}");
    let (mut reader, _writer) = streams.next().await.expect("a stream").split();
    let mut input = String::new();
    reader.read_to_string(&mut input).await.expect("the input");
    assert_eq!((input.as_str(), reader.is_lost()), ("input", false));
}

//! Many streams that share the capacity of one connection.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::input::READ_LEN;
use super::super::{SpdyLimits, SpdyReader, SpdyStreams, SpdyWriter};
use super::peer::{Frame, Peer, data};
use super::{HOUR, connect, pattern, soon};

/// Paused time advances only when all tasks are idle.
const UNTIL_NOTHING_MOVES: Duration = Duration::from_secs(1);

/// Opens this many streams.
async fn open(
    peer: &mut Peer<DuplexStream>,
    streams: &mut SpdyStreams,
    count: usize,
) -> Vec<(SpdyReader, SpdyWriter)> {
    let mut all = Vec::new();
    for _ in 0..count {
        peer.open("data").await;
        all.push(streams.next().await.expect("a stream").split());
    }
    all
}

#[tokio::test(start_paused = true)]
async fn unsent_data_is_limited_over_all_streams_and_none_starves() {
    const STREAMS: usize = 40;
    const LENGTH: usize = 100_000;
    let mut limits = SpdyLimits::port_forward(HOUR);
    limits.unsent_all = 300_000;
    let (mut peer, mut streams, _driver) = connect(limits);
    let mut writing = JoinSet::new();
    for (reader, mut writer) in open(&mut peer, &mut streams, STREAMS).await {
        writing.spawn(async move {
            writer.write_all(&pattern(LENGTH)).await.expect("written");
            writer.shutdown().await.expect("shut");
            reader
        });
    }
    sleep(UNTIL_NOTHING_MOVES).await;
    let handle = streams.handle();
    assert_eq!(handle.counters().unsent, limits.unsent_all);

    let mut got = vec![Vec::new(); STREAMS];
    let mut ended = 0;
    while ended < STREAMS {
        let Frame::Data(id, bytes, is_last) = peer.frame().await else {
            panic!("unexpected frame");
        };
        got[id as usize / 2].extend(bytes);
        assert!(handle.counters().unsent <= limits.unsent_all);
        if is_last {
            ended += 1;
            // The first streams are not finished before the others have sent something.
            assert!(got.iter().all(|got| !got.is_empty()));
        }
    }
    assert!(got.iter().all(|got| *got == pattern(LENGTH)));
    assert_eq!(handle.counters().unsent, 0);
    writing.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_for_capacity_may_end() {
    let mut limits = SpdyLimits::port_forward(HOUR);
    limits.unsent_all = limits.unsent;
    let (mut peer, mut streams, _driver) = connect(limits);
    let mut writing = Vec::new();
    for (reader, mut writer) in open(&mut peer, &mut streams, 5).await {
        writing.push(tokio::spawn(async move {
            let result = writer.write_all(&pattern(400_000)).await;
            let _ = writer.shutdown().await;
            drop(reader);
            result
        }));
    }
    sleep(UNTIL_NOTHING_MOVES).await;
    let handle = streams.handle();
    assert_eq!(handle.counters().unsent, limits.unsent_all);
    // The first stream has all of the capacity, the others wait: one is reset by the peer, one is dropped.
    peer.reset(3).await;
    let reset = soon("a reset", writing.remove(1)).await.expect("no panic");
    let error = reset.expect_err("reset");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    writing.remove(1).abort();
    // Then the first, with all of its data.
    peer.reset(1).await;
    let reset = writing.remove(0).await.expect("no panic");
    reset.expect_err("reset");
    let mut got = [0; 5];
    let mut ended = 0;
    while ended < 2 {
        match peer.frame().await {
            Frame::Data(id, bytes, is_last) => {
                got[id as usize / 2] += bytes.len();
                ended += usize::from(is_last);
            }
            Frame::Reset(5, _) => {}
            _ => panic!("unexpected frame"),
        }
    }
    assert_eq!((got[2], got[3], got[4]), (0, 400_000, 400_000));
    assert_eq!(handle.counters().unsent, 0);
}

#[tokio::test(start_paused = true)]
async fn data_taken_by_a_reader_counts_as_unread_until_consumed() {
    const STREAMS: usize = 20;
    const LENGTH: usize = 20_000;
    let mut limits = SpdyLimits::port_forward(HOUR);
    limits.unread = 100_000;
    let (mut peer, mut streams, _driver) = connect(limits);
    let mut bytes = Vec::new();
    let readers = open(&mut peer, &mut streams, STREAMS).await;
    for i in 0..STREAMS {
        bytes.extend(data(2 * i as u32 + 1, 1, &pattern(LENGTH)));
    }
    let (_from, mut to) = tokio::io::split(peer.io);
    let sending = tokio::spawn(async move { to.write_all(&bytes).await.expect("sent") });
    let (done, mut wait) = tokio::sync::watch::channel(false);
    wait.mark_unchanged();
    let mut reading = JoinSet::new();
    for (mut reader, writer) in readers {
        let mut wait = wait.clone();
        reading.spawn(async move {
            // The waiter is polled once, and not again.
            reader.fill_buf().await.expect("something");
            wait.changed().await.expect("notified");
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await.expect("all");
            drop(writer);
            all == pattern(LENGTH)
        });
    }
    sleep(UNTIL_NOTHING_MOVES).await;
    assert!(!sending.is_finished());
    let unread = streams.handle().counters().unread;
    assert!(
        (limits.unread..=limits.unread + READ_LEN).contains(&unread),
        "{unread} bytes"
    );
    done.send_replace(true);
    assert!(reading.join_all().await.into_iter().all(|whole| whole));
    sending.await.expect("no panic");
    assert_eq!(streams.handle().counters().unread, 0);
}

//! Limits of buffered data, and which data blocks which.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::input::READ_LEN;
use super::super::{SpdyLimits, SpdyReader};
use super::peer::{Frame, data, ping};
use super::{HOUR, connect, end, pattern, session, soon};

#[tokio::test]
async fn an_unread_stream_blocks_no_other_below_the_limit() {
    let (mut peer, mut streams, _driver) = session();
    let ids = [peer.open("a").await, peer.open("b").await];
    let (_unread, _a) = streams.next().await.expect("a").split();
    let (mut reader, _b) = streams.next().await.expect("b").split();
    peer.data(ids[0], &pattern(1_000_000)).await;
    peer.ping(1).await;
    peer.data(ids[1], b"hello").await;
    let mut hello = [0; 5];
    soon("b", reader.read_exact(&mut hello)).await.expect("b");
    assert_eq!(hello, *b"hello");
    assert_eq!(streams.handle().counters().unread, 1_000_000);
}

#[tokio::test]
async fn pings_are_answered_while_output_is_held_back() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.open("stdout").await;
    let (_reader, mut writer) = streams.next().await.expect("a stream").split();
    let text = pattern(3 << 20);
    let output = text.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&output).await.expect("written");
        writer.shutdown().await.expect("shut");
    });
    // The peer does not read, so all buffers fill up.
    let handle = streams.handle();
    soon("output that flows", async {
        while handle.counters().data_out < 100_000 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!writing.is_finished());
    peer.send(&ping(1)).await;
    soon("a PING", async {
        while handle.counters().pings == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The reply arrives before most of the output: only the output buffer and the pipe are ahead of it.
    let mut before = 0;
    let mut all = Vec::new();
    loop {
        match peer.frame().await {
            Frame::Ping(1) => before = all.len(),
            Frame::Data(_, bytes, is_last) => {
                all.extend(bytes);
                if is_last {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(before > 0 && before < 300_000, "{before} bytes before it");
    assert!(all == text);
    assert_eq!(id, 1);
}

#[tokio::test(start_paused = true)]
async fn unread_replies_are_limited() {
    let (peer, streams, _driver) = session();
    // Each has a reply of twelve bytes; only a limited number is kept, then the peer is blocked.
    let pings: Vec<u8> = (0..100_000).flat_map(|i| ping(2 * i + 1)).collect();
    let (mut from, mut to) = tokio::io::split(peer.io);
    let sending = tokio::spawn(async move { to.write_all(&pings).await.expect("sent") });
    // Paused time advances only when all tasks are idle.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!sending.is_finished());
    let answered = streams.handle().counters().pings;
    assert!((1..30_000).contains(&answered), "{answered} answers");
    let mut answers = vec![0; 100_000 * 12];
    soon("all answers", from.read_exact(&mut answers))
        .await
        .expect("answers");
    assert_eq!(answers[answers.len() - 12..], ping(199_999));
    sending.await.expect("no panic");
}

#[tokio::test]
async fn a_slow_reader_slows_down_the_peer() {
    let mut limits = SpdyLimits::session(HOUR);
    limits.unread = 100_000;
    let (mut peer, mut streams, _driver) = connect(limits);
    let id = peer.open("stdin").await;
    let (mut reader, _writer) = streams.next().await.expect("a stream").split();
    let handle = streams.handle();
    let text = pattern(5_000_000);
    let input = text.clone();
    let sending = tokio::spawn(async move {
        // Both the smallest pieces and a large one.
        for piece in input[..50_000].chunks(3) {
            peer.data(id, piece).await;
        }
        peer.data(id, &input[50_000..]).await;
        peer.fin(id).await;
        peer
    });
    let mut all = Vec::<u8>::new();
    let mut piece = vec![0; 10_000];
    loop {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(handle.counters().unread <= limits.unread + READ_LEN);
        match soon("input", reader.read(&mut piece)).await.expect("input") {
            0 => break,
            n => all.extend(&piece[..n]),
        }
    }
    assert!(all == text);
    let peak = handle.counters().unread_peak;
    assert!(peak >= limits.unread, "it was held back: {peak}");
    sending.await.expect("no panic");
}

#[tokio::test]
async fn data_of_a_dropped_reader_is_drained() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.open("stdin").await;
    let (reader, mut writer) = streams.next().await.expect("a stream").split();
    // Part of it is already queued.
    peer.data(id, &pattern(900_000)).await;
    peer.ping(1).await;
    drop(reader);
    peer.data(id, &pattern(10_000_000)).await;
    peer.ping(3).await;
    let counters = streams.handle().counters();
    assert_eq!(counters.data_discarded, 10_900_000);
    assert_eq!(counters.unread, 0);
    // The other half is unaffected.
    writer.write_all(b"output").await.expect("written");
    writer.shutdown().await.expect("shut");
    assert_eq!(peer.read(id).await, (b"output".to_vec(), true));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_blocks_the_others_is_eventually_reset() {
    let mut limits = SpdyLimits::port_forward(HOUR);
    limits.unread = 100_000;
    let (mut peer, mut streams, driver) = connect(limits);
    let ids = [peer.open("a").await, peer.open("b").await];
    let (mut stuck, mut of_stuck) = streams.next().await.expect("a").split();
    let (mut reader, _b) = streams.next().await.expect("b").split();
    let (mut from, mut to) = tokio::io::split(peer.io);
    let sending = tokio::spawn(async move {
        let mut bytes = data(ids[0], 0, &pattern(300_000));
        bytes.extend(data(ids[1], 0, b"hello"));
        bytes.extend(data(ids[0], 0, b"too late"));
        bytes.extend(ping(1));
        to.write_all(&bytes).await.expect("sent");
        to
    });
    let began = tokio::time::Instant::now();
    assert_eq!(read_five(&mut reader).await, *b"hello");
    assert_eq!(began.elapsed(), limits.stall);
    let error = stuck.read(&mut [0; 9]).await.expect_err("not the end");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    of_stuck.write_all(b"x").await.expect_err("reset");
    let mut frames = [0; 16 + 12];
    from.read_exact(&mut frames).await.expect("frames");
    assert_eq!(frames[..16], super::peer::two(3, ids[0], 5));
    assert_eq!(frames[16..], ping(1));
    drop((from, sending.await.expect("no panic")));
    let counters = end(driver).await.counters;
    assert_eq!(counters.streams_stalled, 1);
    assert_eq!(counters.data_discarded, 300_008);
}

async fn read_five(reader: &mut SpdyReader) -> [u8; 5] {
    let mut bytes = [0; 5];
    reader.read_exact(&mut bytes).await.expect("five bytes");
    bytes
}

#[tokio::test]
async fn streams_send_in_turn() {
    let (mut peer, mut streams, _driver) = session();
    peer.open("a").await;
    peer.open("b").await;
    let mut writers = Vec::new();
    for _ in 0..2 {
        let (reader, mut writer) = streams.next().await.expect("a stream").split();
        writers.push(tokio::spawn(async move {
            let result = writer.write_all(&pattern(2 << 20)).await;
            (result, writer, reader)
        }));
    }
    // Once both flow, neither gets far ahead of the other.
    let mut got = [0usize; 2];
    while got[0] + got[1] < 4 << 20 {
        let Frame::Data(id, bytes, _) = peer.frame().await else {
            panic!("unexpected frame");
        };
        got[id as usize / 2] += bytes.len();
        let ahead = got[0].abs_diff(got[1]);
        assert!(ahead <= 256 * 1024, "{got:?}");
    }
    for writer in writers {
        writer.await.expect("no panic").0.expect("written");
    }
}

//! How streams are opened, used and ended.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::frame::{self, FIN, UNIDIRECTIONAL};
use super::super::{SpdyLimits, SpdyStream};
use super::peer::{Frame, control, data, syn_stream, two};
use super::{HOUR, connect, end, session, soon};

async fn next(streams: &mut super::SpdyStreams) -> SpdyStream {
    soon("a stream", streams.next()).await.expect("a stream")
}

#[tokio::test]
async fn an_exec_of_a_go_client() {
    let (mut peer, mut streams, driver) = session();
    // Sequentially: each waits for the reply.
    let kinds = ["error", "stdin", "stdout", "stderr", "resize"];
    let mut halves = Vec::new();
    for (i, kind) in kinds.iter().enumerate() {
        let id = peer.open(kind).await;
        assert_eq!(id, 2 * i as u32 + 1);
        let stream = next(&mut streams).await;
        assert_eq!(stream.headers.get("streamtype"), Some(*kind));
        assert_eq!(stream.id, id);
        halves.push(stream.split());
    }
    peer.data(9, b"{\"Width\":80,\"Height\":24}\n").await;
    peer.data(3, b"some ").await;
    peer.data(3, b"input").await;
    peer.fin(3).await;
    let mut input = String::new();
    let stdin = &mut halves[1].0;
    stdin.read_to_string(&mut input).await.expect("stdin");
    assert_eq!(input, "some input");
    let mut size = [0; 25];
    halves[4].0.read_exact(&mut size).await.expect("a size");
    assert_eq!(size, *b"{\"Width\":80,\"Height\":24}\n");

    // The end: output, then the status, then everything else.
    for (at, text) in [(2, "out"), (3, "err"), (0, "{\"status\":\"Success\"}")] {
        let writer = &mut halves[at].1;
        writer.write_all(text.as_bytes()).await.expect("written");
        writer.shutdown().await.expect("shut");
    }
    streams.handle().close();
    assert_eq!(peer.frame().await, Frame::Data(5, b"out".to_vec(), true));
    assert_eq!(peer.frame().await, Frame::Data(7, b"err".to_vec(), true));
    let status = b"{\"status\":\"Success\"}".to_vec();
    assert_eq!(peer.frame().await, Frame::Data(1, status, true));
    let mut rest = peer.rest().await;
    assert_eq!(rest.pop(), Some(Frame::GoAway(9, 0)));
    rest.sort_by_key(|frame| format!("{frame:?}"));
    assert_eq!(rest, [Frame::Reset(3, 5), Frame::Reset(9, 5)]);
    drop(peer);
    let counters = end(driver).await.counters;
    assert_eq!(counters.streams, 5);
    assert_eq!((counters.data_in, counters.data_out), (35, 26));
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_frame_of_the_peer() {
    let (mut peer, streams, driver) = session();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(streams.handle().counters().bytes_out, 0);
    peer.ping(1).await;
    drop(peer);
    assert_eq!(end(driver).await.counters.bytes_in, 12);
}

#[tokio::test]
async fn streams_are_interleaved_and_frames_may_be_split_anywhere() {
    let (mut peer, mut streams, _driver) = session();
    let ids = [peer.open("a").await, peer.open("b").await];
    let (mut a, _a) = next(&mut streams).await.split();
    let (mut b, _b) = next(&mut streams).await.split();
    let mut bytes = Vec::new();
    for i in 0..1000u32 {
        bytes.extend(data(ids[0], 0, format!("{i};").as_bytes()));
        bytes.extend(data(ids[1], 0, b""));
        bytes.extend(data(ids[1], 0, format!("-{i};").as_bytes()));
    }
    bytes.extend(data(ids[0], FIN, b"end"));
    bytes.extend(data(ids[1], FIN, b"end"));
    for piece in bytes.chunks(7) {
        peer.send(piece).await;
    }
    let (mut of_a, mut of_b) = (String::new(), String::new());
    a.read_to_string(&mut of_a).await.expect("a");
    b.read_to_string(&mut of_b).await.expect("b");
    let all = |sign: &str| (0..1000).map(|i| format!("{sign}{i};")).collect::<String>();
    assert_eq!(of_a, all("") + "end");
    assert_eq!(of_b, all("-") + "end");
}

#[tokio::test]
async fn the_halves_end_independently() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.open("data").await;
    let (mut reader, mut writer) = next(&mut streams).await.split();
    peer.fin(id).await;
    assert_eq!(reader.read(&mut [0; 9]).await.expect("the end"), 0);
    writer.write_all(b"still here").await.expect("written");
    writer.shutdown().await.expect("shut");
    assert_eq!(peer.read(id).await, (b"still here".to_vec(), true));
    let error = writer.write_all(b"x").await.expect_err("after the end");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);

    // In the opposite order; dropping the stream then needs no reset.
    let id = peer.open("data").await;
    let (mut reader, mut writer) = next(&mut streams).await.split();
    writer.shutdown().await.expect("shut");
    drop(writer);
    assert_eq!(peer.frame().await, Frame::Data(id, vec![], true));
    peer.data(id, b"upload").await;
    peer.fin(id).await;
    let mut upload = String::new();
    reader.read_to_string(&mut upload).await.expect("read");
    assert_eq!(upload, "upload");
    drop(reader);
    peer.ping(1).await;
}

#[tokio::test]
async fn a_reset_by_the_peer_ends_both_halves_and_a_second_one_is_harmless() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.open("data").await;
    let (mut reader, mut writer) = next(&mut streams).await.split();
    peer.data(id, b"before").await;
    peer.reset(id).await;
    let mut before = String::new();
    reader.read_to_string(&mut before).await.expect("read");
    assert_eq!(before, "before");
    let error = writer.write_all(b"x").await.expect_err("after a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    drop((reader, writer));
    // For a finished stream, and for one that never existed.
    peer.reset(id).await;
    peer.reset(77).await;
    peer.data(id, b"late").await;
    peer.fin(id).await;
    peer.ping(1).await;
    assert_eq!(streams.handle().counters().data_discarded, 4);
}

#[tokio::test]
async fn a_reset_by_the_server_follows_the_written_data() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.open("data").await;
    let (mut reader, mut writer) = next(&mut streams).await.split();
    writer.write_all(b"last words").await.expect("written");
    writer.reset();
    assert_eq!(peer.read(id).await, (b"last words".to_vec(), false));
    assert_eq!(reader.read(&mut [0; 9]).await.expect("the end"), 0);

    // The same if the server's half has already ended.
    let id = peer.open("data").await;
    let (mut reader, mut writer) = next(&mut streams).await.split();
    writer.shutdown().await.expect("shut");
    assert_eq!(peer.frame().await, Frame::Data(id, vec![], true));
    writer.reset();
    assert_eq!(peer.frame().await, Frame::Reset(id, 5));
    assert_eq!(reader.read(&mut [0; 9]).await.expect("the end"), 0);

    // The same if the whole stream is dropped.
    let id = peer.open("data").await;
    drop(next(&mut streams).await);
    assert_eq!(peer.frame().await, Frame::Reset(id, 5));
}

#[tokio::test]
async fn ids_must_be_odd_and_increasing() {
    let (mut peer, mut streams, _driver) = session();
    for (id, expected) in [
        (5, Frame::Reply(5)),
        (4, Frame::Reset(4, 1)),
        (3, Frame::Reset(3, 1)),
        (9, Frame::Reply(9)),
        (7, Frame::Reset(7, 1)),
        (9, Frame::Reset(9, 1)),
    ] {
        // The blocks of refused streams are part of the compression context, too.
        let block = peer.deflater.block(&[("streamtype", &format!("s{id}"))]);
        peer.send(&syn_stream(id, 0, &block)).await;
        assert_eq!(peer.frame().await, expected);
    }
    for id in [5, 9] {
        let stream = next(&mut streams).await;
        let kind = format!("s{id}");
        assert_eq!(stream.headers.get("streamtype"), Some(&*kind));
        let (mut reader, mut writer) = stream.split();
        if id == 9 {
            // The peer has removed it.
            assert_eq!(reader.read(&mut [0; 1]).await.expect("the end"), 0);
            writer.write_all(b"x").await.expect_err("gone");
        } else {
            writer.shutdown().await.expect("shut");
            assert_eq!(peer.frame().await, Frame::Data(5, vec![], true));
        }
    }
    // Data of a stream that was never opened.
    peer.data(11, b"x").await;
    assert_eq!(peer.frame().await, Frame::Reset(11, 2));
}

#[tokio::test]
async fn a_stream_above_the_limit_is_refused_and_a_later_one_accepted() {
    let mut limits = SpdyLimits::session(HOUR);
    limits.streams = 2;
    let (mut peer, mut streams, _driver) = connect(limits);
    let first = peer.open("a").await;
    peer.open("b").await;
    let id = peer.begin(&[("streamtype", "c")], 0).await;
    assert_eq!(peer.frame().await, Frame::Reset(id, 3));
    // The limit counts a stream until both ends have finished with it.
    drop(next(&mut streams).await);
    assert_eq!(peer.frame().await, Frame::Reset(first, 5));
    peer.open("d").await;
    let counters = streams.handle().counters();
    assert_eq!((counters.streams, counters.streams_refused), (3, 1));
}

#[tokio::test]
async fn streams_are_refused_without_a_receiver() {
    let (mut peer, streams, _driver) = session();
    let first = peer.open("a").await;
    drop(streams);
    assert_eq!(peer.frame().await, Frame::Reset(first, 5));
    let second = peer.begin(&[], 0).await;
    assert_eq!(peer.frame().await, Frame::Reset(second, 3));
}

#[tokio::test]
async fn streams_may_start_half_closed() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.begin(&[], FIN).await;
    assert_eq!(peer.frame().await, Frame::Reply(id));
    let (mut reader, mut writer) = next(&mut streams).await.split();
    assert_eq!(reader.read(&mut [0; 1]).await.expect("the end"), 0);
    writer.shutdown().await.expect("shut");
    assert_eq!(peer.frame().await, Frame::Data(id, vec![], true));

    // A unidirectional stream has no reply.
    let id = peer.begin(&[], UNIDIRECTIONAL).await;
    let (mut reader, mut writer) = next(&mut streams).await.split();
    writer.write_all(b"x").await.expect_err("one way only");
    peer.data(id, b"x").await;
    peer.fin(id).await;
    assert_eq!(reader.read_u8().await.expect("a byte"), b'x');
    peer.ping(3).await;
}

#[tokio::test]
async fn irrelevant_frames_are_skipped() {
    let (mut peer, mut streams, _driver) = session();
    let id = peer.open("data").await;
    peer.send(&control(4, 0, &[7; 100_000])).await;
    peer.send(&two(9, id, 65_536)).await;
    peer.send(&control(5, 0, b"")).await;
    peer.send(&control(10, 0, b"credential")).await;
    // The reply to a PING that was not sent, and to a stream that the server never opened.
    peer.send(&control(6, 0, &[0, 0, 0, 2])).await;
    let block = peer.deflater.block(&[("a", "b")]);
    let reply = [&[0, 0, 0, 2], &block[..]].concat();
    peer.send(&control(frame::SYN_REPLY, 0, &reply)).await;
    // A HEADERS frame may end a half.
    let block = peer.deflater.block(&[("c", "d")]);
    let headers = [&id.to_be_bytes(), &block[..]].concat();
    peer.send(&control(frame::HEADERS, FIN, &headers)).await;
    let (mut reader, _writer) = next(&mut streams).await.split();
    assert_eq!(reader.read(&mut [0; 1]).await.expect("the end"), 0);
    peer.open("another").await;
}

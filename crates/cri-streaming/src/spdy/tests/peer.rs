//! A SPDY/3.1 client, frame by frame.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::super::dictionary::HEADER_DICTIONARY;
use super::super::frame::{self, FIN};
use super::soon;

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Reply(u32),
    Data(u32, Vec<u8>, bool),
    Reset(u32, u32),
    Ping(u32),
    GoAway(u32, u32),
}

/// The client's compression of header blocks.
pub(super) struct HeaderDeflater(Compress);

impl HeaderDeflater {
    pub(super) fn new() -> Self {
        let mut compress = Compress::new(Compression::best(), true);
        compress
            .set_dictionary(&HEADER_DICTIONARY)
            .expect("a dictionary");
        Self(compress)
    }

    /// Compresses arbitrary bytes as a block.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 200);
        self.0
            .compress_vec(bytes, &mut out, FlushCompress::Sync)
            .expect("compresses");
        out
    }

    pub(super) fn block(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        self.bytes(&plain_block(headers))
    }
}

/// A block before compression.
pub(super) fn plain_block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        plain.extend((text.len() as u32).to_be_bytes());
        plain.extend(text.as_bytes());
    }
    plain
}

pub(super) fn control(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 3];
    bytes.extend(kind.to_be_bytes());
    bytes.extend((u32::from(flags) << 24 | payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(super) fn syn_stream(id: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let mut payload = id.to_be_bytes().to_vec();
    payload.extend([0; 6]);
    payload.extend(block);
    control(frame::SYN_STREAM, flags, &payload)
}

pub(super) fn data(id: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = frame::data_head(id, flags, data.len()).to_vec();
    bytes.extend(data);
    bytes
}

pub(super) fn two(kind: u16, a: u32, b: u32) -> Vec<u8> {
    control(kind, 0, &[a.to_be_bytes(), b.to_be_bytes()].concat())
}

pub(super) fn ping(id: u32) -> Vec<u8> {
    control(frame::PING, 0, &id.to_be_bytes())
}

/// The client's end of a connection.
pub(super) struct Peer<T> {
    pub(super) io: T,
    pub(super) deflater: HeaderDeflater,
    inflater: Decompress,
    next_id: u32,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Peer<T> {
    pub(super) fn new(io: T) -> Self {
        Self {
            io,
            deflater: HeaderDeflater::new(),
            inflater: Decompress::new(true),
            next_id: 1,
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        soon("sending", self.io.write_all(bytes))
            .await
            .expect("sent");
    }

    /// Opens a stream without waiting for the reply.
    pub(super) async fn begin(&mut self, headers: &[(&str, &str)], flags: u8) -> u32 {
        let id = self.next_id;
        self.next_id += 2;
        let block = self.deflater.block(headers);
        self.send(&syn_stream(id, flags, &block)).await;
        id
    }

    /// Opens a stream and waits for the reply, as Go clients do.
    pub(super) async fn open(&mut self, kind: &str) -> u32 {
        let id = self.begin(&[("streamtype", kind)], 0).await;
        assert_eq!(self.frame().await, Frame::Reply(id));
        id
    }

    pub(super) async fn data(&mut self, id: u32, bytes: &[u8]) {
        self.send(&data(id, 0, bytes)).await;
    }

    pub(super) async fn fin(&mut self, id: u32) {
        self.send(&data(id, FIN, b"")).await;
    }

    pub(super) async fn reset(&mut self, id: u32) {
        self.send(&two(frame::RST_STREAM, id, 5)).await;
    }

    pub(super) async fn go_away(&mut self) {
        self.send(&two(frame::GOAWAY, 0, 0)).await;
    }

    /// Sends a PING and receives the reply, which is the next frame.
    pub(super) async fn ping(&mut self, id: u32) {
        self.send(&ping(id)).await;
        assert_eq!(self.frame().await, Frame::Ping(id));
    }

    /// Receives the next frame.
    pub(super) async fn frame(&mut self) -> Frame {
        soon("a frame", self.try_frame()).await.expect("a frame")
    }

    /// Receives the next frame; `None` at the end.
    pub(super) async fn try_frame(&mut self) -> Option<Frame> {
        let mut head = [0; 8];
        if self.io.read(&mut head[..1]).await.expect("readable") == 0 {
            return None;
        }
        self.io.read_exact(&mut head[1..]).await.expect("a head");
        let [.., e, f, g] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, e, f, g]) as usize];
        self.io.read_exact(&mut payload).await.expect("a payload");
        let word = |at: usize| {
            let bytes = payload[at..].first_chunk().expect("four bytes");
            u32::from_be_bytes(*bytes)
        };
        if head[0] & 0x80 == 0 {
            let id = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            assert!(payload.len() <= 32 * 1024, "{} bytes", payload.len());
            return Some(Frame::Data(id, payload, head[4] & FIN != 0));
        }
        assert_eq!(head[..2], [0x80, 3]);
        Some(match u16::from_be_bytes([head[2], head[3]]) {
            frame::SYN_REPLY => {
                assert_eq!(self.inflate(&payload[4..]), [0; 4], "no headers");
                Frame::Reply(word(0))
            }
            frame::RST_STREAM => Frame::Reset(word(0), word(4)),
            frame::PING => Frame::Ping(word(0)),
            frame::GOAWAY => Frame::GoAway(word(0), word(4)),
            kind => panic!("a frame of type {kind}"),
        })
    }

    fn inflate(&mut self, mut block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(1000);
        loop {
            let before = self.inflater.total_in();
            let result = self
                .inflater
                .decompress_vec(block, &mut out, FlushDecompress::Sync);
            block = &block[(self.inflater.total_in() - before) as usize..];
            match result {
                Err(e) if e.needs_dictionary().is_some() => {
                    self.inflater
                        .set_dictionary(&HEADER_DICTIONARY)
                        .expect("the dictionary");
                }
                Err(e) => panic!("{e}"),
                Ok(_) if block.is_empty() => return out,
                Ok(_) => {}
            }
        }
    }

    /// Receives all remaining frames.
    pub(super) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = soon("the rest", self.try_frame()).await {
            frames.push(frame);
        }
        frames
    }

    /// Receives the data of one stream up to its end, and whether that was a FIN.
    pub(super) async fn read(&mut self, id: u32) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        loop {
            match self.frame().await {
                Frame::Data(of, bytes, is_last) => {
                    assert_eq!(of, id, "data of another stream");
                    all.extend(bytes);
                    if is_last {
                        return (all, true);
                    }
                }
                Frame::Reset(of, _) if of == id => return (all, false),
                other => panic!("{other:?}"),
            }
        }
    }
}

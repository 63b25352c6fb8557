//! Frames and header blocks, byte for byte.

use super::super::error::MalformedFrame;
use super::super::frame::{self, ControlFrame, FrameHead, ResetStatus};
use super::super::headers::{self, HeaderInflater, StreamHeaders};
use super::peer::{HeaderDeflater, plain_block};

#[test]
fn frames_are_encoded() {
    let mut out = Vec::new();
    headers::HeaderDeflater::default().empty_block(&mut out);
    // head of the zlib stream, dictionary, stored block with the number 0, empty block
    let first = b"\x78\xf9\xe3\xc6\xa7\xc2\0\x04\0\xfb\xff\0\0\0\0\0\0\0\xff\xff";
    assert_eq!(out, first);

    let mut out = Vec::new();
    frame::syn_reply(&mut out, 5, b"block");
    assert_eq!(out, b"\x80\x03\0\x02\0\0\0\x09\0\0\0\x05block");
    out.clear();
    frame::reset(&mut out, 7, ResetStatus::Cancel);
    assert_eq!(out, b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x07\0\0\0\x05");
    out.clear();
    frame::ping(&mut out, 0x0102_0304);
    assert_eq!(out, b"\x80\x03\0\x06\0\0\0\x04\x01\x02\x03\x04");
    out.clear();
    frame::go_away(&mut out, 9, true);
    assert_eq!(out, b"\x80\x03\0\x07\0\0\0\x08\0\0\0\x09\0\0\0\x01");
    assert_eq!(
        frame::data_head(3, frame::FIN, 0x01_02_03),
        *b"\0\0\0\x03\x01\x01\x02\x03"
    );
}

#[test]
fn heads_are_decoded() {
    let data = FrameHead::Data {
        id: 0x7fff_ffff,
        flags: 1,
        len: 0xff_ffff,
    };
    assert_eq!(
        FrameHead::read(b"\x7f\xff\xff\xff\x01\xff\xff\xff"),
        Ok(data)
    );
    let settings = FrameHead::Control {
        kind: 4,
        flags: 2,
        len: 0x10_0000,
    };
    assert_eq!(FrameHead::read(b"\x80\x03\0\x04\x02\x10\0\0"), Ok(settings));
}

#[test]
fn control_frames_are_decoded() {
    let read = |kind, payload| ControlFrame::read(kind, payload).expect("well-formed");
    assert_eq!(
        read(frame::SYN_STREAM, b"\x80\0\0\x01\0\0\0\0\xe0\0block"),
        ControlFrame::SynStream {
            id: 1,
            block: b"block"
        }
    );
    assert_eq!(
        read(frame::SYN_REPLY, b"\0\0\0\x02block"),
        ControlFrame::SynReply { block: b"block" }
    );
    assert_eq!(
        read(frame::HEADERS, b"\0\0\0\x02block"),
        ControlFrame::Headers {
            id: 2,
            block: b"block"
        }
    );
    assert_eq!(
        read(frame::RST_STREAM, b"\0\0\0\x02\0\0\0\x05"),
        ControlFrame::Reset { id: 2 }
    );
    assert_eq!(
        read(frame::PING, b"\x80\0\0\0"),
        ControlFrame::Ping { id: 1 << 31 }
    );
    assert_eq!(read(frame::GOAWAY, &[0; 8]), ControlFrame::GoAway);
}

#[test]
fn header_blocks_share_one_compression_stream() {
    let (mut deflater, mut inflater) = (HeaderDeflater::new(), HeaderInflater::new());
    let error = [("streamtype", "error"), ("port", "80"), ("requestid", "0")];
    let data = [("streamtype", "data"), ("port", "80"), ("requestid", "0")];
    for (sent, kind) in [(error, "error"), (data, "data")] {
        let block = deflater.block(&sent);
        let headers = inflater.block(&block).expect("a block");
        assert_eq!(headers.get("streamtype"), Some(kind));
        assert_eq!(headers.get("port"), Some("80"));
        assert_eq!(headers.get("host"), None);
        assert_eq!(headers.len(), 3);
    }
    let block = deflater.block(&[]);
    assert!(block.len() < 20, "{} bytes", block.len());
    assert!(inflater.block(&block).expect("a block").is_empty());
}

#[test]
fn the_first_of_several_values_is_returned() {
    let block = plain_block(&[("streamtype", "stdin\0stdout")]);
    let headers = StreamHeaders::read(&block).expect("a block");
    assert_eq!(headers.get("streamtype"), Some("stdin"));
}

#[test]
fn the_largest_allowed_block_is_accepted() {
    let value = "x".repeat(headers::MAX_INFLATED_LEN - 4 - 8 - 1);
    let block = HeaderDeflater::new().block(&[("n", &value)]);
    let headers = HeaderInflater::new().block(&block).expect("a block");
    assert_eq!(headers.get("n"), Some(&*value));
}

#[test]
fn the_size_of_inflated_blocks_is_limited() {
    // 64 MiB, compressed to less than the maximum of a control frame.
    let mut deflater = HeaderDeflater::new();
    let mut bomb = deflater.bytes(&plain_block(&[("n", "")])[..9]);
    let zeros = vec![0; 1 << 20];
    for _ in 0..60 {
        bomb.extend(deflater.bytes(&zeros));
    }
    assert!(bomb.len() <= frame::MAX_CONTROL_LEN, "{} bytes", bomb.len());
    let result = HeaderInflater::new().block(&bomb);
    assert_eq!(
        result,
        Err(MalformedFrame::HeadersTooLarge(headers::MAX_INFLATED_LEN))
    );
}

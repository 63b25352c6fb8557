//! A SPDY/3.1 client as kubectl and crictl have it: the connection holds back a sender, nothing else does, as windows are
//! neither kept nor told.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use flate2::{Compress, Compression, FlushCompress};

use super::payload::PIECE;

const HEAD: usize = 8;
/// The types of frames that are looked at.
const SYN_REPLY: u8 = 2;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const FIN: u8 = 1;

/// A connection.
pub(super) struct Spdy {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    deflate: Compress,
    next: u32,
}

impl Spdy {
    pub(super) fn new(tcp: TcpStream) -> io::Result<Self> {
        let from = BufReader::with_capacity(2 * PIECE, tcp.try_clone()?);
        Ok(Self {
            sender: Sender {
                tcp,
                frame: Vec::with_capacity(HEAD + PIECE),
            },
            receiver: Receiver {
                from,
                body: Vec::new(),
            },
            deflate: Compress::new(Compression::fast(), true),
            next: 1,
        })
    }

    /// Opens a stream, and waits until the server knows it.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn open(&mut self, headers: &[(&str, &str)]) -> io::Result<u32> {
        let id = self.next;
        self.next += 2;
        let mut plain = length(headers.len()).to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend(length(text.len()));
            plain.extend(text.bytes());
        }
        let mut block = Vec::with_capacity(1024);
        self.deflate
            .compress_vec(&plain, &mut block, FlushCompress::Sync)?;
        let mut frame = vec![0x80, 3, 0, 1];
        frame.extend(length(10 + block.len()));
        frame.extend(id.to_be_bytes());
        frame.extend([0; 6]);
        frame.extend(block);
        self.sender.tcp.write_all(&frame)?;
        match self.receiver.next()? {
            Event::Known(known) if known == id => Ok(id),
            _ => Err(io::Error::other("a stream was not answered")),
        }
    }
}

fn length(bytes: usize) -> [u8; 4] {
    (bytes as u32).to_be_bytes()
}

/// Its half towards the server.
pub(super) struct Sender {
    tcp: TcpStream,
    frame: Vec<u8>,
}

impl Sender {
    /// Sends a frame of data; waits while the server takes none.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) fn data(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend(stream.to_be_bytes());
        self.frame.extend(length(bytes.len()));
        self.frame[4] = if is_last { FIN } else { 0 };
        self.frame.extend(bytes);
        self.tcp.write_all(&self.frame)
    }
}

/// What came.
pub(super) enum Event<'a> {
    /// The server knows a stream.
    Known(u32),
    /// Data of a stream.
    Data {
        stream: u32,
        bytes: &'a [u8],
        is_last: bool,
    },
    /// The server reset a stream.
    Reset(u32),
}

/// Its half from the server.
pub(super) struct Receiver {
    from: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Receiver {
    /// The next frame. Those that say nothing of a stream are skipped: no session lasts until a PING matters.
    ///
    /// # Errors
    /// When the connection has ended, or will (GOAWAY).
    pub(super) fn next(&mut self) -> io::Result<Event<'_>> {
        loop {
            let mut head = [0; HEAD];
            self.from.read_exact(&mut head)?;
            let [a, b, c, d, flags, e, f, g] = head;
            self.body.resize(word([0, e, f, g]) as usize, 0);
            self.from.read_exact(&mut self.body)?;
            if a & 0x80 == 0 {
                break Ok(Event::Data {
                    stream: word([a, b, c, d]),
                    bytes: &self.body,
                    is_last: flags & FIN != 0,
                });
            }
            let id = self.body.first_chunk().copied().map_or(0, word);
            match d {
                SYN_REPLY => break Ok(Event::Known(id)),
                RST_STREAM => break Ok(Event::Reset(id)),
                GOAWAY => break Err(io::Error::other("the server went away")),
                _ => {}
            }
        }
    }

    /// Ends the connection, so that nobody waits for it.
    pub(super) fn hang_up(&self) {
        let _ = self.from.get_ref().shutdown(Shutdown::Both);
    }
}

fn word(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

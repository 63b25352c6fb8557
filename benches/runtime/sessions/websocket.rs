//! A WebSocket client as newer ones of Kubernetes have it: messages that begin with the number of a channel.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use super::payload::PIECE;

/// Any would do: it is there against proxies that can be fooled.
const MASK: [u8; 4] = [3, 141, 59, 26];
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// The half towards the server.
pub(super) struct Sender {
    tcp: TcpStream,
    frame: Vec<u8>,
}

/// The half from the server.
pub(super) struct Receiver {
    from: BufReader<TcpStream>,
    body: Vec<u8>,
}

pub(super) fn halves(tcp: TcpStream) -> io::Result<(Sender, Receiver)> {
    let from = BufReader::with_capacity(2 * PIECE, tcp.try_clone()?);
    let sender = Sender {
        tcp,
        frame: Vec::with_capacity(16 + PIECE),
    };
    let body = Vec::new();
    Ok((sender, Receiver { from, body }))
}

impl Sender {
    /// Sends a message of less than 64 KiB; waits while the server takes none.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) fn message(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        let frame = &mut self.frame;
        frame.clear();
        frame.push(0x80 | BINARY);
        match bytes.len() + 1 {
            length @ ..126 => frame.push(0x80 | length as u8),
            length => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
        }
        frame.extend(MASK);
        frame.push(channel ^ MASK[0]);
        let begin = frame.len();
        frame.extend(bytes);
        let [first, second, third, fourth] = MASK;
        let mask = [second, third, fourth, first];
        for four in frame[begin..].chunks_mut(4) {
            four.iter_mut()
                .zip(mask)
                .for_each(|(byte, mask)| *byte ^= mask);
        }
        self.tcp.write_all(frame)
    }
}

impl Receiver {
    /// The next message: its channel and its bytes; nothing once the server has closed.
    ///
    /// # Errors
    /// When the connection has ended without that.
    pub(super) fn next(&mut self) -> io::Result<Option<(u8, &[u8])>> {
        loop {
            let mut head = [0; 2];
            self.from.read_exact(&mut head)?;
            let length = match head[1] {
                126 => usize::from(u16::from_be_bytes(self.bytes()?)),
                127 => u64::from_be_bytes(self.bytes()?) as usize,
                short => usize::from(short),
            };
            self.body.resize(length, 0);
            self.from.read_exact(&mut self.body)?;
            match head[0] & 0x0f {
                BINARY => break,
                CLOSE => return Ok(None),
                _ => {}
            }
        }
        let none = || io::Error::other("a message without a channel");
        let (channel, bytes) = self.body.split_first().ok_or_else(none)?;
        Ok(Some((*channel, bytes)))
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Ends the connection, so that nobody waits for it.
    pub(super) fn hang_up(&self) {
        let _ = self.from.get_ref().shutdown(Shutdown::Both);
    }
}

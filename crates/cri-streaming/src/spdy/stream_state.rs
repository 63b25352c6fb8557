//! What is known of one stream: what waits to be read, what waits to be sent, and how each half ends.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::BytesMut;

use super::flow_control::QueueState;
use super::frame::{HEAD, MAX_DATA, Status};

/// Pieces below this are copied together, in bytes: a larger one keeps the whole read alive that it is a piece of.
const COPY: usize = 16 * 1024;

/// Room for small pieces, in bytes.
const SMALL_ROOM: usize = 4 * 1024;

/// How the peer's half ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncomingEnd {
    /// By the peer or by us, with the stream or the whole connection.
    All,
    /// With the connection, of which the peer had not said that it would end.
    Lost,
    /// By us, because it held back the others.
    Stalled,
}

/// What follows the last data of our half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingEnd {
    Fin,
    Reset(Status),
}

#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// From the peer, not read yet.
    incoming: VecDeque<BytesMut>,
    /// Bytes in it, and in the piece that the reader has.
    pub(super) unread: usize,
    /// Bytes of the piece that the reader has: it is kept as a whole, however much of it was read.
    taken: usize,
    pub(super) received: Option<IncomingEnd>,
    pub(super) has_reader: bool,
    pub(super) reader: Option<Waker>,

    /// To the peer: each one is a data frame with room for its head.
    outgoing: VecDeque<Vec<u8>>,
    /// Bytes of data in it.
    pub(super) unsent: usize,
    pub(super) last: Option<OutgoingEnd>,
    /// The last frame has left, or needs not.
    pub(super) is_sent: bool,
    pub(super) has_writer: bool,
    pub(super) writer: Option<Waker>,
    pub(super) turn: QueueState,
    /// It stands in the row of those that have something to send.
    pub(super) is_queued: bool,
}

impl StreamState {
    /// A new stream: both halves are open, but those that the peer said it will not use or read.
    pub(super) fn new(has_no_data: bool, is_one_way: bool) -> Self {
        Self {
            received: has_no_data.then_some(IncomingEnd::All),
            has_reader: true,
            last: is_one_way.then_some(OutgoingEnd::Fin),
            is_sent: is_one_way,
            has_writer: true,
            ..Self::default()
        }
    }

    /// Neither end has anything to say any more.
    pub(super) fn is_over(&self) -> bool {
        self.received.is_some() && self.is_sent
    }

    /// Nobody knows it any more.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_over() && !self.has_reader && !self.has_writer
    }

    /// Queues what the peer sent.
    pub(super) fn receive(&mut self, piece: BytesMut) {
        self.unread += piece.len();
        let fits = |last: &BytesMut| last.capacity() - last.len() >= piece.len();
        match self.incoming.back_mut() {
            _ if piece.len() >= COPY => self.incoming.push_back(piece),
            Some(last) if fits(last) => last.extend_from_slice(&piece),
            _ => {
                let mut copy = BytesMut::with_capacity(SMALL_ROOM.max(piece.len()));
                copy.extend_from_slice(&piece);
                self.incoming.push_back(copy);
            }
        }
        self.wake_reader();
    }

    /// Takes the next piece for the reader.
    pub(super) fn take(&mut self) -> Option<BytesMut> {
        let piece = self.incoming.pop_front()?;
        self.taken = piece.len();
        Some(piece)
    }

    /// The piece that was taken is not kept any more. Gives its length.
    pub(super) fn let_go(&mut self) -> usize {
        let taken = std::mem::take(&mut self.taken);
        self.unread -= taken;
        taken
    }

    /// Drops what nobody will read. Gives how much it was.
    pub(super) fn drop_incoming(&mut self) -> usize {
        self.incoming = VecDeque::new();
        std::mem::take(&mut self.unread)
    }

    /// Ends the peer's half, unless it has ended.
    pub(super) fn end_incoming(&mut self, how: IncomingEnd) {
        self.received.get_or_insert(how);
        self.wake_reader();
    }

    /// Queues data to be sent.
    pub(super) fn send(&mut self, mut data: &[u8]) {
        self.unsent += data.len();
        while !data.is_empty() {
            match self.outgoing.back_mut() {
                Some(frame) if frame.len() < HEAD + MAX_DATA => {
                    let room = HEAD + MAX_DATA - frame.len();
                    let (part, rest) = data.split_at(data.len().min(room));
                    frame.extend_from_slice(part);
                    data = rest;
                }
                _ => {
                    let mut frame = Vec::with_capacity(HEAD + data.len().min(MAX_DATA));
                    frame.resize(HEAD, 0);
                    self.outgoing.push_back(frame);
                }
            }
        }
    }

    /// The next frame, its head not written yet, and whether nothing is behind it.
    pub(super) fn next_frame(&mut self) -> Option<(Vec<u8>, bool)> {
        let frame = self.outgoing.pop_front()?;
        self.unsent -= frame.len() - HEAD;
        Some((frame, self.outgoing.is_empty()))
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Drops what will not be sent; our half is over. Gives how much it was.
    pub(super) fn end_outgoing(&mut self) -> usize {
        self.outgoing = VecDeque::new();
        self.is_sent = true;
        self.wake_writer();
        std::mem::take(&mut self.unsent)
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

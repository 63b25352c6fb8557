//! The state of one stream: unread data, data that waits to be sent, and how each half ends.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::BytesMut;

use super::frame::{FRAME_HEAD_LEN, MAX_DATA_LEN, ResetStatus};

/// Pieces smaller than this, in bytes, are copied together: a piece keeps the memory of the whole read alive.
const MIN_UNCOPIED_LEN: usize = 16 * 1024;

/// Capacity for small pieces, in bytes.
const SMALL_PIECES_CAPACITY: usize = 4 * 1024;

/// How the peer's half ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncomingEnd {
    /// Normally, with the stream or the whole connection.
    All,
    /// With the connection, without notice by the peer.
    Lost,
    /// Reset by the server, because it blocked the other streams.
    Stalled,
}

/// The frame after the last data of the server's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutgoingEnd {
    Fin,
    Reset(ResetStatus),
}

/// Position of a stream in the queue for capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Not queued.
    #[default]
    None,
    Waiting,
    /// Woken: it may take capacity before the queued streams.
    Admitted,
}

#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// Unread data of the peer.
    incoming: VecDeque<BytesMut>,
    /// Bytes of unread data, including the piece that the reader has taken.
    pub(super) unread: usize,
    /// Length of the piece that the reader has taken: its memory is kept as a whole, however much of it was read.
    taken: usize,
    pub(super) received: Option<IncomingEnd>,
    pub(super) has_reader: bool,
    pub(super) reader: Option<Waker>,

    /// Data to be sent: each element is a data frame with space for its head.
    outgoing: VecDeque<Vec<u8>>,
    /// Bytes of data in `outgoing`.
    pub(super) unsent: usize,
    pub(super) last: Option<OutgoingEnd>,
    /// Set if the last frame has been sent or is not needed.
    pub(super) is_sent: bool,
    pub(super) has_writer: bool,
    pub(super) writer: Option<Waker>,
    pub(super) turn: QueueState,
    /// Set if the stream is in the round-robin order.
    pub(super) is_queued: bool,
    /// Set if frames of the stream wait until no other stream has any.
    pub(super) is_deferred: bool,
}

impl StreamState {
    /// Creates a stream. Both halves are open, unless the peer closed one when it opened the stream.
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

    /// Returns whether both halves have ended.
    pub(super) fn is_over(&self) -> bool {
        self.received.is_some() && self.is_sent
    }

    /// Returns whether it no longer has a user.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_over() && !self.has_reader && !self.has_writer
    }

    /// Queues data of the peer.
    pub(super) fn receive(&mut self, piece: BytesMut) {
        self.unread += piece.len();
        match self.incoming.back_mut() {
            _ if piece.len() >= MIN_UNCOPIED_LEN => self.incoming.push_back(piece),
            Some(last) if last.capacity() - last.len() >= piece.len() => {
                last.extend_from_slice(&piece);
            }
            _ => {
                let mut copy = BytesMut::with_capacity(SMALL_PIECES_CAPACITY.max(piece.len()));
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

    /// Releases the piece that was taken. Returns its length.
    pub(super) fn let_go(&mut self) -> usize {
        let taken = std::mem::take(&mut self.taken);
        self.unread -= taken;
        taken
    }

    /// Drops unread data. Returns its length.
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
                Some(frame) if frame.len() < FRAME_HEAD_LEN + MAX_DATA_LEN => {
                    let room = FRAME_HEAD_LEN + MAX_DATA_LEN - frame.len();
                    let (part, rest) = data.split_at(data.len().min(room));
                    frame.extend_from_slice(part);
                    data = rest;
                }
                _ => {
                    let mut frame =
                        Vec::with_capacity(FRAME_HEAD_LEN + data.len().min(MAX_DATA_LEN));
                    frame.resize(FRAME_HEAD_LEN, 0);
                    self.outgoing.push_back(frame);
                }
            }
        }
    }

    /// Returns the next frame, without its head, and whether it is the last one queued.
    pub(super) fn next_frame(&mut self) -> Option<(Vec<u8>, bool)> {
        let frame = self.outgoing.pop_front()?;
        self.unsent -= frame.len() - FRAME_HEAD_LEN;
        Some((frame, self.outgoing.is_empty()))
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Drops data that will not be sent and ends the server's half. Returns its length.
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

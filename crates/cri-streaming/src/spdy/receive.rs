//! Processing of the peer's frames.

use bytes::BytesMut;

use super::core::ConnectionState;
use super::error::MalformedFrame;
use super::frame::{self, ControlFrame, ResetStatus};
use super::headers::StreamHeaders;
use super::input::{FrameEvent, FrameInput};
use super::stream_state::{IncomingEnd, StreamState};

/// Maximum size of a stream's headers, in bytes. They are kept until the stream is accepted, and a few bytes on the wire
/// can inflate to a thousand times as many.
const MAX_KEPT_HEADERS_LEN: usize = 4 * 1024;

impl ConnectionState {
    /// Processes everything that was read.
    pub(super) fn receive(&mut self, input: &mut FrameInput) -> Result<(), MalformedFrame> {
        while let Some(event) = input.next()? {
            match event {
                FrameEvent::Data { id, piece, flags } => self.data(id, piece, flags),
                FrameEvent::Control {
                    kind,
                    flags,
                    payload,
                } => self.control(kind, flags, &payload)?,
            }
        }
        Ok(())
    }

    fn data(&mut self, id: u32, piece: BytesMut, flags: u8) {
        let len = piece.len();
        self.counters.data_in += len as u64;
        let state = self.states.get_mut(&id);
        match state.filter(|state| state.received.is_none()) {
            Some(state) if state.has_reader => {
                if len > 0 {
                    state.receive(piece);
                    self.counters.unread += len;
                    let peak = &mut self.counters.unread_peak;
                    *peak = self.counters.unread.max(*peak);
                    self.wake_watcher();
                }
            }
            Some(_) => self.counters.data_discarded += len as u64,
            None => {
                self.counters.data_discarded += len as u64;
                // Data of a stream that has just ended may still be in flight.
                if id > self.last_id || id.is_multiple_of(2) {
                    self.reply_reset(id, ResetStatus::InvalidStream);
                }
                return;
            }
        }
        if flags & frame::FIN != 0 {
            self.end_incoming(id);
        }
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<(), MalformedFrame> {
        match ControlFrame::read(kind, payload)? {
            ControlFrame::SynStream { id, block } => {
                let headers = self.inflater.block(block)?;
                self.syn_stream(id, flags, headers);
            }
            // The server opens no streams, but the block is part of the compression context.
            ControlFrame::SynReply { block } => drop(self.inflater.block(block)?),
            ControlFrame::Headers { id, block } => {
                self.inflater.block(block)?;
                if flags & frame::FIN != 0 {
                    self.end_incoming(id);
                }
            }
            ControlFrame::Reset { id } => self.abort(id),
            // Even ids belong to the server, which sends no PINGs.
            ControlFrame::Ping { id } if id % 2 == 1 => {
                self.counters.pings += 1;
                frame::ping(&mut self.replies, id);
            }
            ControlFrame::Ping { .. } => {}
            ControlFrame::GoAway => self.has_gone_away = true,
        }
        Ok(())
    }

    fn syn_stream(&mut self, id: u32, flags: u8, headers: StreamHeaders) {
        let is_in_order = id % 2 == 1 && id > self.last_id;
        let is_small = headers.memory_size() <= MAX_KEPT_HEADERS_LEN;
        if !is_in_order || !is_small || !self.takes_streams() {
            self.counters.streams_refused += 1;
            let status = if is_in_order {
                ResetStatus::Refused
            } else {
                ResetStatus::Protocol
            };
            self.last_id = self.last_id.max(id);
            // The peer removes its stream with this id, if there is one.
            self.abort(id);
            return self.reply_reset(id, status);
        }
        self.last_id = id;
        let is_one_way = flags & frame::UNIDIRECTIONAL != 0;
        if !is_one_way {
            let mut block = Vec::new();
            self.deflater.empty_block(&mut block);
            frame::syn_reply(&mut self.replies, id, &block);
        }
        let state = StreamState::new(flags & frame::FIN != 0, is_one_way);
        self.open(id, headers, state);
    }

    /// Ends the peer's half of a stream.
    fn end_incoming(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            state.end_incoming(IncomingEnd::All);
            self.forget(id);
        }
    }

    /// Ends a stream that the peer has closed. Data that it sent earlier can still be read.
    fn abort(&mut self, id: u32) {
        self.end_outgoing(id);
        self.end_incoming(id);
    }

    pub(super) fn reply_reset(&mut self, id: u32, status: ResetStatus) {
        frame::reset(&mut self.replies, id, status);
    }
}

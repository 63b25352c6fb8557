//! The order of output.

use super::core::ConnectionState;
use super::frame::{self, FRAME_HEAD_LEN};
use super::output::FrameOutput;
use super::stream_state::{IncomingEnd, OutgoingEnd};

impl ConnectionState {
    /// Adds a stream to the round-robin order.
    pub(super) fn queue(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id)
            && !std::mem::replace(&mut state.is_queued, true)
        {
            self.send_queue.push_back(id);
            self.wake_driver();
        }
    }

    /// Takes the stream whose turn it is. A deferred stream has its turn once no other stream has anything to send.
    fn next_in_turn(&mut self) -> Option<u32> {
        let at = self.send_queue.iter().position(|id| {
            let state = self.states.get(id);
            state.is_none_or(|state| !state.is_deferred)
        });
        self.send_queue.remove(at.unwrap_or(0))
    }

    /// Moves frames to the output buffer while it has capacity: replies first, then a frame of each stream in turn, then
    /// those of deferred streams.
    pub(super) fn fill(&mut self, output: &mut FrameOutput) {
        // Replies that do not fit wait, and are counted, until the peer reads.
        if output.has_room() && !self.replies.is_empty() {
            output.push(std::mem::take(&mut self.replies));
        }
        while output.has_room()
            && let Some(id) = self.next_in_turn()
        {
            self.send_frame(id, output);
            self.forget(id);
        }
    }

    fn send_frame(&mut self, id: u32, output: &mut FrameOutput) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        state.is_queued = false;
        if state.is_sent {
            return;
        }
        let mut sent = 0;
        if let Some((mut bytes, is_all)) = state.next_frame() {
            let len = bytes.len() - FRAME_HEAD_LEN;
            let is_last = is_all && state.last == Some(OutgoingEnd::Fin);
            let flags = if is_last { frame::FIN } else { 0 };
            bytes[..FRAME_HEAD_LEN].copy_from_slice(&frame::data_head(id, flags, len));
            output.push(bytes);
            self.counters.data_out += len as u64;
            state.is_sent = is_last;
            state.wake_writer();
            sent = len;
        } else if let Some(last) = state.last {
            let mut bytes = Vec::new();
            match last {
                OutgoingEnd::Fin => bytes.extend(frame::data_head(id, frame::FIN, 0)),
                OutgoingEnd::Reset(status) => {
                    frame::reset(&mut bytes, id, status);
                    // The peer then removes both halves.
                    state.end_incoming(IncomingEnd::All);
                }
            }
            output.push(bytes);
            state.is_sent = true;
        }
        if !state.is_sent && (state.has_outgoing() || state.last.is_some()) {
            state.is_queued = true;
            self.send_queue.push_back(id);
        }
        self.free(sent);
    }
}

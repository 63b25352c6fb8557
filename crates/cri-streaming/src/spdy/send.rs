//! What leaves, in which order.

use super::core::Core;
use super::frame::{self, HEAD};
use super::output::Output;
use super::slot::{Last, Received};

impl Core {
    /// Lets a stream take part in the turns.
    pub(super) fn queue(&mut self, id: u32) {
        if let Some(slot) = self.slots.get_mut(&id)
            && !std::mem::replace(&mut slot.is_in_row, true)
        {
            self.row.push_back(id);
            self.wake_driver();
        }
    }

    /// Moves frames to the output while it has room: answers first, then a frame of each stream in turn.
    pub(super) fn fill(&mut self, output: &mut Output) {
        // Answers that find no room wait, and are counted, until the peer takes what is on its way.
        if output.has_room() && !self.replies.is_empty() {
            output.push(std::mem::take(&mut self.replies));
        }
        while output.has_room()
            && let Some(id) = self.row.pop_front()
        {
            self.send_frame(id, output);
            self.forget(id);
        }
    }

    fn send_frame(&mut self, id: u32, output: &mut Output) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        slot.is_in_row = false;
        if slot.is_sent {
            return;
        }
        let mut sent = 0;
        if let Some((mut bytes, is_all)) = slot.next_frame() {
            let len = bytes.len() - HEAD;
            let is_last = is_all && slot.last == Some(Last::Fin);
            let flags = if is_last { frame::FIN } else { 0 };
            bytes[..HEAD].copy_from_slice(&frame::data_head(id, flags, len));
            output.push(bytes);
            self.counters.data_out += len as u64;
            slot.is_sent = is_last;
            slot.wake_writer();
            sent = len;
        } else if let Some(last) = slot.last {
            let mut bytes = Vec::new();
            match last {
                Last::Fin => bytes.extend(frame::data_head(id, frame::FIN, 0)),
                Last::Reset(status) => {
                    frame::reset(&mut bytes, id, status);
                    // The peer then forgets both halves.
                    slot.end_incoming(Received::All);
                }
            }
            output.push(bytes);
            slot.is_sent = true;
        }
        if !slot.is_sent && (slot.has_outgoing() || slot.last.is_some()) {
            slot.is_in_row = true;
            self.row.push_back(id);
        }
        self.free(sent);
    }
}

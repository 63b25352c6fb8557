//! Room for what waits to be sent: that of each stream, and that of all of them together.
//!
//! Who finds none of the second stands in line, and so does everybody who comes while others stand there: those who send
//! all the time would leave nothing to the others. With each frame that leaves, the first in line are called.
//!
//! Somebody stands in line only while something waits to be sent, so that there is always a frame to come. Who is called
//! may as well have gone, or want nothing any more: nothing is kept for him, and the next frame calls the next.

use std::io;
use std::task::{Context, Poll};

use super::core::Core;

/// Where a stream stands that wants to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueState {
    /// Nowhere.
    #[default]
    None,
    Waiting,
    /// It may go before those that stand in line.
    Admitted,
}

impl Core {
    /// How many bytes may be queued of a stream, once it is so many at least: no more than half of what it may have.
    pub(super) fn poll_room(
        &mut self,
        id: u32,
        least: usize,
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let (each, all) = (self.limits.unsent, self.limits.unsent_all);
        let all = all.saturating_sub(self.counters.unsent);
        let nobody_waits = self.capacity_queue.is_empty();
        let Some(state) = self.writable(id) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let own = each.saturating_sub(state.unsent);
        let is_turn = nobody_waits || state.turn == QueueState::Admitted;
        if own >= least && all >= least && is_turn {
            // What it then writes finds the room that was said, whoever has come meanwhile.
            state.turn = QueueState::Admitted;
            return Poll::Ready(Ok(own.min(all)));
        }
        state.writer = Some(cx.waker().clone());
        // Without room of its own it has frames to come, and is woken by them.
        if own >= least {
            match std::mem::replace(&mut state.turn, QueueState::Waiting) {
                QueueState::None => self.capacity_queue.push_back(id),
                // It came too late, and keeps its place.
                QueueState::Admitted => self.capacity_queue.push_front(id),
                QueueState::Waiting => {}
            }
        }
        Poll::Pending
    }

    /// Queues data of a stream for which there is room.
    pub(super) fn send(&mut self, id: u32, data: &[u8]) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        state.turn = QueueState::None;
        state.send(data);
        self.counters.unsent += data.len();
        self.queue(id);
    }

    /// So much waits no more. Calls those for whom there is room now.
    pub(super) fn free(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        self.counters.unsent -= len;
        let room = self.limits.unsent_all.saturating_sub(self.counters.unsent);
        // Nothing will come any more that could call the rest.
        let all = self.counters.unsent == 0;
        let mut count = (room / self.limits.unsent.max(1)).max(1);
        while (all || count > 0)
            && let Some(id) = self.capacity_queue.pop_front()
        {
            if let Some(state) = self.states.get_mut(&id) {
                state.turn = QueueState::Admitted;
                state.wake_writer();
                count = count.saturating_sub(1);
            }
        }
    }

    /// Drops what will not be sent of a stream; our half of it is over.
    pub(super) fn end_outgoing(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            let dropped = state.end_outgoing();
            self.leave(id);
            self.free(dropped);
        }
    }

    /// A stream wants to send no more.
    pub(super) fn leave(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id)
            && std::mem::take(&mut state.turn) == QueueState::Waiting
        {
            self.capacity_queue.retain(|other| *other != id);
        }
    }
}

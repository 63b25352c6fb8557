//! Capacity for data that waits to be sent: per stream, and for all streams together.
//!
//! A stream without shared capacity is queued, as is every stream that arrives while others are queued: streams that
//! send all the time would otherwise starve the others. Each frame that is sent wakes the first stream in the queue.
//!
//! Streams are queued only while data waits to be sent, so another frame will always be sent. A stream that is woken may
//! have ended, or have nothing left to send: no capacity is reserved for it, and the next frame wakes the next stream.

use std::io;
use std::task::{Context, Poll};

use super::core::ConnectionState;
use super::stream_state::QueueState;

impl ConnectionState {
    /// Returns how many bytes of a stream may be queued, once at least `least` fit, at most half of its limit.
    pub(super) fn poll_room(
        &mut self,
        id: u32,
        least: usize,
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let (each, all) = (self.limits.unsent, self.limits.unsent_all);
        let all = all.saturating_sub(self.counters.unsent);
        let is_queue_empty = self.capacity_queue.is_empty();
        let Some(state) = self.writable(id) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let own = each.saturating_sub(state.unsent);
        let is_turn = is_queue_empty || state.turn == QueueState::Admitted;
        if own >= least && all >= least && is_turn {
            // A subsequent write finds this capacity even if other streams write in between.
            state.turn = QueueState::Admitted;
            return Poll::Ready(Ok(own.min(all)));
        }
        state.writer = Some(cx.waker().clone());
        // A stream at its own limit has frames to send, which wake it.
        if own >= least {
            match std::mem::replace(&mut state.turn, QueueState::Waiting) {
                QueueState::None => self.capacity_queue.push_back(id),
                // The stream came too late, and keeps its position.
                QueueState::Admitted => self.capacity_queue.push_front(id),
                QueueState::Waiting => {}
            }
        }
        Poll::Pending
    }

    /// Queues data of a stream that has capacity.
    pub(super) fn send(&mut self, id: u32, data: &[u8]) {
        let Some(state) = self.states.get_mut(&id) else {
            return;
        };
        state.turn = QueueState::None;
        state.send(data);
        self.counters.unsent += data.len();
        self.queue(id);
    }

    /// Releases capacity. Wakes the streams that can now send.
    pub(super) fn free(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        self.counters.unsent -= len;
        let room = self.limits.unsent_all.saturating_sub(self.counters.unsent);
        // No further frame would wake the rest.
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

    /// Drops data of a stream that will not be sent; the server's half has ended.
    pub(super) fn end_outgoing(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id) {
            let dropped = state.end_outgoing();
            self.leave(id);
            self.free(dropped);
        }
    }

    /// Removes a stream that has nothing more to send.
    pub(super) fn leave(&mut self, id: u32) {
        if let Some(state) = self.states.get_mut(&id)
            && std::mem::take(&mut state.turn) == QueueState::Waiting
        {
            self.capacity_queue.retain(|other| *other != id);
        }
    }
}

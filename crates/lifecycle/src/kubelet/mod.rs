//! The kubelet's own work as its calls show it: the time at which it saw a pod, its probes and hooks, the pulls that it queues, and
//! its relist; and the spans of its work on pods, if it exports them.

pub(super) mod execs;
pub(super) mod hanging_probe;
pub(super) mod images;
pub(super) mod probes;
pub(super) mod pulls;
pub mod relist;
pub(super) mod start;
pub mod sync_error;
pub mod syncs;
pub(super) mod waiting;

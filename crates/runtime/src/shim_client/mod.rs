//! The client of criscope-shim, which runs the processes of a pod.
//!
//! [`Shim::launch`] starts the shim of a new pod, [`Shim::connect`] connects to it after a restart. [`exit_records()`] reads the
//! exits of containers whose shim is gone.

mod attach;
mod client;
mod end;
mod error;
mod event;
mod exit_records;
mod exit_waiters;
mod frames;
mod hello;
mod listen;
mod statistics;

pub use self::attach::{Attached, Input, Output};
pub use self::client::{Launch, Shim};
pub(crate) use self::end::is_called_for;
pub use self::end::{end, end_containerd_shim};
pub use self::error::Error;
pub use self::event::{Event, Unreadable};
pub use self::exit_records::{ExitFate, exit_records};
pub use self::exit_waiters::ExitWaiter;
pub use criscope_shim::protocol::{
    Attach, Create, Exec, Exit, Kill, Metrics, Oom, PidNamespace, Process, Resize, Runtime, State,
    Stdio, Target, TaskShim, Update, Verb,
};

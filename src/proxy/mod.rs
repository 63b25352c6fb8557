//! The request path, from the CRI socket to the backend and back. [`stack`] lists its layers; read it first.
//!
//! [`listener`] accepts connections, [`instrument`] records each call and ends it exactly once, [`rescue`] turns errors
//! into gRPC statuses, [`inspect`] reads a bounded copy of each message, [`faults`] injects those
//! that root asked for, [`router`] chooses the backend with the help of
//! [`pod_index`], and [`backend`] serves or forwards the call.

pub mod backend;
pub mod faults;
pub mod inspect;
pub mod instrument;
pub mod listener;
pub mod pod_index;
pub mod rescue;
pub mod router;
pub mod sessions;
pub mod stack;

//! The request path, from the CRI socket to the backend and back. [`stack`] is its layers as one list; read it first.
//!
//! [`listener`] accepts connections, [`instrument`] records each call and ends it exactly once, [`rescue`] turns errors
//! into gRPC statuses, [`inspect`] reads a bounded copy of each message, [`router`] chooses the backend by [`pod_index`],
//! and [`backend`] carries the call out or passes it on.

pub mod backend;
pub mod inspect;
pub mod instrument;
pub mod listener;
pub mod pod_index;
pub mod rescue;
pub mod router;
pub mod sessions;
pub mod stack;

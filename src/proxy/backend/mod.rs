//! Where calls are carried out: a runtime on another socket ([`remote`]), or in this process ([`local`]).

pub mod local;
pub mod remote;

//! The names of the sides that are compared.

pub(crate) const CONTAINERD: &str = "containerd, runc";
pub(crate) const RUNC: &str = "criscope, runc";
pub(crate) const CRUN: &str = "criscope, crun";
pub(crate) const PROXY: &str = "criscope in front of it";

//! Namespaces, mounts, cgroups and other Linux facilities that a container runtime needs, as independent building blocks.
//! All raw system calls of the runtime are here.
//!
//! | module | purpose |
//! |---|---|
//! | [`namespace`] | creates the namespaces of a pod, pins them as mounts, runs code inside them |
//! | [`idmap`] | mappings of user namespaces, and id-mapped mounts |
//! | [`cgroup`] | finds, creates and removes cgroups of either version; [`cgroup::usage`] reads resource usage |
//! | [`sysctl`] | namespaced kernel parameters |
//! | [`link`] | network interfaces of a namespace: brings `lo` up, reads counters |
//! | [`rootfs`] | root file systems on overlayfs, `/dev/shm`, volumes of images, SELinux labels of files |
//! | [`free_space`] | checks the space that copies leave on a file system |
//! | [`environment`] | variables that child processes must not inherit |
//! | [`log_file`] | opens logs of containers without following links |
//! | [`tcp_peer`] | the user at the other end of a local TCP connection |
//! | [`mountinfo`] | decodes paths in `/proc/self/mountinfo` |
//! | [`walk`] | walks directory trees of any depth with a bounded number of descriptors |
//! | [`untrusted`] | reads files that containers, images or pod authors control |
//!
//! Functions block unless they are `async`. Entering a namespace, mounting, and changing files of others needs root.

pub mod cgroup;
pub mod environment;
pub mod free_space;
pub mod idmap;
pub mod link;
pub mod log_file;
pub mod mountinfo;
pub mod namespace;
pub mod rootfs;
pub mod sysctl;
pub mod tcp_peer;
pub mod untrusted;
pub mod walk;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

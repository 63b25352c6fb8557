//! The names that most tests use: the parts of the harness, and the types in which a test speaks of the program.

pub(crate) use std::collections::{BTreeMap, BTreeSet, HashMap};
pub(crate) use std::fs;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::{Command, Output, Stdio};
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};

pub(crate) use bytes::Bytes;
pub(crate) use criscope::cri::v1;
pub(crate) use criscope_image::Digest;
pub(crate) use nix::sys::signal::{Signal, kill};
pub(crate) use nix::unistd::Pid;
pub(crate) use serde_json::{Value, json};
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::net::{TcpListener, TcpStream};
pub(crate) use tokio_util::sync::CancellationToken;
pub(crate) use tonic::{Code, Status};

pub(crate) use crate::fixture::{
    assert_refused, configured, node, node_with_pod, proxied, proxied_client,
};
pub(crate) use crate::harness::client::{Call, Client};
pub(crate) use crate::harness::collector::{Collector, Manner};
pub(crate) use crate::harness::containerd::Containerd;
pub(crate) use crate::harness::daemon::{Daemon, IMAGE, oci_runtime};
pub(crate) use crate::harness::docker_registry::DockerRegistry;
pub(crate) use crate::harness::executable::executable;
pub(crate) use crate::harness::fake::Fake;
pub(crate) use crate::harness::kubelet::{
    Kubelet, Pod, idle, namespaces, pod_namespaces, pod_security, resources, security,
    share_host_network, share_pid, shell, user_namespace, words,
};
pub(crate) use crate::harness::packages::{need_root, program};
pub(crate) use crate::harness::process::halt;
pub(crate) use crate::harness::prometheus::Prometheus;
pub(crate) use crate::harness::proxy::{Proxy, Start, free_port, is_call};
pub(crate) use crate::harness::registry::Registry;
pub(crate) use crate::harness::scrape::Scrape;
pub(crate) use crate::harness::script::Step;
pub(crate) use crate::harness::{
    PATIENCE, busybox, encode, headers, image_store, leaks, lock, message, message_with, pods,
    requests, script, soon, until, until_still, until_true,
};

//! Recommendations for failed steps.
//!
//! Only causes that occurred with real runtimes are listed; for others the runtime's error has to suffice.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::{Code, Status};

use super::timeline::FailureDetail;
use crate::cri::status::code_name;

/// The context of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepContext<'a> {
    /// The smoke's own registry, if it serves the image: its address, and its count of requests.
    pub registry: Option<(SocketAddr, &'a AtomicU64)>,
    /// True if the sandbox exists.
    pub sandbox_made: bool,
}

/// The runtime's error with a fitting hint.
pub fn explain(step: &str, status: &Status, around: &StepContext<'_>) -> FailureDetail {
    let message = status.message();
    let error = if message.is_empty() {
        code_name(status.code()).to_owned()
    } else {
        format!("{}: {message}", code_name(status.code()))
    };
    FailureDetail {
        error,
        hint: by_code(status.code(), around)
            .or_else(|| by_message(step, &message.to_lowercase(), around)),
    }
}

fn by_code(code: Code, around: &StepContext<'_>) -> Option<String> {
    let hint = match code {
        Code::Unimplemented => "this is not a CRI v1 runtime, or its CRI plugin is disabled",
        Code::Unavailable => "the runtime is starting, restarting or has ended: see its log",
        Code::DeadlineExceeded | Code::Cancelled => {
            "the runtime did not answer in time: see its log, or extend --timeout"
        }
        Code::NotFound if around.sandbox_made => {
            "another client removed it: a kubelet on this node removes unknown pods; run it again"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn by_message(step: &str, message: &str, around: &StepContext<'_>) -> Option<String> {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let hint = match step {
        "PullImage" => return pull(message, around),
        "RunPodSandbox" if has(&["pause", "sandbox image", "failed to pull"]) => {
            "the runtime cannot get its sandbox image: point its sandbox_image (containerd) or pause_image (CRI-O) at one it can reach"
        }
        "RunPodSandbox" if has(&["no runtime for", "unknown runtime", "runtime handler"]) => {
            "the runtime has no such handler: see --handler"
        }
        "RunPodSandbox" if has(&["cni", "network"]) && !has(&["oci runtime"]) => {
            "the network plugins failed: see the runtime's log; --host-network needs none"
        }
        _ if has(&["oom_score_adj"]) => {
            "the runtime may not lower oom_score_adj: set restrict_oom_score_adj = true (containerd), or give it CAP_SYS_RESOURCE"
        }
        _ if has(&["slice:prefix:name", "cgroup"]) => {
            "the cgroup driver and the parent cgroup do not match: name one with --cgroup-parent"
        }
        "CreateContainer" | "StartContainer" | "ExecSync"
            if has(&["executable file not found", "no such file"]) =>
        {
            "the image needs sh, echo and sleep"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn pull(message: &str, around: &StepContext<'_>) -> Option<String> {
    let (address, requests) = around.registry?;
    Some(if message.contains("http response to https client") {
        format!(
            "the runtime asks {address} for TLS: allow plain HTTP there (CRI-O: insecure = true in registries.conf.d), or use --image"
        )
    } else if requests.load(Ordering::Relaxed) == 0 {
        format!(
            "the runtime never reached {address}: it runs in another network namespace or behind a proxy (NO_PROXY); use --image with one it can reach"
        )
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(step: &str, code: Code, message: &str, around: &StepContext<'_>) -> String {
        explain(step, &Status::new(code, message), around)
            .hint
            .unwrap_or_default()
    }

    #[test]
    fn known_causes_have_a_hint_and_others_only_the_error() {
        let nothing = StepContext::default();
        let address = SocketAddr::from(([127, 0, 0, 1], 5));
        let (none, some) = (AtomicU64::new(0), AtomicU64::new(3));
        let served = StepContext {
            registry: Some((address, &none)),
            sandbox_made: false,
        };
        let asked = StepContext {
            registry: Some((address, &some)),
            sandbox_made: true,
        };
        for (step, code, message, around, word) in [
            (
                "Version",
                Code::Unimplemented,
                "unknown service",
                &nothing,
                "not a CRI v1",
            ),
            (
                "ExecSync",
                Code::NotFound,
                "no such container",
                &asked,
                "kubelet",
            ),
            (
                "PullImage",
                Code::Unknown,
                "dial tcp: refused",
                &served,
                "never reached",
            ),
            (
                "PullImage",
                Code::Unknown,
                "http: server gave HTTP response to HTTPS client",
                &asked,
                "TLS",
            ),
            (
                "RunPodSandbox",
                Code::Internal,
                "OCI runtime: starting container: setting up network: no such device",
                &nothing,
                "",
            ),
            (
                "RunPodSandbox",
                Code::Unknown,
                "failed to get sandbox image \"registry.k8s.io/pause:3.6\"",
                &nothing,
                "sandbox_image",
            ),
            (
                "RunPodSandbox",
                Code::Unknown,
                "no runtime for \"kata\" is configured",
                &nothing,
                "--handler",
            ),
            (
                "RunPodSandbox",
                Code::Unknown,
                "can't set process oom_score_adj: permission denied",
                &nothing,
                "restrict_oom_score_adj",
            ),
            (
                "RunPodSandbox",
                Code::Unknown,
                "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups",
                &nothing,
                "--cgroup-parent",
            ),
        ] {
            let hint = hint(step, code, message, around);
            assert!(hint.contains(word), "{step} {message}: {hint:?}");
        }
        let plain = explain(
            "StopContainer",
            &Status::new(Code::Unknown, "odd"),
            &nothing,
        );
        assert_eq!(plain.error, "UNKNOWN: odd");
        assert_eq!(plain.hint, None);
        assert_eq!(
            hint("PullImage", Code::Unknown, "digest mismatch", &asked),
            ""
        );
    }
}

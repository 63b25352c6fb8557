//! Errors that are routine: every healthy node has them, so pages, alerts and error budgets do not count them as
//! failures. This table is the only list of them; the metric `criscope_rpc_total` counts all calls as they ended.
//!
//! | code | methods | why |
//! |---|---|---|
//! | `NOT_FOUND` | statuses and statistics of one object | the kubelet asks about an object that it listed a moment ago, and expects this answer once the object is removed |
//! | `NOT_FOUND` | stop and remove, RemoveImage, ReopenContainerLog | the object is gone already, which is what the caller wanted |
//! | `NOT_FOUND` | ExecSync, Exec, Attach, PortForward | a probe or a user came after the container's end |
//! | `DEADLINE_EXCEEDED` | ExecSync | a probe or hook used up its own time: a fault of the workload |
//! | `DEADLINE_EXCEEDED` | GetContainerEvents | a watch with a deadline has no other end |
//! | `UNIMPLEMENTED` | methods that a runtime need not have | the kubelet tries them and does without |

use crate::Method;
use crate::status::Code;

/// Codes that are routine for some method.
pub const CODES: [Code; 3] = [Code::NotFound, Code::DeadlineExceeded, Code::Unimplemented];

/// Returns whether this code is routine for calls of this method.
pub const fn is_routine(method: Method, code: Code) -> bool {
    match code {
        Code::NotFound => method.takes_away() || may_miss(method),
        Code::DeadlineExceeded => {
            matches!(method, Method::ExecSync | Method::GetContainerEvents)
        }
        Code::Unimplemented => is_optional(method),
        _ => false,
    }
}

/// Methods about one object that may have been removed between two calls.
const fn may_miss(method: Method) -> bool {
    matches!(
        method,
        Method::ContainerStatus
            | Method::PodSandboxStatus
            | Method::ImageStatus
            | Method::ContainerStats
            | Method::PodSandboxStats
            | Method::RemoveImage
            | Method::ReopenContainerLog
            | Method::ExecSync
            | Method::Exec
            | Method::Attach
            | Method::PortForward
    )
}

/// Methods that older runtimes lack. The kubelet falls back to another one, or does without.
const fn is_optional(method: Method) -> bool {
    matches!(
        method,
        Method::UpdatePodSandboxResources
            | Method::UpdateRuntimeConfig
            | Method::RuntimeConfig
            | Method::CheckpointContainer
            | Method::CheckpointPod
            | Method::RestorePod
            | Method::GetContainerEvents
            | Method::PodSandboxStats
            | Method::ListPodSandboxStats
            | Method::ListMetricDescriptors
            | Method::ListPodSandboxMetrics
            | Method::StreamPodSandboxes
            | Method::StreamContainers
            | Method::StreamContainerStats
            | Method::StreamPodSandboxStats
            | Method::StreamPodSandboxMetrics
            | Method::StreamImages
            | Method::Other
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;

    #[test]
    fn methods_that_start_pods_have_no_routine_errors() {
        for method in [
            Method::RunPodSandbox,
            Method::CreateContainer,
            Method::StartContainer,
            Method::PullImage,
            Method::ListPodSandbox,
            Method::ListContainers,
            Method::Status,
            Method::Version,
        ] {
            for code in status::CODES {
                assert!(!is_routine(method, code), "{method} {code:?}");
            }
        }
    }

    #[test]
    fn errors_that_the_kubelet_expects_are_routine() {
        for (method, code, routine) in [
            (Method::ContainerStatus, Code::NotFound, true),
            (Method::PodSandboxStatus, Code::NotFound, true),
            (Method::RemoveContainer, Code::NotFound, true),
            (Method::ExecSync, Code::DeadlineExceeded, true),
            (Method::ListPodSandboxMetrics, Code::Unimplemented, true),
            (Method::ContainerStatus, Code::Unknown, false),
            (Method::ContainerStatus, Code::DeadlineExceeded, false),
            (Method::StopContainer, Code::DeadlineExceeded, false),
            (Method::GetContainerEvents, Code::Unavailable, false),
            (Method::ListPodSandbox, Code::Unimplemented, false),
        ] {
            assert_eq!(is_routine(method, code), routine, "{method} {code:?}");
        }
    }

    #[test]
    fn codes_lists_all_codes_of_the_table() {
        for code in status::CODES {
            let somewhere = Method::ALL.iter().any(|method| is_routine(*method, code));
            assert_eq!(somewhere, CODES.contains(&code), "{code:?}");
        }
    }
}

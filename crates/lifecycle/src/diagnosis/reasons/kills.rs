//! Why the kubelet kills a container of a pod that goes on.

use super::closed_list;

closed_list! {
    /// Reasons for which the kubelet kills a container of a pod that goes on, and that no failed call shows. The kubelet compares only
    /// name and image of a container (`HashContainer`), so no other change of the definition is a reason.
    UnseenKill:
    Probe = "a failing liveness or startup probe (HTTP, TCP or gRPC)",
        by "kuberuntime/kuberuntime_manager.go computePodActions",
        shown by "no call; a grace period longer than the pod's own can only be that of a probe";
    PostStartHook = "a failed postStart hook (HTTP or TCP)",
        by "kuberuntime/kuberuntime_container.go startContainer",
        shown by "no call; the kubelet starts nothing else in the pod, and runs no probe of the container, until the hook has ended";
    NewImage = "a new image in the pod",
        by "kuberuntime/kuberuntime_manager.go containerChanged",
        shown by "the image of the next CreateContainer";
    Resize = "a resize that needs a restart",
        by "kuberuntime/kuberuntime_manager.go computePodResizeAction",
        shown by "the limits of the next CreateContainer, unless the resize changes requests only";
    RestartRule = "a rule that restarts the whole pod",
        by "kuberuntime/kuberuntime_manager.go getContainersToReset",
        shown by "RemoveContainer before the next CreateContainer, and a grace period of 2 s";
    UnknownState = "a state that the runtime had lost",
        by "kuberuntime/kuberuntime_manager.go computePodActions",
        shown by "an exit whose reason the runtime does not know";
}

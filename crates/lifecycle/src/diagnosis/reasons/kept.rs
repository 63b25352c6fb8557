//! Why a pod still exists after the kubelet has stopped it.

use super::closed_list;

closed_list! {
    /// Why a pod still exists some seconds after the kubelet has stopped it: it was not deleted, or its deletion is held up.
    KeptPod:
    Deadline = "its activeDeadlineSeconds",
        by "active_deadline.go ShouldEvict",
        shown by "the API: the reason DeadlineExceeded";
    Eviction = "an eviction",
        by "eviction/eviction_manager.go evictPod",
        shown by "the API: the reason Evicted";
    Preemption = "a critical pod that needs its place",
        by "preemption/preemption.go evictPodsToFreeRequests",
        shown by "the API: the reason Preempting";
    NodeShutdown = "a node shutdown",
        by "nodeshutdown/nodeshutdown_manager.go killPods",
        shown by "the stops of all other pods";
    HeldUp = "a finalizer or a volume that holds its deletion up",
        by "kubelet_volumes.go cleanupOrphanedPodDirs",
        shown by "the API: a deletion timestamp";
}

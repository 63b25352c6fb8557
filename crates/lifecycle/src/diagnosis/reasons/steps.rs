//! Steps of the kubelet between the calls of a start, and what may hold each up. Paths are below `pkg/kubelet`.

use super::closed_list;

closed_list! {
    /// What may hold the kubelet up between seeing a pod and its sync of the pod.
    StepBeforeSync:
    Admission = "admission",
        by "kubelet.go HandlePodAdditions",
        shown by "the kubelet's span syncPod, which begins later; a pod that is rejected has no calls";
    Queue = "the kubelet's queue",
        by "pod_workers.go podWorkerLoop",
        shown by "the kubelet's span syncPod, which begins later";
    UnhealthyRuntime = "an unhealthy runtime",
        by "kubelet.go syncLoop",
        shown by "the condition RuntimeReady, and lists of containers that take minutes";
    StaticPredecessor = "an earlier static pod of this name",
        by "pod_workers.go allowStaticPodStart",
        shown by "the source of the pod, which is a file or an URL";
}

closed_list! {
    /// What the kubelet may wait for or lack in its sync of a pod, before RunPodSandbox.
    StepBeforeSandbox:
    Volumes = "volumes",
        by "kubelet.go WaitForAttachAndMount",
        shown by "the kubelet's span syncPod, which fails after two minutes and names them";
    ResourceClaims = "resource claims",
        by "kuberuntime/kuberuntime_manager.go PrepareDynamicResources",
        shown by "nothing: the span has no error";
    Network = "the node's network",
        by "kubelet.go networkErrors",
        shown by "the condition NetworkReady in Status; without it this is no reason";
    Cgroup = "the pod's cgroup",
        by "kubelet.go EnsureExists, UpdateActuatedPodLevelResources",
        shown by "the error of the span syncPod";
    Directories = "its directories for volumes and logs",
        by "kubelet.go makePodDataDirs; kuberuntime/kuberuntime_sandbox.go createPodSandbox",
        shown by "the error of the span syncPod";
    SandboxConfig = "its sandbox settings (resolv.conf, host name, user namespace)",
        by "kuberuntime/kuberuntime_sandbox.go generatePodSandboxConfig",
        shown by "the error of the span syncPod";
    RuntimeClass = "its RuntimeClass",
        by "kuberuntime/kuberuntime_sandbox.go LookupRuntimeHandler",
        shown by "the handler of RunPodSandbox; a pod with the default handler has no RuntimeClass";
    PullSecrets = "its pull Secrets",
        by "kubelet_pods.go getPullSecretsForPod",
        shown by "nothing: a missing Secret delays the start, and fails nothing";
    MirrorPod = "its mirror pod in the API",
        by "kubelet.go tryReconcileMirrorPods",
        shown by "the source of the pod, which is a file or an URL";
}

closed_list! {
    /// What the kubelet may wait for or lack between RunPodSandbox and CreateContainer.
    StepBeforeCreate:
    PullQueue = "its turn to pull",
        by "images/puller.go pullImage",
        shown by "another pull in flight; without one there is no queue";
    Environment = "a Secret or ConfigMap",
        by "kubelet_pods.go makeEnvironmentVariables",
        shown by "the span syncPod: CreateContainerConfigError";
    Credentials = "image credentials",
        by "images/image_manager.go makeLookupPullCredentialsFunc",
        shown by "no PullImage";
    Mounts = "a subPath",
        by "kubelet_pods.go makeMounts",
        shown by "the span syncPod: CreateContainerConfigError";
    ImageVolume = "an image volume",
        by "kuberuntime/kuberuntime_manager.go getImageVolumes, toKubeContainerImageVolumes",
        shown by "PullImage of its image, unless it may not be pulled or was found; the span syncPod: CreateContainerConfigError";
    User = "runAsNonRoot",
        by "kuberuntime/security_context_others.go verifyRunAsNonRoot",
        shown by "the span syncPod: CreateContainerConfigError";
    Devices = "a device",
        by "kubelet_pods.go GetResources",
        shown by "the span syncPod: CreateContainerConfigError";
    BlockVolume = "a block volume",
        by "kubelet_pods.go makeBlockVolumes",
        shown by "the span syncPod: CreateContainerConfigError";
    PullLimit = "registryPullQPS",
        by "images/helpers.go throttleImagePulling",
        shown by "no PullImage";
    PullRecord = "its record of pulls",
        by "images/image_manager.go RecordPullIntent",
        shown by "no PullImage";
    ImageName = "an invalid image name",
        by "images/image_manager.go applyDefaultImageTag",
        shown by "no ImageStatus and no PullImage";
    LogDirectory = "its log directory",
        by "kuberuntime/kuberuntime_container.go generateContainerConfig, calcRestartCountByLogDir",
        shown by "the span syncPod: CreateContainerConfigError";
    Pinning = "CPU pinning",
        by "kuberuntime/kuberuntime_container.go PreCreateContainer, setActuatedContainerResources",
        shown by "the span syncPod: PreCreateHookError";
}

closed_list! {
    /// Why an image that the kubelet did not find is not pulled.
    StepBeforePull:
    Never = "imagePullPolicy Never",
        by "images/image_manager.go imageNotPresentOnNeverPolicyError",
        shown by "the span syncPod: ErrImageNeverPull; the lookup is repeated";
    Credentials = "the kubelet's credential provider",
        by "images/image_manager.go makeLookupPullCredentialsFunc",
        shown by "the span syncPod";
    Queue = "its pull queue",
        by "images/puller.go pullImage",
        shown by "a pull of another pod in flight; without one there is no queue. A pod in the queue repeats no lookup";
    Limit = "its pull limit (registryPullQPS)",
        by "images/helpers.go throttleImagePulling",
        shown by "the span syncPod: ErrImagePull; other pulls just before";
    Record = "its record of pulls",
        by "images/image_manager.go RecordPullIntent",
        shown by "the span syncPod";
}

closed_list! {
    /// Why a sandbox that the kubelet replaces was not usable.
    UnusableSandbox:
    NotReady = "was not ready",
        by "kuberuntime/util/util.go PodSandboxChanged",
        shown by "the end of the sandbox, in the events of the runtime";
    NoAddress = "had no IP address",
        by "kuberuntime/util/util.go PodSandboxChanged",
        shown by "PodSandboxStatus, whose addresses are not read";
    NotAlone = "was not the only one",
        by "kuberuntime/util/util.go PodSandboxChanged",
        shown by "two sandboxes of the pod that were not stopped";
    CgroupLost = "had lost the pod's cgroup",
        by "kubelet.go SyncPod, which kills a running pod whose cgroup does not exist",
        shown by "nothing";
}

closed_list! {
    /// Why the kubelet stops a pod with less time than its own grace period.
    ShorterGrace:
    Eviction = "an eviction",
        by "eviction/eviction_manager.go evictPod",
        shown by "a grace period of at most 2 s";
    SoftEviction = "a soft eviction",
        by "eviction/eviction_manager.go evictPod",
        shown by "any grace period: evictionMaxPodGracePeriod";
    Deletion = "a deletion with a shorter grace period",
        by "pod_workers.go calculateEffectiveGracePeriod",
        shown by "nothing";
    NodeShutdown = "a node shutdown",
        by "nodeshutdown/nodeshutdown_manager.go killPods",
        shown by "the stops of all other pods";
    Orphan = "a pod unknown to the kubelet",
        by "kubelet.go SyncTerminatingRuntimePod",
        shown by "a grace period of at most 2 s, soon after the start of the kubelet";
    Hook = "a preStop hook by HTTP or sleep",
        by "kuberuntime/kuberuntime_container.go executePreStopHook",
        shown by "the annotation on the hook in CreateContainer; the span syncTerminatingPod; it leaves 2 s";
}

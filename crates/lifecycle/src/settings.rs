//! `[story]`, `[sampler]`, `[containerd]`, `[receiver]` and `[recorder]`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope_settings::settings;
use criscope_settings::value::{
    BooleanValue, BoundedDuration, BoundedNumber, ByteCount, DirectoryPath, ListOf, ListenAddress,
    UserIdNumber, ms, secs,
};

settings! {
    /// The stories of pods: why a pod was slow, or never started.
    pub struct StorySettings in "story" (listen: &Path) {
        /// The directory for data that survives a restart: the journal of the stories, and dumps of the recorder. If it is
        /// not writable, an error is logged and every start begins without stories.
        state_dir: PathBuf = listen.with_extension("state"), DirectoryPath,
            or "the path of `server.listen` with the ending `.state`" like "\"/run/criscope/criscope.state\"";
        /// The kubelet's directory. Its checkpoint of allocated resources tells which containers a pod has, so that a start is
        /// not taken for complete while an init container runs; only names are read. Without the checkpoint nothing changes.
        /// A directory of a pod in it that is gone tells that a pod was deleted before it had a sandbox. A directory
        /// without a container tells of a pod that waits before its first call, and which of its volumes are not mounted.
        /// The socket `pod-resources/kubelet.sock` in it is asked for names when somebody looks for a pod that no call has named.
        kubelet_dir: PathBuf = "/var/lib/kubelet".into(), DirectoryPath;
        /// How many starts, restarts and stops are remembered. Those of pods that are gone are forgotten first, pod by
        /// pod; then the oldest.
        episodes: usize = 512, BoundedNumber::between(16, 1 << 16);
        /// How long after its last call a start counts as complete. The CRI does not say how many containers a pod has, so
        /// only silence tells the end of a start; the silence itself is not counted.
        quiet: Duration = secs(10), BoundedDuration::between(ms(100), secs(600));
        /// How long a start, restart or stop may take before its headline says where the time went. Shorter ones are called
        /// slow only if a call took unusually long for this node.
        slow: Duration = secs(2), BoundedDuration::between(ms(1), secs(3600));
        /// How long after its first call an incomplete start counts as failed.
        give_up: Duration = secs(1800), BoundedDuration::between(secs(1), secs(86400));
    }
}

settings! {
    /// Scans of the processes of the node while a call is slow: they show which CNI plugin or OCI runtime is running.
    /// They read `/proc` only, and of the environment of CNI plugins only `CNI_COMMAND`, `CNI_CONTAINERID` and the pod in
    /// `CNI_ARGS`.
    pub struct SamplerSettings in "sampler" {
        /// Whether processes are scanned. Scans cost nothing while calls are fast, and turn themselves off without the
        /// permission to read `/proc`.
        enabled: bool = true, BooleanValue;
        /// How long a mutating call must have taken before processes are scanned for it.
        after: Duration = ms(500), BoundedDuration::between(ms(10), secs(600));
        /// How often processes are scanned. A node with many processes is scanned less often, so that scans never use more
        /// than a twentieth of a core.
        period: Duration = ms(100), BoundedDuration::between(ms(10), secs(60));
    }
}

settings! {
    /// What is asked of a containerd behind the proxy besides the CRI, on the same socket.
    pub struct ContainerdSettings in "containerd" {
        /// Whether its content service is asked how far image pulls are. It is asked once a second while an image is pulled,
        /// on a connection of its own; without the service nothing else changes.
        pull_progress: bool = true, BooleanValue;
        /// Whether its events are subscribed to, on a connection of their own. They tell at once how a container or sandbox ended,
        /// and that the kernel killed a process of a container that runs on for lack of memory, which the CRI does not tell.
        events: bool = true, BooleanValue;
    }
}

settings! {
    /// An OTLP receiver for the spans of the runtime and of the kubelet. It adds them to the stories and forwards them to
    /// `telemetry.otlp.endpoint`. Set the OTLP/gRPC endpoint of the runtime, and `tracing.endpoint` of the kubelet, to this
    /// address.
    pub struct ReceiverSettings in "receiver" {
        /// Address to receive OTLP/gRPC on.
        listen: Option<SocketAddr> = None, ListenAddress;
        /// Ids of users, besides root, whose spans are accepted. All spans are forwarded with the credentials of this node, and
        /// every user of the node reaches the address. Only local connections are accepted.
        allowed_uids: Vec<u32> = Vec::new(), ListOf { of: UserIdNumber, words: "an array of user ids" };
    }
}

settings! {
    /// The flight recorder: the last completed calls, without payloads.
    pub struct RecorderSettings in "recorder" {
        /// Calls that were mutating, failed or slow.
        calls: usize = 2048, BoundedNumber::between(1, 1 << 20);
        /// Other calls; a kubelet makes several a second.
        polls: usize = 1024, BoundedNumber::between(1, 1 << 20);
        /// How many dumps are kept in `story.state_dir`; the oldest is removed first. A dump is written on SIGUSR2, on a
        /// panic, and when a call is stuck. 0 writes none.
        dumps: usize = 8, BoundedNumber::between(0, 1000);
        /// Largest dump; older calls are left out of a larger one.
        max_dump_bytes: usize = 8 << 20, ByteCount::between(64 << 10, 1 << 30);
    }
}

//! The steps of the built-in runtime: their names, words and workers.

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident = $name:literal, $words:literal, $verb:literal;)*) => {
        crate::named! {
            /// A step of the runtime's work. A metric label, and the name of its span.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[repr(u8)]
            pub enum RuntimeStep { $($(#[$doc])* $step = $name,)* }
        }

        impl RuntimeStep {
            /// The name in a sentence: `9.5 s in the fetch of layer sha256:0a1b`.
            pub const fn words(self) -> &'static str {
                match self {$(Self::$step => $words),*}
            }

            /// The verb of the step, for the line of a waterfall: `fetch layer`.
            pub const fn verb(self) -> &'static str {
                match self {$(Self::$step => $verb),*}
            }

            /// A text that begins with the words of a step, with its verb in place of them; `None` for another text.
            pub fn with_verb(text: &str) -> Option<String> {
                let mut steps = Self::ALL.into_iter();
                steps.find_map(|step| {
                    let rest = text.strip_prefix(step.words())?;
                    let is_whole = rest.is_empty() || rest.starts_with(' ');
                    is_whole.then(|| format!("{}{rest}", step.verb()))
                })
            }
        }
    };
}

steps! {
    /// Creating the sandbox's files and shared memory.
    SandboxFiles = "sandbox_files", "the files of the sandbox", "write sandbox files";
    /// Creating namespaces and setting their sysctls.
    Namespaces = "namespaces", "making namespaces", "create namespaces";
    /// Attaching the sandbox to its network: all CNI plugins.
    NetworkAttach = "network_attach", "attaching the network", "attach network";
    /// Detaching the sandbox from its network.
    NetworkDetach = "network_detach", "detaching the network", "detach network";
    /// CNI ADD of one plugin.
    CniAdd = "cni_add", "CNI ADD", "CNI ADD";
    /// CNI DEL of one plugin.
    CniDel = "cni_del", "CNI DEL", "CNI DEL";
    /// CNI CHECK of one plugin.
    CniCheck = "cni_check", "CNI CHECK", "CNI CHECK";
    /// CNI STATUS of one plugin.
    CniStatus = "cni_status", "CNI STATUS", "CNI STATUS";
    /// CNI GC of one plugin.
    CniGc = "cni_gc", "CNI GC", "CNI GC";
    /// Starting criscope-shim.
    ShimLaunch = "shim_launch", "the launch of the shim", "start shim";
    /// Ending criscope-shim.
    ShimEnd = "shim_end", "the end of the shim", "stop shim";
    /// Unmounting the pinned namespaces.
    NamespacesRemove = "namespaces_remove", "freeing namespaces", "remove namespaces";
    /// Removing the sandbox's directories.
    SandboxRemove = "sandbox_remove", "removing the sandbox's files", "remove sandbox files";
    /// Mounting a container's root file system.
    RootfsMount = "rootfs_mount", "the mount of the root file system", "mount root file system";
    /// Generating and writing the OCI specification.
    Spec = "spec", "the OCI specification", "write OCI specification";
    /// The OCI runtime's create.
    OciCreate = "oci_create", "create", "create";
    /// The OCI runtime's start.
    OciStart = "oci_start", "start", "start";
    /// The OCI runtime's exec.
    OciExec = "oci_exec", "exec", "exec";
    /// The OCI runtime's update.
    OciUpdate = "oci_update", "update", "update";
    /// The OCI runtime's pause.
    OciPause = "oci_pause", "pause", "pause";
    /// The OCI runtime's checkpoint.
    OciCheckpoint = "oci_checkpoint", "checkpoint", "checkpoint";
    /// The OCI runtime's resume.
    OciResume = "oci_resume", "resume", "resume";
    /// Copying the changed files of a paused container.
    CheckpointFiles = "checkpoint_files", "copying the container's files", "copy container files";
    /// Writing the archive of a checkpoint.
    CheckpointArchive = "checkpoint_archive", "writing the checkpoint", "write checkpoint";
    /// The OCI runtime's delete.
    OciDelete = "oci_delete", "delete", "delete";
    /// Thawing a container that ends, or its pod.
    Thaw = "thaw", "thawing the frozen container", "thaw frozen container";
    /// Waiting for a container after its stop signal.
    GraceWait = "grace_wait", "the container's grace period", "wait for the grace period";
    /// Waiting for a container after SIGKILL.
    KillWait = "kill_wait", "waiting for a killed container", "wait for the killed container";
    /// Unmounting a container's root file system.
    RootfsUnmount = "rootfs_unmount", "the unmount of the root file system", "unmount root file system";
    /// Removing a container's directory.
    ContainerRemove = "container_remove", "removing the container's files", "remove container files";
    /// A request to a plugin of the Node Resource Interface.
    Nri = "nri", "the NRI plugin", "ask NRI plugin";
    /// Fetching an image's manifest and configuration.
    ImageResolve = "image_resolve", "resolving the image", "resolve image";
    /// Getting a layer, also from a concurrent pull.
    ImageLayer = "image_layer", "layer", "get layer";
    /// Fetching a layer from the registry; it is unpacked as it arrives.
    LayerFetch = "layer_fetch", "the fetch of layer", "fetch layer";
    /// Unpacking the rest of a layer after it was fetched.
    LayerUnpack = "layer_unpack", "the unpacking of layer", "unpack layer";
    /// Verifying an image: the programs, or the policy.
    ImageVerify = "image_verify", "the verification by", "verify with";
    /// Unwrapping the key of an encrypted layer.
    LayerKey = "layer_key", "the key of layer", "unwrap key of layer";
    /// Recording an image in the store.
    ImageRecord = "image_record", "recording the image", "record image";
}

/// Who performs a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// A CNI plugin.
    Cni,
    /// The OCI runtime.
    Oci,
    /// The built-in runtime.
    Own,
    /// A step that consists of recorded steps.
    Several,
}

impl RuntimeStep {
    /// The worker.
    pub const fn worker(self) -> Worker {
        match self {
            Self::CniAdd | Self::CniDel | Self::CniCheck | Self::CniStatus | Self::CniGc => {
                Worker::Cni
            }
            Self::OciCreate
            | Self::OciStart
            | Self::OciExec
            | Self::OciUpdate
            | Self::OciPause
            | Self::OciCheckpoint
            | Self::OciResume
            | Self::OciDelete => Worker::Oci,
            Self::NetworkAttach | Self::NetworkDetach | Self::ImageLayer => Worker::Several,
            _ => Worker::Own,
        }
    }

    /// The command of a CNI plugin (CNI specification 1.1, `CNI_COMMAND`); `None` for other steps.
    pub const fn cni_command(self) -> Option<&'static str> {
        match self {
            Self::CniAdd => Some("ADD"),
            Self::CniDel => Some("DEL"),
            Self::CniCheck => Some("CHECK"),
            Self::CniStatus => Some("STATUS"),
            Self::CniGc => Some("GC"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_with_a_verb() {
        let cases = [
            ("the launch of the shim", Some("start shim")),
            (
                "the fetch of layer sha256:0a1b",
                Some("fetch layer sha256:0a1b"),
            ),
            ("layered", None),
            ("a span of another runtime", None),
        ];
        for (words, verb) in cases {
            assert_eq!(RuntimeStep::with_verb(words).as_deref(), verb, "{words}");
        }
    }
}

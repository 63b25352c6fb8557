//! The caller of a call.

/// The process at the other end of a connection, from `SO_PEERCRED` and `/proc/PID/comm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Kind of program.
    pub client: Client,
    /// Process id in our PID namespace; `None` if the kernel does not report it.
    pub pid: Option<i32>,
    /// The program's name, at most 15 bytes.
    pub comm: Option<Box<str>>,
}

crate::named! {
    /// Kind of caller. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum Client {
        /// The kubelet.
        Kubelet = "kubelet",
        /// The crictl command.
        Crictl = "crictl",
        /// Anything else.
        Other = "other",
    }
}

impl Client {
    /// Classifies a program by its name.
    pub fn from_comm(comm: &str) -> Self {
        match comm {
            // Of upstream; within one program: hyperkube, k3s, MicroK8s and MicroShift.
            "kubelet" | "hyperkube" | "k3s" | "k3s-server" | "k3s-agent" | "kubelite"
            | "microshift" => Self::Kubelet,
            "crictl" => Self::Crictl,
            _ => Self::Other,
        }
    }
}

crate::serde_by_name!(Client);

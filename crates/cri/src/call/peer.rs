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

impl Peer {
    /// Returns whether the caller is a kubelet. Probes, hooks, kills and restarts are a kubelet's only.
    pub fn is_kubelet(&self) -> bool {
        self.client == Client::Kubelet
    }

    /// The caller as a sentence names it: `the kubelet`, or a program by its name.
    pub fn in_words(&self) -> &str {
        match (self.client, self.comm.as_deref()) {
            (Client::Kubelet, _) => "the kubelet",
            (Client::Crictl, _) => "crictl",
            (Client::Other, Some(comm)) if is_plain(comm) => comm,
            (Client::Other, _) => "another client",
        }
    }

    /// The caller in one word: the label value, and for other programs their name behind a colon.
    pub(super) fn in_one_word(&self) -> String {
        let comm = self.comm.as_deref().filter(|comm| is_plain(comm));
        match comm.filter(|_| self.client == Client::Other) {
            Some(comm) => format!("{}:{comm}", self.client.name()),
            None => self.client.name().to_owned(),
        }
    }

    /// Reads [`Self::in_one_word`]; `None` for an unknown kind of caller.
    pub(super) fn from_one_word(word: &str) -> Option<Self> {
        let (kind, comm) = match word.split_once(':') {
            Some((kind, comm)) => (kind, Some(comm)),
            None => (word, None),
        };
        let mut clients = Client::ALL.into_iter();
        Some(Self {
            client: clients.find(|client| client.name() == kind)?,
            pid: None,
            comm: comm.map(Into::into),
        })
    }
}

/// Returns whether the name of a program can stand in a sentence. A process may give itself any name.
fn is_plain(comm: &str) -> bool {
    !comm.is_empty() && comm.bytes().all(|b| b.is_ascii_graphic())
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

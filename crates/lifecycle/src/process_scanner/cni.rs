//! The environment variables of a CNI plugin that identify its pod (CNI specification 1.1, section 2, "Parameters"). All
//! others are skipped in place.

use super::proc::ProcessComm;

/// Longest value that is kept, in bytes: the longest name that a pod can have.
const MAX_VALUE_LEN: usize = 253;

/// A command to a plugin: `CNI_COMMAND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CniCommand {
    /// ADD.
    Add,
    /// DEL.
    Del,
    /// CHECK, STATUS, VERSION, GC: no CRI call needs them.
    Other,
}

impl CniCommand {
    /// The word in `CNI_COMMAND`.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Add => Some("ADD"),
            Self::Del => Some("DEL"),
            Self::Other => None,
        }
    }
}

/// The parameters of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CniParameters {
    /// `CNI_COMMAND`; `None` if the environment could not be read.
    pub(super) command: Option<CniCommand>,
    /// `CNI_CONTAINERID`, or `K8S_POD_INFRA_CONTAINER_ID`: the sandbox.
    pub(super) sandbox: Option<Box<str>>,
    /// `K8S_POD_NAMESPACE` of `CNI_ARGS`.
    pub(super) namespace: Option<Box<str>>,
    /// `K8S_POD_NAME` of `CNI_ARGS`.
    pub(super) name: Option<Box<str>>,
    /// `K8S_POD_UID` of `CNI_ARGS`.
    pub(super) uid: Option<Box<str>>,
}

impl CniParameters {
    /// Reads an environment; `None` if the process is not a CNI plugin.
    pub(super) fn read(environ: &[u8]) -> Option<Self> {
        let mut plugin = Self::default();
        let mut infra = None;
        for text in environ.split(|b| *b == 0) {
            let Some(rest) = text.strip_prefix(b"CNI_") else {
                continue;
            };
            if let Some(value) = rest.strip_prefix(b"COMMAND=") {
                plugin.command.get_or_insert(match value {
                    b"ADD" => CniCommand::Add,
                    b"DEL" => CniCommand::Del,
                    _ => CniCommand::Other,
                });
            } else if let Some(value) = rest.strip_prefix(b"CONTAINERID=") {
                keep(&mut plugin.sandbox, value);
            } else if let Some(value) = rest.strip_prefix(b"ARGS=") {
                plugin.read_args(value, &mut infra);
            }
        }
        plugin.command?;
        plugin.sandbox = plugin.sandbox.or(infra);
        Some(plugin)
    }

    fn read_args(&mut self, args: &[u8], infra: &mut Option<Box<str>>) {
        for pair in args.split(|b| *b == b';') {
            let Some(rest) = pair.strip_prefix(b"K8S_POD_") else {
                continue;
            };
            if let Some(value) = rest.strip_prefix(b"NAMESPACE=") {
                keep(&mut self.namespace, value);
            } else if let Some(value) = rest.strip_prefix(b"NAME=") {
                keep(&mut self.name, value);
            } else if let Some(value) = rest.strip_prefix(b"UID=") {
                keep(&mut self.uid, value);
            } else if let Some(value) = rest.strip_prefix(b"INFRA_CONTAINER_ID=") {
                keep(infra, value);
            }
        }
    }
}

/// Stores a value with the form of an id or name; the first one counts.
fn keep(slot: &mut Option<Box<str>>, value: &[u8]) {
    if slot.is_none() && is_id_or_name(value) {
        *slot = std::str::from_utf8(value).ok().map(Box::from);
    }
}

fn is_id_or_name(value: &[u8]) -> bool {
    let mut bytes = value.iter();
    (1..=MAX_VALUE_LEN).contains(&value.len())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}

/// Names of common plugins, for nodes on which environments may not be read.
const WELL_KNOWN_PLUGINS: &[&str] = &[
    "antrea",
    "aws-cni",
    "azure-vnet",
    "bandwidth",
    "bridge",
    "calico",
    "cilium-cni",
    "dhcp",
    "dummy",
    "firewall",
    "flannel",
    "gke",
    "host-device",
    "host-local",
    "ipvlan",
    "istio-cni",
    "kube-ovn",
    "kube-router",
    "linkerd-cni",
    "loopback",
    "macvlan",
    "multus",
    "multus-shim",
    "ovn-k8s-cni-overlay",
    "portmap",
    "ptp",
    "sbr",
    "spiderpool",
    "sriov",
    "static",
    "tap",
    "terway",
    "tuning",
    "vlan",
    "vrf",
    "weave-net",
    "whereabouts",
];

/// Returns whether a process has the name of a common plugin.
pub(super) fn is_well_known(comm: &ProcessComm) -> bool {
    WELL_KNOWN_PLUGINS.iter().any(|name| comm.is(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVIRON: &[u8] =
        b"HOME=/root\0TOKEN=hunter2\0CNI_COMMAND=ADD\0CNI_CONTAINERID=0a1b\0CNI_NETNS=/var/run/x\0\
        CNI_ARGS=IgnoreUnknown=1;SECRET=hunter2;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;\
        K8S_POD_INFRA_CONTAINER_ID=ffff;K8S_POD_UID=1-2-3\0CNI_PATH=/opt/hunter2\0";

    #[test]
    fn only_the_keys_on_the_list_are_kept() {
        let plugin = CniParameters::read(ENVIRON).expect("a plugin");
        assert_eq!(plugin.command, Some(CniCommand::Add));
        assert_eq!(plugin.sandbox.as_deref(), Some("0a1b"));
        assert_eq!(plugin.namespace.as_deref(), Some("shop"));
        assert_eq!(plugin.name.as_deref(), Some("cart-0"));
        assert_eq!(plugin.uid.as_deref(), Some("1-2-3"));
        assert!(!format!("{plugin:?}").contains("hunter2"));
    }

    #[test]
    fn what_does_not_look_like_an_identity_is_not_kept() {
        let environ = b"CNI_COMMAND=DEL\0CNI_CONTAINERID=pass word\0CNI_ARGS=K8S_POD_NAME=a b;K8S_POD_NAMESPACE=;\
            K8S_POD_INFRA_CONTAINER_ID=ab12;K8S_POD_UID=$(hunter2)";
        let plugin = CniParameters::read(environ).expect("a plugin");
        let want = CniParameters {
            command: Some(CniCommand::Del),
            sandbox: Some("ab12".into()),
            ..CniParameters::default()
        };
        assert_eq!(plugin, want);
        let long = [
            b"CNI_COMMAND=ADD\0CNI_CONTAINERID=".to_vec(),
            vec![b'x'; 300],
        ]
        .concat();
        assert_eq!(CniParameters::read(&long).expect("a plugin").sandbox, None);
    }

    #[test]
    fn other_environments_are_none() {
        for environ in [
            &b""[..],
            b"PATH=/bin",
            b"XCNI_COMMAND=ADD",
            b"CNI_CONTAINERID=ab",
            b"hunter2",
            b"\0\0\0",
        ] {
            assert_eq!(CniParameters::read(environ), None);
        }
        let other = CniParameters::read(b"CNI_COMMAND=VERSION").expect("a plugin");
        assert_eq!(other.command, Some(CniCommand::Other));
        // The first of two counts, as it does for the plugin itself.
        let twice = CniParameters::read(b"CNI_COMMAND=ADD\0CNI_COMMAND=DEL").expect("a plugin");
        assert_eq!(twice.command, Some(CniCommand::Add));
    }

    #[test]
    fn long_names_are_known_by_their_beginning() {
        assert!(is_well_known(&ProcessComm::new(b"ovn-k8s-cni-ove")));
        assert!(is_well_known(&ProcessComm::new(b"calico")));
        assert!(!is_well_known(&ProcessComm::new(b"bash")));
    }
}

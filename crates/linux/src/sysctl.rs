//! Kernel parameters of a pod: their files, and the namespaces that they belong to.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::namespace::Kind;

/// Why a parameter was not set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is empty, or would leave `/proc/sys`.
    #[error("sysctl {name:?} is not a name of a kernel parameter")]
    Name {
        /// The name.
        name: String,
    },
    /// The sysctl belongs to the node, or to a namespace that this pod shares with the node.
    #[error("sysctl {name} would change the node: it belongs to no namespace of this pod's own")]
    NotNamespaced {
        /// The name.
        name: String,
    },
    /// The kernel rejected the value.
    #[error("cannot set sysctl {name}: {source}")]
    Write {
        /// The name.
        name: String,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl Error {
    fn invalid_name(name: &str) -> Self {
        let name = name.to_owned();
        Self::Name { name }
    }
}

/// A valid parameter with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    name: String,
    file: PathBuf,
    value: String,
    kind: Kind,
}

impl Sysctl {
    /// Accepts both spellings of sysctl(8): `net.ipv4.ip_forward` and `net/ipv4/ip_forward`. The first separator decides
    /// which one is used; the other character is then exchanged (`net.ipv4.conf.eth0/1.forwarding` is interface
    /// `eth0.1`).
    ///
    /// # Errors
    /// [`Error::Name`], or [`Error::NotNamespaced`] for a parameter that does not belong to a net, ipc or uts namespace.
    pub fn new(name: &str, value: &str) -> Result<Self, Error> {
        let path: String = match name.find(['.', '/']) {
            Some(at) if name.as_bytes()[at] == b'.' => name
                .chars()
                .map(|c| match c {
                    '.' => '/',
                    '/' => '.',
                    other => other,
                })
                .collect(),
            Some(_) => name.to_owned(),
            None => return Err(Error::invalid_name(name)),
        };
        if path.contains('\0') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::invalid_name(name));
        }
        let kind = home(&path).ok_or_else(|| Error::NotNamespaced {
            name: name.to_owned(),
        })?;
        Ok(Self {
            name: name.to_owned(),
            file: PathBuf::from("/proc/sys").join(path),
            value: value.to_owned(),
            kind,
        })
    }

    /// The kind of namespace it belongs to.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The network interface that the parameter belongs to, if it belongs to one that is not in every network namespace.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        let path = self.file.strip_prefix("/proc/sys/net").ok()?;
        let mut parts = path.components().map(|part| part.as_os_str().to_str());
        let (_family, kind) = (parts.next()??, parts.next()??);
        let name = parts.next()??;
        let is_of_all = matches!(name, "all" | "default" | "lo");
        (matches!(kind, "conf" | "neigh") && !is_of_all).then_some(name)
    }

    /// The error for a pod that shares the parameter's namespace with the node.
    #[must_use]
    pub fn shared(&self) -> Error {
        Error::NotNamespaced {
            name: self.name.clone(),
        }
    }

    /// Sets it in the namespaces of the calling thread.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&self) -> Result<(), Error> {
        fs::write(&self.file, &self.value).map_err(|source| Error::Write {
            name: self.name.clone(),
            source,
        })
    }
}

/// Returns the namespace of a parameter in the kubelet's list (`pkg/kubelet/sysctl`), by path below `/proc/sys`.
fn home(path: &str) -> Option<Kind> {
    match path {
        "kernel/sem" => Some(Kind::Ipc),
        "kernel/hostname" | "kernel/domainname" => Some(Kind::Uts),
        _ if path.starts_with("net/") => Some(Kind::Net),
        _ if path.starts_with("kernel/shm")
            || path.starts_with("kernel/msg")
            || path.starts_with("fs/mqueue/") =>
        {
            Some(Kind::Ipc)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_an_interface_are_told_apart() {
        for (name, interface) in [
            ("net.ipv4.conf.eth0.rp_filter", Some("eth0")),
            ("net/ipv6/conf/eth0.1/forwarding", Some("eth0.1")),
            ("net.ipv4.neigh.net1.gc_stale_time", Some("net1")),
            ("net.ipv4.conf.all.rp_filter", None),
            ("net.ipv6.conf.default.forwarding", None),
            ("net.ipv4.conf.lo.forwarding", None),
            ("net.core.somaxconn", None),
            ("kernel.shmmax", None),
        ] {
            let sysctl = Sysctl::new(name, "1").expect("valid");
            assert_eq!(sysctl.interface(), interface, "{name}");
        }
    }

    #[test]
    fn both_spellings_name_the_same_file() {
        for name in ["net.ipv4.ip_forward", "net/ipv4/ip_forward"] {
            let sysctl = Sysctl::new(name, "1").expect("valid");
            assert_eq!(sysctl.file, PathBuf::from("/proc/sys/net/ipv4/ip_forward"));
            assert_eq!(sysctl.kind(), Kind::Net);
        }
        let vlan = Sysctl::new("net.ipv4.conf.eth0/1.forwarding", "1").expect("valid");
        assert_eq!(
            vlan.file,
            PathBuf::from("/proc/sys/net/ipv4/conf/eth0.1/forwarding")
        );
    }

    #[test]
    fn parameters_outside_the_pod_are_rejected() {
        for name in [
            "kernel.panic",
            "vm.swappiness",
            "kernel.core_pattern",
            "fs.file-max",
        ] {
            assert!(
                matches!(Sysctl::new(name, "1"), Err(Error::NotNamespaced { .. })),
                "{name}"
            );
        }
        for name in [
            "",
            "net",
            "net/../kernel/panic",
            "net..ipv4",
            "/net/ipv4",
            "net.ipv4.",
            "net////a",
        ] {
            assert!(
                matches!(Sysctl::new(name, "1"), Err(Error::Name { .. })),
                "{name}"
            );
        }
    }
}
